"""Which offsets of which queues a read covers, and how they are split among tasks.

Planned once, in the driver, from what the brokers say then: a batch read sees the topic as it was
at that moment. A range is never empty; ranges of one queue don't overlap and leave no gap.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from ..client.blocking import MessageQueue
from .options import EARLIEST_OFFSET, LATEST_OFFSET, Offsets, ReadOptions, queue_names


class Bounds(Protocol):
    """What planning asks of `client.blocking.Reader`."""

    def queues(self, topic: str) -> list[MessageQueue]: ...
    def min_offset(self, queue: MessageQueue) -> int: ...
    def max_offset(self, queue: MessageQueue) -> int: ...


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The messages of one queue from offset `start` on, up to and without `end`."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return (
            f"offsets {self.start} to {self.end} of queue {self.queue_id} of topic {self.topic} "
            f"on {self.broker_name}"
        )

    @property
    def queue(self) -> MessageQueue:
        """The queue as the client names it."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


def plan(bounds: Bounds, options: ReadOptions) -> list[QueueRange]:
    """The ranges to be read, one for a task, at least `minPartitions` where there are messages.

    ValueError when given offsets don't fit the topics; the client's errors when a topic is unknown
    or nobody answers.
    """
    ranges: list[QueueRange] = []
    for topic in options.topics:
        queues = bounds.queues(topic)
        _check_names(options.starting, "startingOffsets", topic, queues)
        _check_names(options.ending, "endingOffsets", topic, queues)
        ranges += [_queue_range(bounds, queue, options) for queue in queues]
    for said, option in (
        (options.starting, "startingOffsets"),
        (options.ending, "endingOffsets"),
    ):
        unread = set(said) - set(options.topics) if isinstance(said, dict) else set()
        if unread:
            raise ValueError(f"option {option} speaks of topics not in subscribe: {sorted(unread)}")
    return split([each for each in ranges if len(each)], options.partitions_min)


def split(ranges: Sequence[QueueRange], count: int) -> list[QueueRange]:
    """The same offsets in at least `count` ranges, or one message each if there are fewer.

    Longer ranges are cut into more parts, so that the parts are of about one size.
    """
    total = sum(map(len, ranges))
    found: list[QueueRange] = []
    for each in ranges:
        # Rounded up, the parts add up to no fewer than asked for.
        parts = max(1, min(len(each), -(-len(each) * count // total)))
        cuts = [each.start + len(each) * part // parts for part in range(parts + 1)]
        found += [replace(each, start=start, end=end) for start, end in pairwise(cuts)]
    return found


def _queue_range(bounds: Bounds, queue: MessageQueue, options: ReadOptions) -> QueueRange:
    low, high = bounds.min_offset(queue), bounds.max_offset(queue)
    start = _offset(options.starting, queue, low, low, high)
    end = _offset(options.ending, queue, high, low, high)
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


def _offset(said: str | Offsets, queue: MessageQueue, default: int, low: int, high: int) -> int:
    if isinstance(said, str):
        return default
    given = said[queue.topic]
    name = next(n for n in queue_names(queue.broker_name, queue.queue_id) if n in given)
    return {EARLIEST_OFFSET: low, LATEST_OFFSET: high}.get(given[name], given[name])


def _check_names(
    said: str | Offsets, option: str, topic: str, queues: Sequence[MessageQueue]
) -> None:
    """Each queue has an offset, and each offset a queue; as Spark's Kafka source demands it."""
    if isinstance(said, str):
        return
    given = set(said.get(topic, ()))
    names = {queue: queue_names(queue.broker_name, queue.queue_id) for queue in queues}
    missing = [each[0] for each in names.values() if not given.intersection(each)]
    unknown = given.difference(*names.values())
    if missing or unknown:
        raise ValueError(
            f"option {option} must name each queue of topic {topic}: it leaves out "
            f"{missing or 'none'} and names {sorted(unknown) or 'none'} that are not there"
        )
