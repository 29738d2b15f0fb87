"""Filter pushdown: the remaining queues, offsets, times and tags, and the filters left to Spark."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from aerobee.client.blocking import MessageQueue
from aerobee.spark.options import read_options
from aerobee.spark.plan import plan
from aerobee.spark.pushdown import EVERYTHING, push_down

from .fakes import FakeReader

HELD = {
    ("a", "x", 0): range(100),
    ("a", "x", 1): range(50, 60),
    ("b", "y", 0): range(7, 8),
}
ALL = [("a", "x", 0, 0, 100), ("a", "x", 1, 50, 60), ("b", "y", 0, 7, 8)]


@dataclass(frozen=True)
class Filter:
    """A filter of PySpark's: the path of a column and, for most filters, a value."""

    attribute: tuple[str, ...]
    value: Any = None


class EqualTo(Filter): ...


class In(Filter): ...


class GreaterThan(Filter): ...


class GreaterThanOrEqual(Filter): ...


class LessThan(Filter): ...


class LessThanOrEqual(Filter): ...


class StringStartsWith(Filter): ...


class IsNotNull(Filter): ...


@dataclass(frozen=True)
class Not:
    child: Filter


def at(ms: int) -> datetime:
    """The time of a fake message: message n was stored at 1000 + n ms."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


def planned(*filters: Any) -> list[tuple[str, str, int, int, int]]:
    options = read_options({"subscribe": "a,b"})
    found, _ = push_down(filters, options)
    ranges = plan(FakeReader(HELD), options, found)
    return [(each.topic, each.broker_name, each.queue_id, each.start, each.end) for each in ranges]


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([], ALL),
        ([EqualTo(("topic",), "b")], ALL[2:]),
        ([StringStartsWith(("topic",), "a")], ALL[:2]),
        ([EqualTo(("partition",), 1)], ALL[1:2]),
        ([In(("queueId",), (1, 5))], ALL[1:2]),
        ([EqualTo(("brokerName",), "x"), LessThan(("partition",), 1)], ALL[:1]),
        ([EqualTo(("topic",), "none")], []),
        ([EqualTo(("offset",), 7)], [("a", "x", 0, 7, 8), ("b", "y", 0, 7, 8)]),
        (
            [GreaterThan(("offset",), 9), LessThanOrEqual(("offset",), 52)],
            [("a", "x", 0, 10, 53), ("a", "x", 1, 50, 53)],
        ),
        (
            [GreaterThanOrEqual(("offset",), 99), LessThan(("offset",), 50)],
            [],
        ),
        ([EqualTo(("timestamp",), at(1055))], [("a", "x", 0, 55, 56), ("a", "x", 1, 55, 56)]),
        (
            # Spark compares below one millisecond; the plan reads too many messages, never too few.
            [GreaterThan(("timestamp",), at(1097)), LessThan(("timestamp",), at(1099))],
            [("a", "x", 0, 97, 100)],
        ),
        ([LessThanOrEqual(("timestamp",), at(1007))], [("a", "x", 0, 0, 8), ("b", "y", 0, 7, 8)]),
        ([GreaterThanOrEqual(("timestamp",), at(90_000))], []),
    ],
)
def test_filters_reduce_the_queues_and_offsets_of_the_plan(
    filters: list[Any], left: list[tuple[str, str, int, int, int]]
) -> None:
    assert planned(*filters) == left


def test_filters_that_are_applied_exactly_are_not_returned_to_spark() -> None:
    done = [
        EqualTo(("topic",), "a"),
        IsNotNull(("offset",)),
        LessThan(("offset",), 5),
        EqualTo(("tags",), "red"),
    ]
    left = [
        LessThan(("timestamp",), at(5)),
        IsNotNull(("tags",)),
        EqualTo(("key",), "k"),
        Not(EqualTo(("topic",), "b")),
        EqualTo(("value", "inner"), "k"),
        In(("offset",), (1, 2)),
        EqualTo(("tags",), "blue"),  # a second tag filter; the broker applies the first
    ]
    _, rest = push_down([*done, *left], read_options({"subscribe": "a"}))
    assert rest == left


@pytest.mark.parametrize(
    ("each", "told"),
    [
        (EqualTo(("tags",), "red"), "red"),
        (In(("tags",), ("red", "blue")), "red || blue"),
        (EqualTo(("tags",), "*"), None),
        (EqualTo(("tags",), "two words"), None),
        (EqualTo(("tags",), "a||b"), None),
        (EqualTo(("tags",), ""), None),
        (In(("tags",), tuple(map(str, range(65)))), None),
        (StringStartsWith(("tags",), "r"), None),
    ],
)
def test_brokers_get_the_tag_filters_that_they_can_apply(each: Any, told: str | None) -> None:
    options = read_options({"subscribe": "a"})
    found, rest = push_down([each], options)
    assert found.with_tags(options).tags == told
    assert rest == ([] if told else [each])


def test_a_tag_filter_does_not_replace_a_filter_of_the_options() -> None:
    options = read_options({"subscribe": "a", "filterSql": "n > 1"})
    each = EqualTo(("tags",), "red")
    assert push_down([each], options) == (EVERYTHING, [each])


def test_times_in_utc_in_another_zone_and_without_a_zone_are_equal() -> None:
    utc = push_down([EqualTo(("timestamp",), at(1055))], read_options({"subscribe": "a"}))[0]
    here = at(1055).astimezone(timezone(timedelta(hours=-7)))
    for same in (here, at(1055).replace(tzinfo=None)):
        found, _ = push_down([EqualTo(("timestamp",), same)], read_options({"subscribe": "a"}))
        assert (found.first_ms, found.end_ms) == (utc.first_ms, utc.end_ms) == (1055, 1056)


def test_a_queue_is_read_only_if_it_matches_every_filter() -> None:
    filters = [EqualTo(("topic",), "a"), GreaterThan(("partition",), 0)]
    found, _ = push_down(filters, read_options({"subscribe": "a"}))
    assert found.passes(MessageQueue("a", "x", 1))
    assert not found.passes(MessageQueue("a", "x", 0))
    assert not found.passes(MessageQueue("b", "x", 1))
