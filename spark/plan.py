"""Which offsets of which queues a read covers, and how they are split among tasks.

The driver plans from the bounds at that moment: a batch read sees the topic as it was then. A range
is never empty; ranges of one queue don't overlap and leave no gap.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

from ..client.cluster.route import MessageQueue
from ..lake.rows.ranges import QueueRange
from ..protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from .options import (
    EARLIEST,
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    TOPICS_MAX,
    Offsets,
    Place,
    ReadOptions,
    queue_names,
)


class Bounds(Protocol):
    """The part of `client.blocking.Reader` that planning uses."""

    def topics(self) -> list[str]: ...
    def queues(self, topic: str) -> list[MessageQueue]: ...
    def min_offset(self, queue: MessageQueue) -> int: ...
    def max_offset(self, queue: MessageQueue) -> int: ...
    def offset_at(self, queue: MessageQueue, ms: int) -> int: ...


class RangeFilter(Protocol):
    """Filters of a query that were pushed down (`pushdown.PushedFilters`)."""

    def passes(self, queue: MessageQueue) -> bool: ...
    def cut(self, whole: QueueRange, bounds: Bounds) -> QueueRange: ...


def plan(
    bounds: Bounds, options: ReadOptions, pushed: RangeFilter | None = None
) -> list[QueueRange]:
    """The ranges of a batch read, one for a task, at least `minPartitions` if there are messages.

    ValueError when given offsets don't fit the topics; the client's errors when a topic is unknown
    or no broker answers.
    """
    queues = queues_of(bounds, options)
    check_place(options.starting, "starting", queues)
    check_place(options.ending, "ending", queues)
    wanted = [queue for each in queues.values() for queue in each]
    if pushed is not None:
        wanted = [queue for queue in wanted if pushed.passes(queue)]
    ranges = [_queue_range(bounds, queue, options) for queue in wanted]
    if pushed is not None:
        ranges = [pushed.cut(each, bounds) for each in ranges]
    return split([each for each in ranges if len(each)], options)


def queues_of(bounds: Bounds, options: ReadOptions) -> dict[str, list[MessageQueue]]:
    """The queues to be read, by topic. ValueError when an assigned one is not there."""
    if options.pattern is not None:
        fits = re.compile(options.pattern).fullmatch
        topics: Sequence[str] = [each for each in bounds.topics() if fits(each) and _is_own(each)]
        if len(topics) > TOPICS_MAX:
            raise ValueError(
                f"option subscribePattern {options.pattern!r} fits {len(topics)} topics, the limit "
                f"is {TOPICS_MAX}; give a narrower one"
            )
    else:
        topics = options.topics
    found = {topic: bounds.queues(topic) for topic in topics}
    brokers = {queue.broker_name for each in found.values() for queue in each}
    if options.store_path is not None and len(brokers) > 1:
        raise ValueError(
            f"option storePath names the folder of one broker, and the topics are on "
            f"{sorted(brokers)}; read through the brokers"
        )
    if options.queues is not None:
        found = {topic: _assigned(options.queues[topic], each) for topic, each in found.items()}
    return found


def split(ranges: Sequence[QueueRange], options: ReadOptions) -> list[QueueRange]:
    """The same offsets in at least `partitions_min` ranges, or one message each if there are fewer.

    Longer ranges are cut into more parts, so that all parts have about the same size, and none is
    longer than `partition_rows_max`.
    """
    total, count = sum(map(len, ranges)), options.partitions_min
    found: list[QueueRange] = []
    for each in ranges:
        # Rounded up, the parts add up to no fewer than asked for.
        parts = max(1, min(len(each), -(-len(each) * count // total)))
        if options.partition_rows_max is not None:
            parts = max(parts, -(-len(each) // options.partition_rows_max))
        cuts = [each.start + len(each) * part // parts for part in range(parts + 1)]
        found += [replace(each, start=start, end=end) for start, end in pairwise(cuts)]
    return found


def offset_of(place: Place, bounds: Bounds, queue: MessageQueue, low: int, high: int) -> int:
    """The offset of a place in a queue that holds the offsets [low, high)."""
    times = place.times
    if times is not None:
        ms = times if isinstance(times, int) else _named(times, queue)
        return min(high, max(low, bounds.offset_at(queue, ms)))
    if isinstance(place.offsets, str):
        return low if place.offsets == EARLIEST else high
    given = _named(place.offsets, queue)
    return {EARLIEST_OFFSET: low, LATEST_OFFSET: high}.get(given, given)


def check_place(place: Place, which: str, queues: dict[str, list[MessageQueue]]) -> None:
    """Given offsets (or times) must name every queue that is read, and no other.

    As in Spark's Kafka source. ValueError with the queues that are missing or unknown.
    """
    by_time = isinstance(place.times, dict)
    said = place.times if by_time else place.offsets
    if not isinstance(said, dict):
        return
    option = f"{which}Offsets{'ByTimestamp' if by_time else ''}"
    unread = set(said) - set(queues)
    if unread:
        raise ValueError(f"option {option} speaks of topics that are not read: {sorted(unread)}")
    for topic, each in queues.items():
        _check_names(said, option, topic, each)


def _queue_range(bounds: Bounds, queue: MessageQueue, options: ReadOptions) -> QueueRange:
    low, high = bounds.min_offset(queue), bounds.max_offset(queue)
    start = offset_of(options.starting, bounds, queue, low, high)
    end = offset_of(options.ending, bounds, queue, low, high)
    whole = QueueRange(queue.topic, queue.broker_name, queue.queue_id, start, end)
    held = f"the broker holds {low} to {high}"
    if end > high or start > high:
        raise ValueError(f"{whole} were asked for, {held}")
    if start > end:
        raise ValueError(
            f"{whole} were asked for; startingOffsets must not lie after endingOffsets"
        )
    if start < low and options.fail_on_data_loss:
        raise ValueError(
            f"{whole} were asked for, {held}: older ones are deleted; begin later, "
            "or set failOnDataLoss to false to read what is left"
        )
    return replace(whole, start=max(start, low), end=max(end, low))


def _named(said: Offsets, queue: MessageQueue) -> int:
    given = said[queue.topic]
    return given[next(n for n in queue_names(queue.broker_name, queue.queue_id) if n in given)]


def _assigned(wanted: Iterable[str], queues: list[MessageQueue]) -> list[MessageQueue]:
    names = {queue: queue_names(queue.broker_name, queue.queue_id) for queue in queues}
    asked = set(wanted)
    unknown = asked.difference(*names.values())
    if unknown:
        raise ValueError(
            f"option assign names {sorted(unknown)}, which are not there; the topic has "
            f"{[each[0] for each in names.values()]}"
        )
    return [queue for queue in queues if asked.intersection(names[queue])]


def _check_names(said: Offsets, option: str, topic: str, queues: Sequence[MessageQueue]) -> None:
    given = set(said.get(topic, ()))
    names = {queue: queue_names(queue.broker_name, queue.queue_id) for queue in queues}
    missing = [each[0] for each in names.values() if not given.intersection(each)]
    unknown = given.difference(*names.values())
    if missing or unknown:
        raise ValueError(
            f"option {option} must name each queue of topic {topic}: it leaves out "
            f"{missing or 'none'} and names {sorted(unknown) or 'none'} that are not there"
        )


def _is_own(topic: str) -> bool:
    """True if the topic is an application's: not a system, retry or dead letter topic."""
    return not is_system_topic(topic) and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
