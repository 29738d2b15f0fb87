"""Assignment against what the Java classes gave for the same members and queues."""

import json
from pathlib import Path

import pytest
from aerobee.protocol.assign import STRATEGIES, average, circle, sort_ids
from aerobee.protocol.bodies.body import MessageQueue

VECTORS = json.loads(
    (Path(__file__).parent.parent / "golden" / "allocation.json").read_text(encoding="utf-8")
)
SHARES = [case for case in VECTORS if case["kind"] == "avg_and_circle"]


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE"])
@pytest.mark.parametrize("case", SHARES, ids=lambda c: f"{c['queues']}-over-{c['consumers']}")
def test_every_member_gets_what_java_gives_it(case: dict[str, object], name: str) -> None:
    queues = [MessageQueue("t", "b", at) for at in range(int(str(case["queues"])))]
    expected = case[name]
    assert isinstance(expected, dict)
    ids = sort_ids(expected)
    for me, numbers in expected.items():
        assert [queue.queue_id for queue in STRATEGIES[name](me, queues, ids)] == numbers


def test_ids_and_queues_sort_as_in_java() -> None:
    (case,) = (case for case in VECTORS if case["kind"] == "sort_order")
    assert sort_ids(reversed(case["consumer_ids"])) == case["consumer_ids"]
    queues = [
        MessageQueue("t", name, int(number))
        for name, _, number in (text.rpartition("/") for text in case["queues"])
    ]
    assert sorted(reversed(queues)) == queues


def test_ids_sort_by_utf_16_units_and_not_by_code_points() -> None:
    assert sort_ids(["\uffff", "\U0001f600"]) == ["\U0001f600", "\uffff"]


@pytest.mark.parametrize("strategy", [average, circle])
def test_a_member_that_the_group_does_not_know_gets_nothing(strategy: object) -> None:
    assert callable(strategy)
    assert strategy("me", [MessageQueue("t", "b", 0)], ["other"]) == []
