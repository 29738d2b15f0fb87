"""How far a stream is: starts, ends, limits of a micro-batch, and what is lost."""

import json

import pytest
from aerobee.lake.rows.ranges import DataLossError
from aerobee.spark.options import read_options
from aerobee.spark.progress import (
    Progress,
    first,
    latest,
    limited,
    lows_of,
    ranges,
    rows_between,
)

from .fakes import FakeReader

HELD = {
    ("a", "x", 0): range(100),
    ("a", "x", 1): range(50, 60),
    ("a", "y", 0): range(0),
}
END: Progress = {"a": {"x:0": 100, "x:1": 60, "y:0": 0}}


def options(**said: str) -> object:
    return read_options({"subscribe": "a", **said}, stream=True)


def taken(
    reader: FakeReader, start: Progress, end: Progress, **said: str
) -> list[tuple[str, int, int]]:
    """Queue, start and end of each task."""
    found = ranges(reader, options(**said), start, end)  # type: ignore[arg-type]
    return [(f"{each.broker_name}:{each.queue_id}", each.start, each.end) for each in found]


@pytest.mark.parametrize(
    ("said", "start"),
    [
        ({}, END),
        ({"startingOffsets": "earliest"}, {"a": {"x:0": 0, "x:1": 50, "y:0": 0}}),
        (
            {"startingOffsets": json.dumps({"a": {"x:0": 7, "1": -1, "y:0": -2}})},
            {"a": {"x:0": 7, "x:1": 60, "y:0": 0}},
        ),
        ({"startingTimestamp": "1055"}, {"a": {"x:0": 55, "x:1": 55, "y:0": 0}}),
        (
            {"startingOffsetsByTimestamp": json.dumps({"a": {"x:0": 1003, "1": 0, "y:0": 9}})},
            {"a": {"x:0": 3, "x:1": 50, "y:0": 0}},
        ),
    ],
)
def test_a_new_stream_starts_where_it_is_told(said: dict[str, str], start: Progress) -> None:
    assert first(FakeReader(HELD), options(**said)) == start  # type: ignore[arg-type]


def test_a_micro_batch_takes_what_has_come_since() -> None:
    start = {"a": {"x:0": 90, "x:1": 60, "y:0": 0}}
    assert taken(FakeReader(HELD), start, END) == [("x:0", 90, 100)]
    assert taken(FakeReader(HELD), END, END) == []


def test_a_queue_that_is_new_is_read_from_its_first_message() -> None:
    start = {"a": {"x:0": 100}}
    reader = FakeReader(HELD)
    assert latest(reader, options(), start) == END  # type: ignore[arg-type]
    assert lows_of(reader, start, END) == {"a": {"x:1": 50, "y:0": 0}}
    assert taken(reader, start, END) == [("x:1", 50, 60)]


def test_a_queue_whose_broker_is_away_stays_as_it_is() -> None:
    start = {"a": {"x:0": 100, "x:1": 60, "y:0": 0, "z:0": 77}}
    reader = FakeReader(HELD)
    end = latest(reader, options(), start)  # type: ignore[arg-type]
    assert end == {"a": END["a"] | {"z:0": 77}}
    assert taken(reader, start, end) == []


def test_a_pattern_finds_topics_that_come_later() -> None:
    reader = FakeReader({("a1", "x", 0): range(5), ("b", "x", 0): range(5)})
    pattern = read_options({"subscribePattern": "a.*"}, stream=True)
    start = latest(reader, pattern, {})
    assert start == {"a1": {"x:0": 5}}
    grown = FakeReader(
        {("a1", "x", 0): range(5), ("a2", "x", 0): range(3), ("b", "x", 0): range(9)}
    )
    assert latest(grown, pattern, start) == {"a1": {"x:0": 5}, "a2": {"x:0": 3}}


@pytest.mark.parametrize("rows_max", [1, 2, 3, 10, 55, 109, 110, 111, 10_000])
def test_a_limit_is_kept_and_used(rows_max: int) -> None:
    lows: Progress = {"a": {"x:0": 0, "x:1": 50, "y:0": 0}}
    end = limited({}, END, lows, rows_max)
    assert rows_between({}, end, lows) == pytest.approx(min(rows_max, 110), abs=2)
    assert rows_between({}, end, lows) <= rows_max
    assert all(lows["a"][name] <= end["a"][name] <= END["a"][name] for name in END["a"])


def test_a_limit_leaves_no_queue_waiting_for_ever() -> None:
    lows: Progress = {"a": {"x:0": 0, "x:1": 50, "y:0": 0}}
    start: Progress = {}
    steps = 0
    while start != END:
        start = limited(start, END, lows, 4)
        assert start["a"]["x:1"] > 50
        steps += 1
    assert steps < 60


@pytest.mark.parametrize(
    ("queues", "rows_max", "backlogs"),
    [
        (3, 2, [1_000]),
        (64, 60, [1_000_000]),
        (64, 60, [1_000_000] * 62),
        (200, 100, [5_000]),
        (8, 100, [1_000_000]),
        (7, 3, [9, 0, 0, 700]),
    ],
)
def test_each_queue_that_waits_moves_in_turn_however_few_rows_a_round_has(
    queues: int, rows_max: int, backlogs: list[int]
) -> None:
    names = [f"x:{number}" for number in range(queues)]
    start: Progress = {"a": dict.fromkeys(names, 0)}
    end = {"a": dict(zip(names, [*backlogs, *[0] * queues], strict=False))}
    turns = -(-queues // rows_max)
    waits = dict.fromkeys(names, 0)
    for _ in range(10 * turns):
        for name in names:  # each gets a new message
            end["a"][name] += 1
        found = limited(start, end, {}, rows_max)
        assert 0 < rows_between(start, found, {}) <= rows_max
        for name in names:
            waits[name] = 0 if found["a"][name] > start["a"][name] else waits[name] + 1
            assert waits[name] < turns or start["a"][name] == end["a"][name], name
        start = found
    if rows_max > queues:
        assert start["a"]["x:0"] == 10 * turns * (rows_max - queues + 1)


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [
        ({"a": {"x:1": 40}}, {"a": {"x:1": 60}}, [("x:1", 50, 60)]),  # old ones were deleted
        ({"a": {"x:1": 40}}, {"a": {"x:1": 45}}, []),
        ({"a": {"x:0": 90}}, {"a": {"x:0": 120}}, [("x:0", 90, 100)]),  # the store is another
        ({"a": {"x:0": 120}}, {"a": {"x:0": 100}}, [("x:0", 0, 100)]),  # it was made again
    ],
)
def test_lost_messages_fail_the_stream_unless_told_otherwise(
    start: Progress, end: Progress, left: list[tuple[str, int, int]]
) -> None:
    with pytest.raises(DataLossError, match=r"queue \d of topic a on x .* holds .* failOnDataLoss"):
        taken(FakeReader(HELD), start, end)
    assert taken(FakeReader(HELD), start, end, failOnDataLoss="false") == left


def test_a_limit_holds_for_a_queue_that_was_made_again() -> None:
    start, reader = {"a": {"x:0": 120, "x:1": 60}}, FakeReader(HELD)
    end: Progress = {"a": {"x:0": 100, "x:1": 60}}
    lows = lows_of(reader, start, end)
    assert rows_between(start, end, lows) == 100
    part = limited(start, end, lows, 30)
    assert part == {"a": {"x:0": 30, "x:1": 60}}
    assert taken(reader, start, part, failOnDataLoss="false") == [("x:0", 0, 30)]
    assert taken(reader, part, end, failOnDataLoss="false") == [("x:0", 30, 100)]


def test_a_micro_batch_can_be_split_into_more_tasks() -> None:
    found = taken(FakeReader(HELD), {"a": {"x:0": 0}}, {"a": {"x:0": 100}}, minPartitions="4")
    assert found == [("x:0", 0, 25), ("x:0", 25, 50), ("x:0", 50, 75), ("x:0", 75, 100)]
