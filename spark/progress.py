"""How far a stream is: for each queue the offset to be read next, and what a micro-batch takes.

Spark keeps a progress in its checkpoint, for example {"orders": {"broker-a:0": 23}}. It never loses
a queue: one whose broker is away keeps its offset and continues when the broker is back.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ..client.cluster.route import MessageQueue
from ..client.errors import AerobeeError
from ..lake.rows.ranges import DataLossError, QueueRange
from .options import ReadOptions
from .plan import Bounds, check_place, offset_of, queues_of, split

log = logging.getLogger(__name__)

SAMPLED_MAX = 64  # queues whose messages are looked at for their size, for a micro-batch

Progress = dict[str, dict[str, int]]
Span = tuple[MessageQueue, int, int]  # from an offset up to another one
SizeAt = Callable[[MessageQueue, int], float]


def first(bounds: Bounds, options: ReadOptions, end: Progress | None = None) -> Progress:
    """The progress at which a new stream starts; ValueError if the options don't fit the topics.

    With the `end` of a first micro-batch that is done once more, no queue starts behind it: what
    starts at the latest offsets has ended there, too (`stream`).
    """
    queues = queues_of(bounds, options)
    check_place(options.starting, "starting", queues)
    found: Progress = {topic: {} for topic in queues}
    for queue in _all(queues):
        low, high = bounds.min_offset(queue), bounds.max_offset(queue)
        last = high
        if end is not None:
            last = min(high, end.get(queue.topic, {}).get(name_of(queue), high))
        offset = offset_of(options.starting, bounds, queue, low, last)
        found[queue.topic][name_of(queue)] = min(max(offset, 0), high)
    return found


def latest(bounds: Bounds, options: ReadOptions, start: Progress) -> Progress:
    """The present ends of all queues; a queue of `start` whose broker is away keeps its offset."""
    found = {topic: dict(queues) for topic, queues in start.items()}
    for queue in _all(queues_of(bounds, options)):
        high = bounds.max_offset(queue)
        queues = found.setdefault(queue.topic, {})
        # A broker that lost its store has smaller offsets; `ranges` reports that.
        queues[name_of(queue)] = high
    return found


def limited(start: Progress, end: Progress, lows: Progress, rows_max: int) -> Progress:
    """An end at or before `end` with at most `rows_max` messages, in proportion to the lags.

    A queue that is new, or begins anew, begins at `lows`. Every queue where messages wait gets at
    least one. With fewer rows than such queues, they get one each in turn: the sum of all offsets,
    which the rows of each round increase, says whose turn it is.
    """
    starts = {
        (topic, name): _start(start, lows, topic, name, end[topic][name])
        for topic in sorted(end)
        for name in sorted(end[topic])
    }
    waiting = {
        (topic, name): count
        for (topic, name), at in starts.items()
        if (count := end[topic][name] - at) > 0
    }
    total = sum(waiting.values())
    if total <= rows_max:
        return end
    found = {topic: dict(queues) for topic, queues in end.items()}
    more = rows_max - len(waiting)
    if more >= 0:
        shares = {
            queue: 1 + (count - 1) * more // (total - len(waiting))
            for queue, count in waiting.items()
        }
    else:
        ring = list(starts)
        turn = sum(starts.values()) % len(ring)
        in_turn = [queue for queue in ring[turn:] + ring[:turn] if queue in waiting]
        shares = dict.fromkeys(in_turn[:rows_max], 1)
    for topic, name in waiting:
        found[topic][name] = starts[topic, name] + shares.get((topic, name), 0)
    return found


def rows_between(start: Progress, end: Progress, lows: Progress) -> int:
    """The number of messages between two progresses."""
    return sum(
        max(0, stop - _start(start, lows, topic, name, stop))
        for topic, queues in end.items()
        for name, stop in queues.items()
    )


def lows_of(bounds: Bounds, start: Progress, end: Progress) -> Progress:
    """The first offsets of new queues, which are in `end` only, and of those that begin anew, which
    end before their start: they are read from their first message."""
    found: Progress = {}
    for queue in queues_in(end):
        begin = start.get(queue.topic, {}).get(name_of(queue))
        if begin is None or begin > end[queue.topic][name_of(queue)]:
            found.setdefault(queue.topic, {})[name_of(queue)] = bounds.min_offset(queue)
    return found


def spans(
    lows: Progress, start: Progress, end: Progress
) -> Iterator[tuple[MessageQueue, int, int]]:
    """The queues of a micro-batch with messages, and where each begins and ends."""
    for queue in queues_in(end):
        name, stop = name_of(queue), end[queue.topic][name_of(queue)]
        begin = start.get(queue.topic, {}).get(name)
        if begin is None:
            begin = lows[queue.topic][name]
        if begin != stop:
            yield queue, begin, stop


def ranges(
    bounds: Bounds, options: ReadOptions, start: Progress, end: Progress
) -> list[QueueRange]:
    """The tasks of a micro-batch; with `failOnDataLoss` DataLossError when messages are gone."""
    lows = lows_of(bounds, start, end)
    return logged(bounds, options, lows, spans(lows, start, end))


def logged(
    bounds: Bounds,
    options: ReadOptions,
    lows: Progress,
    wanted: Iterable[Span],
) -> list[QueueRange]:
    """The tasks for these queues and offsets of the log; DataLossError as `ranges`."""
    found = []
    for queue, begin, stop in wanted:
        whole = QueueRange(queue.topic, queue.broker_name, queue.queue_id, begin, max(begin, stop))
        low, high = bounds.min_offset(queue), bounds.max_offset(queue)
        if (begin < low or stop > high or stop < begin) and options.fail_on_data_loss:
            raise DataLossError(
                f"{whole} are to be read and the broker holds {low} to {high}: messages were "
                "deleted before they were read, or the store was replaced; set failOnDataLoss to "
                "false to go on with what is left"
            )
        if begin > stop:
            begin = lows[queue.topic][name_of(queue)]
        kept = replace(whole, start=max(begin, low), end=min(stop, high))
        if kept.end > kept.start:
            found.append(kept)
    return split(found, options)


def rows_of_bytes(
    start: Progress, end: Progress, lows: Progress, bytes_max: int, size_at: SizeAt
) -> int:
    """About as many messages as have `bytes_max` bytes, at least one, for `limited`.

    `size_at` gives the mean size of some messages from an offset on, in bytes. It is asked where
    the longest SAMPLED_MAX queues begin, and in the middle of what they then would give.
    """
    begins = {
        queue: _start(start, lows, queue.topic, name_of(queue), stop)
        for queue in queues_in(end)
        for stop in (end[queue.topic][name_of(queue)],)
    }
    counts = {
        queue: count
        for queue, begin in begins.items()
        if (count := end[queue.topic][name_of(queue)] - begin) > 0
    }
    total = sum(counts.values())
    if not total:
        return 1
    sampled = sorted(counts, key=lambda queue: -counts[queue])[:SAMPLED_MAX]
    sizes = {queue: size_at(queue, begins[queue]) for queue in sampled}

    def rows() -> int:
        weight = sum(counts[queue] for queue in sampled)
        mean = sum(counts[queue] * size for queue, size in sizes.items()) / weight
        return min(total, max(1, int(bytes_max / max(1.0, mean))))

    for queue in sampled:
        middle = begins[queue] + counts[queue] * rows() // total // 2
        if middle > begins[queue]:
            sizes[queue] = (sizes[queue] + size_at(queue, middle)) / 2
    return rows()


def commit(commit_one: Callable[[MessageQueue, int], object], end: Progress) -> None:
    """Commit an end at the brokers, for tools that show the lag of the group. What fails is logged:
    no row depends on it."""
    for queue in queues_in(end):
        try:
            commit_one(queue, end[queue.topic][name_of(queue)])
        except AerobeeError as wrong:
            name = name_of(queue)
            log.warning("the offset of %s of %s is not committed: %s", name, queue.topic, wrong)


def queues_in(progress: Progress) -> Iterator[MessageQueue]:
    """The queues of a progress, sorted."""
    for topic in sorted(progress):
        for name in sorted(progress[topic]):
            broker_name, _, queue_id = name.rpartition(":")
            yield MessageQueue(topic, broker_name, int(queue_id))


def name_of(queue: MessageQueue) -> str:
    """The name of a queue in a progress: "broker:queue id"."""
    return f"{queue.broker_name}:{queue.queue_id}"


def _all(queues: dict[str, list[MessageQueue]]) -> Iterable[MessageQueue]:
    return (queue for each in queues.values() for queue in each)


def _start(start: Progress, lows: Progress, topic: str, name: str, stop: int) -> int:
    found = start.get(topic, {}).get(name)
    return lows[topic][name] if found is None or found > stop else found
