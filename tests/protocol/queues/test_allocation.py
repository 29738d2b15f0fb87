"""Assignment against what the Java classes gave for the same members and queues."""

import json
from pathlib import Path
from typing import Any

import pytest
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.queues.allocation import (
    STRATEGIES,
    Strategy,
    average,
    by_config,
    circle,
    consistent_hash,
    machine_room,
    nearby,
    sort_ids,
)

VECTORS = json.loads(
    (Path(__file__).parents[2] / "golden" / "allocation.json").read_text(encoding="utf-8")
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


def queues_of(case: dict[str, Any]) -> list[MessageQueue]:
    return [
        MessageQueue(case.get("topic", "t"), broker, at)
        for broker in case["brokers"]
        for at in range(case["queues_per_broker"])
    ]


def cases(kind: str) -> list[dict[str, Any]]:
    found = [case for case in VECTORS if case["kind"] == kind]
    assert found
    return found


def check(strategy: Strategy, case: dict[str, Any]) -> None:
    queues, ids = queues_of(case), sort_ids(case["consumers"])
    for me, numbers in case["result"].items():
        assert [queues.index(queue) for queue in strategy(me, queues, ids)] == numbers


@pytest.mark.parametrize(
    "case",
    cases("CONSISTENT_HASH"),
    ids=lambda c: f"{len(c['consumers'])}-of-{c['virtual_nodes']}",
)
def test_the_ring_of_hashes_is_that_of_java(case: dict[str, Any]) -> None:
    check(consistent_hash(case["virtual_nodes"]), case)
    if case["virtual_nodes"] == 10:
        check(STRATEGIES["CONSISTENT_HASH"], case)


def test_a_join_moves_about_its_share_of_the_queues_and_no_others() -> None:
    queues = [MessageQueue("t", f"b{at % 7}", at) for at in range(400)]
    ids = sort_ids(f"10.0.0.{at}@{at * 7919}" for at in range(9))
    strategy = consistent_hash(100)
    before = {queue: me for me in ids for queue in strategy(me, queues, ids)}
    more = sort_ids([*ids, "10.0.0.77@1"])
    after = {queue: me for me in more for queue in strategy(me, queues, more)}
    moved = {queue for queue in queues if before[queue] != after[queue]}
    assert {after[queue] for queue in moved} == {"10.0.0.77@1"}
    assert len(queues) / 10 / 2 < len(moved) < len(queues) / 10 * 2


def test_a_ring_without_points_is_refused() -> None:
    with pytest.raises(ValueError, match="virtual_nodes is 0"):
        consistent_hash(0)


def test_the_machine_rooms_are_shared_as_in_java() -> None:
    (case,) = cases("MACHINE_ROOM")
    check(machine_room(case["consumeridcs"]), case)
    (case,) = cases("MACHINE_ROOM_NEARBY-AVG")
    check(nearby(average), case)
    check(STRATEGIES["MACHINE_ROOM_NEARBY-AVG"], case)


def test_a_queue_or_member_without_a_room_is_named() -> None:
    queues = [MessageQueue("t", "room1@b", 0)]
    with pytest.raises(ValueError, match="plain names no machine room"):
        nearby(average)("plain", queues, ["plain"])
    with pytest.raises(ValueError, match="c names no machine room"):
        nearby(average)("room1@me", [MessageQueue("t", "c", 0)], ["room1@me"])


def test_a_list_of_queues_is_taken_topic_by_topic() -> None:
    mine = [MessageQueue("t", "b", 1), MessageQueue("other", "b", 0)]
    queues = [MessageQueue("t", "b", at) for at in range(3)]
    assert by_config(mine)("me", queues, ["me", "you"]) == mine[:1]


def test_eight_queues_over_three_members_by_circle_give_the_third_its_third_and_sixth() -> None:
    queues = [MessageQueue("t", "b", at) for at in range(1, 9)]
    shares = [[q.queue_id for q in circle(me, queues, ["a", "b", "c"])] for me in "abc"]
    assert shares == [[1, 4, 7], [2, 5, 8], [3, 6]]


def test_five_queues_over_two_members_are_three_and_two_and_more_members_idle() -> None:
    queues = [MessageQueue("t", "b", at) for at in range(5)]
    assert [len(average(me, queues, ["a", "b"])) for me in "ab"] == [3, 2]
    five = ["a", "b", "c", "d", "e"]
    assert [len(average(me, queues[:3], five)) for me in five] == [1, 1, 1, 0, 0]


@pytest.mark.parametrize(
    "strategy", [average, circle, consistent_hash(), machine_room(["b"]), nearby(average)]
)
def test_a_member_that_the_group_does_not_know_gets_nothing(strategy: Strategy) -> None:
    assert strategy("me", [MessageQueue("t", "b", 0)], ["other"]) == []
