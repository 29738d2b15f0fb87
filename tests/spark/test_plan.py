"""Ranges of a read: from offsets asked for and offsets held, and their split among tasks."""

import json

import pytest
from aerobee.lake.rows.ranges import QueueRange
from aerobee.spark.options import ReadOptions, read_options
from aerobee.spark.plan import plan, split

from .fakes import FakeReader

HELD = {
    ("a", "broker-x", 0): range(100),
    ("a", "broker-x", 1): range(50, 60),
    ("a", "broker-y", 0): range(0),
    ("b", "broker-x", 0): range(7, 8),
}


def planned(**options: str) -> list[tuple[str, str, int, int, int]]:
    ranges = plan(FakeReader(HELD), read_options({"subscribe": "a", **options}))
    return [(each.topic, each.broker_name, each.queue_id, each.start, each.end) for each in ranges]


def test_all_that_is_held_is_read_and_empty_queues_make_no_task() -> None:
    assert planned(subscribe="a,b") == [
        ("a", "broker-x", 0, 0, 100),
        ("a", "broker-x", 1, 50, 60),
        ("b", "broker-x", 0, 7, 8),
    ]


def test_offsets_can_be_given_for_each_queue() -> None:
    starting = {"a": {"broker-x:0": 90, "1": -2, "broker-y:0": -1}}
    ending = {"a": {"0": -1, "1": 55}}
    assert planned(startingOffsets=json.dumps(starting), endingOffsets=json.dumps(ending)) == [
        ("a", "broker-x", 0, 90, 100),
        ("a", "broker-x", 1, 50, 55),
    ]


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ({"0": 101, "1": 50}, "offsets 101 to 100 .* were asked for, the broker holds 0 to 100"),
        (
            {"0": 0, "1": 10},
            "offsets 10 to 60 of queue 1 .* holds 50 to 60: older ones are deleted",
        ),
        ({"0": 0}, "leaves out .*broker-x:1"),
        ({"0": 0, "1": 50, "2": 0}, "names .*'2'"),
        ({"0": 0, "1": 50, "broker-z:0": 0}, "names .*'broker-z:0'"),
    ],
)
def test_starting_offsets_that_do_not_fit_are_refused(offsets: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        planned(startingOffsets=json.dumps({"a": offsets}))


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ({"0": 101, "1": 60}, "the broker holds 0 to 100"),
        ({"0": 0, "1": 40}, "must not lie after endingOffsets"),
    ],
)
def test_ending_offsets_that_do_not_fit_are_refused(offsets: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        planned(endingOffsets=json.dumps({"a": offsets}))


def test_offsets_of_a_topic_that_is_not_read_are_refused() -> None:
    both = json.dumps({"a": {"0": -2, "1": -2}, "c": {"0": 1}})
    with pytest.raises(ValueError, match=r"not read: \['c'\]"):
        planned(startingOffsets=both)


def test_what_was_deleted_is_left_out_when_data_loss_is_accepted() -> None:
    starting = json.dumps({"a": {"0": 0, "1": 10}})
    found = planned(startingOffsets=starting, failOnDataLoss="false")
    assert ("a", "broker-x", 1, 50, 60) in found


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 50, 109, 110])
def test_a_split_has_enough_parts_no_gap_and_no_overlap(count: int) -> None:
    whole = [QueueRange("a", "x", 0, 0, 100), QueueRange("a", "x", 1, 50, 60)]
    parts = split(whole, ReadOptions(partitions_min=count))
    assert len(parts) >= count
    assert all(len(part) > 0 for part in parts)
    for each in whole:
        offsets = [o for p in parts if p.queue == each.queue for o in range(p.start, p.end)]
        assert offsets == list(range(each.start, each.end))


def test_long_ranges_are_cut_into_more_parts_than_short_ones() -> None:
    whole = [QueueRange("a", "x", 0, 0, 900), QueueRange("a", "x", 1, 0, 100)]
    parts = split(whole, ReadOptions(partitions_min=10))
    assert [len(part) for part in parts] == [100] * 10


@pytest.mark.parametrize("most", [1, 30, 99, 100, 1000])
def test_no_part_is_longer_than_the_rows_of_a_partition(most: int) -> None:
    whole = [QueueRange("a", "x", 0, 0, 100), QueueRange("a", "x", 1, 50, 60)]
    parts = split(whole, ReadOptions(partition_rows_max=most))
    assert max(map(len, parts)) <= most
    assert sum(map(len, parts)) == 110
    assert len(parts) == -(-100 // most) + -(-10 // most)


def test_a_split_never_goes_below_one_message() -> None:
    options = ReadOptions(partitions_min=100)
    assert len(split([QueueRange("a", "x", 0, 3, 5)], options)) == 2
    assert split([], options) == []
