"""Every short history of three replicas: nothing is lost, whatever happens, and in whatever order.

Histories of 5 events, and in the tier soak of AEROBEE_ABSTRACT_EVENTS (7), from a set of three and
from a first master on its own; see `abstract`.
"""

import os

import pytest

from . import abstract, abstract_ids

MANY = int(os.environ.get("AEROBEE_ABSTRACT_EVENTS", "7"))
EVENTS = pytest.mark.parametrize("events", [5, pytest.param(MANY, marks=pytest.mark.soak)])


@EVENTS
def test_no_history_of_a_set_of_three_breaks_a_promise(events: int) -> None:
    states, steps = abstract.explore(abstract.all_in_the_set(), events)
    assert states > (100_000 if events >= 7 else 4_000)
    assert steps > (2_000_000 if events >= 7 else 40_000)


@EVENTS
def test_no_history_of_a_first_master_breaks_a_promise(events: int) -> None:
    states, steps = abstract.explore(abstract.alone_in_the_set(), events)
    assert states > (20_000 if events >= 7 else 500)
    assert steps > (400_000 if events >= 7 else 5_000)


@EVENTS
@pytest.mark.parametrize("first", [abstract.all_in_the_set, abstract.alone_in_the_set])
def test_an_old_master_stops_before_its_time_is_over(first: "abstract.First", events: int) -> None:
    """Histories are shorter by an event here: with time that passes there are more of them."""
    abstract.explore(first()._replace(is_timed=True), events - 1)


def test_no_id_is_given_twice() -> None:
    assert abstract_ids.explore(12) > 500
