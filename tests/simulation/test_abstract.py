"""Every short history of three replicas: nothing is lost, whatever happens, and in whatever order.

`EVENTS` events each, from a set of three and from a first master on its own; see `abstract`.
"""

import os

import pytest

from . import abstract, abstract_ids

EVENTS = int(os.environ.get("AEROBEE_ABSTRACT_EVENTS", "7"))
TIMED_EVENTS = EVENTS - 1  # with time that passes, there are more histories


def test_no_history_of_a_set_of_three_breaks_a_promise() -> None:
    states, steps = abstract.explore(abstract.all_in_the_set(), EVENTS)
    assert EVENTS < 7 or (states > 100_000 and steps > 2_000_000)


def test_no_history_of_a_first_master_breaks_a_promise() -> None:
    states, steps = abstract.explore(abstract.alone_in_the_set(), EVENTS)
    assert EVENTS < 7 or (states > 20_000 and steps > 400_000)


@pytest.mark.parametrize("first", [abstract.all_in_the_set, abstract.alone_in_the_set])
def test_an_old_master_stops_before_its_time_is_over(first: "abstract.First") -> None:
    abstract.explore(first()._replace(is_timed=True), TIMED_EVENTS)


def test_no_id_is_given_twice() -> None:
    assert abstract_ids.explore(12) > 500
