"""Filter pushdown for batch reads: fewer queues, shorter ranges, fewer tags.

Spark hands filters over (`pushFilters`) where `spark.sql.python.filterPushdown.enabled` is on, from
PySpark 4.1 on. Spark applies all filters again that are not applied here exactly. Store times are
assumed to rise within a queue, as in RocketMQ's own search by time.
"""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ..client.cluster.route import MessageQueue
from ..lake.rows.ranges import QueueRange
from .options import ReadOptions
from .plan import Bounds

_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda value, values: value in values,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": operator.contains,
}
# Columns whose value is the same for all messages of a queue.
_OF_QUEUE: dict[str, Callable[[MessageQueue], str | int]] = {
    "topic": lambda queue: queue.topic,
    "brokerName": lambda queue: queue.broker_name,
    "partition": lambda queue: queue.queue_id,
    "queueId": lambda queue: queue.queue_id,
}
_NEVER_NULL = frozenset((*_OF_QUEUE, "offset", "timestamp"))
TAGS_MAX = 64  # of a filter that brokers are told
_NO_TAG = ("*", "|", " ")  # with a meaning of their own in a tag expression
OFFSET_MAX = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The part of a read that filters leave.

    These are the queues that pass `tests`, of them the offsets in [first, end), of these the
    messages stored in [first_ms, end_ms) (ms since the epoch), and only those with `tags`.
    """

    tests: tuple[tuple[str, str, Any], ...] = ()  # column, name of the filter, value
    first: int = 0
    end: int = OFFSET_MAX
    first_ms: int | None = None
    end_ms: int | None = None
    tags: tuple[str, ...] | None = None

    def passes(self, queue: MessageQueue) -> bool:
        """True if the queue passes all `tests`."""
        return all(
            _COMPARED[kind](_OF_QUEUE[name](queue), value) for name, kind, value in self.tests
        )

    def cut(self, whole: QueueRange, bounds: Bounds) -> QueueRange:
        """The part of the range that can pass; it may be empty."""
        start, end = max(whole.start, self.first), min(whole.end, self.end)
        if self.first_ms is not None and start < end:
            start = max(start, bounds.offset_at(whole.queue, self.first_ms))
        if self.end_ms is not None and start < end:
            end = min(end, bounds.offset_at(whole.queue, self.end_ms))
        start = min(start, whole.end)
        return replace(whole, start=start, end=max(start, end))

    def with_tags(self, options: ReadOptions) -> ReadOptions:
        """The options with the tags, which brokers compare."""
        return options if self.tags is None else replace(options, tags=" || ".join(self.tags))


EVERYTHING = PushedFilters()


def push_down(filters: Iterable[Any], options: ReadOptions) -> tuple[PushedFilters, list[Any]]:
    """The filters that are pushed down, and the rest, which Spark must apply itself."""
    found, rest = EVERYTHING, []
    for each in filters:
        kind = type(each).__name__
        path: tuple[str, ...] = getattr(each, "attribute", ())
        name = path[0] if len(path) == 1 else ""
        value = getattr(each, "value", None)
        if kind == "IsNotNull" and name in _NEVER_NULL:
            continue
        if name in _OF_QUEUE and kind in _COMPARED and value is not None:
            found = replace(found, tests=(*found.tests, (name, kind, value)))
        elif name == "offset" and type(value) is int and (cut := _span(kind, value)) is not None:
            found = replace(found, first=max(found.first, cut[0]), end=min(found.end, cut[1]))
        elif name == "timestamp" and isinstance(value, datetime):
            found = _in_time(found, kind, value)
            rest.append(each)  # times are finer than a queue's
        elif name == "tags" and found.tags is None and (tags := _tags(kind, value)) is not None:
            if options.is_filtered or options.store_path is not None:
                rest.append(each)
            else:
                found = replace(found, tags=tags)
        else:
            rest.append(each)
    return found, rest


def _span(kind: str, value: int) -> tuple[int, int] | None:
    """The whole numbers that pass, as [first, end); None for what is no span."""
    return {
        "EqualTo": (value, value + 1),
        "EqualNullSafe": (value, value + 1),
        "GreaterThan": (value + 1, OFFSET_MAX),
        "GreaterThanOrEqual": (value, OFFSET_MAX),
        "LessThan": (0, value),
        "LessThanOrEqual": (0, value + 1),
    }.get(kind)


def _in_time(found: PushedFilters, kind: str, moment: datetime) -> PushedFilters:
    """Narrow `found` to the milliseconds that include all store times that pass."""
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    ms = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    span = _span(kind, ms)
    if span is None:
        return found
    first = span[0] - 1 if kind == "GreaterThan" else span[0]
    end = span[1] + 1 if kind == "LessThan" else span[1]
    if end < OFFSET_MAX:
        end = end if found.end_ms is None else min(end, found.end_ms)
        found = replace(found, end_ms=end)
    if first > 0:
        found = replace(found, first_ms=max(first, found.first_ms or 0))
    return found


def _tags(kind: str, value: Any) -> tuple[str, ...] | None:
    """The tags of a filter that brokers can compare."""
    values = value if kind == "In" else (value,) if kind.startswith("Equal") else ()
    if not 0 < len(values) <= TAGS_MAX:
        return None
    if not all(isinstance(each, str) and each for each in values):
        return None
    return None if any(sign in each for each in values for sign in _NO_TAG) else tuple(values)
