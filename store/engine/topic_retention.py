"""Retention of single topics: the least offsets of their queues, and the part of the log they need.

All topics are in one log, so a rule takes effect in two ways. A shorter retention moves the least
offset of a queue; room on the disk comes back with whole files, once no queue needs one. A longer
one keeps every file that has a message of the topic, with what other topics have in it.
"""

from collections.abc import Iterator

from ...protocol.message.record import store_ms_of
from ..base.retention import TopicRule
from ..queues.consume_queue import ConsumeQueue
from .state import StoreState

NO_PLACE = 1 << 62  # behind every log
ENTRIES_AT_ONCE = 20_000  # whose sizes are added up before others get their turn


class TopicRetention:
    """The rules of topics (`StoreState.topic_rules`), applied to the queues of one store."""

    def __init__(self, state: StoreState) -> None:
        self._state = state
        # Of each queue with a limit in bytes: offsets [low, high), and the bytes of their messages.
        self._sums: dict[tuple[str, int], tuple[int, int, int]] = {}

    def expire(self, now_ms: int) -> Iterator[None]:
        """Move the least offset of each queue whose topic has a rule, in short steps."""
        state = self._state
        ruled = self._ruled()
        self._sums = {key: self._sums[key] for key in self._sums.keys() & ruled.keys()}
        for key, (queue, rule) in ruled.items():
            if rule.keep_ms is not None:
                self._move(queue, self._first_since(queue, now_ms - rule.keep_ms))
            yield
            if rule.keep_bytes is not None:
                for _ in self._add_up(key, queue, rule.keep_bytes):
                    yield
                if state.queues.simple.get(key) is queue:
                    self._move(queue, self._sums[key][0])

    def needed(self) -> tuple[int, int]:
        """The first offset of the log that a topic with a retention time of its own needs, and the
        first that any topic needs; `NO_PLACE` if none does."""
        ruled = self._ruled()
        own = any_topic = NO_PLACE
        for key, queue in self._state.queues.simple.items():
            if queue.min_offset >= queue.next:
                continue
            place = queue.entry(max(queue.min_offset, queue.first_offset))[0]
            any_topic = min(any_topic, place)
            if key in ruled and ruled[key][1].keep_ms is not None:
                own = min(own, place)
        if self._state.queues.batch:  # they have no rules; their messages stay as long as the files
            any_topic = 0
        return own, any_topic

    def _move(self, queue: ConsumeQueue, offset: int) -> None:
        """Move the least offset of a queue forward, at most to where a group holds it."""
        hold = self._state.hold(queue.topic, queue.queue_id)
        if hold is not None:
            offset = min(offset, hold.offset)
        queue.min_offset = max(queue.min_offset, offset)

    def _ruled(self) -> dict[tuple[str, int], tuple[ConsumeQueue, TopicRule]]:
        rules = self._state.topic_rules
        if not rules:
            return {}
        return {
            key: (queue, rules[key[0]])
            for key, queue in self._state.queues.simple.items()
            if key[0] in rules
        }

    def _first_since(self, queue: ConsumeQueue, moment_ms: int) -> int:
        """The offset of the first message that was stored at `moment_ms` or later.

        Few expire between two rounds, so the search begins near the least offset.
        """
        low = max(queue.min_offset, queue.first_offset)
        end, step = queue.next, 1
        while low < end and self._is_older(queue, low, moment_ms):
            high = min(low + step, end)
            if high == end or not self._is_older(queue, high, moment_ms):
                low += 1
                while low < high:
                    middle = (low + high) // 2
                    if self._is_older(queue, middle, moment_ms):
                        low = middle + 1
                    else:
                        high = middle
                return low
            low, step = high, 2 * step
        return low

    def _is_older(self, queue: ConsumeQueue, offset: int, moment_ms: int) -> bool:
        place = queue.entry(offset)[0]
        if place < self._state.log.start:
            return True
        record = self._state.log.record(place, self._state.readable_end)
        return record is not None and store_ms_of(record) < moment_ms

    def _add_up(self, key: tuple[str, int], queue: ConsumeQueue, most: int) -> Iterator[None]:
        """Bring the sum of a queue up to its end, and its beginning to where no more than `most`
        bytes follow; the newest message stays."""
        low, high, total = self._sums.get(key, (0, 0, 0))
        if high > queue.next:  # a new master has cut the log
            low = high = total = 0
        if high <= queue.min_offset:
            low = high = queue.min_offset
            total = 0
        end = queue.next
        while high < end:
            count = min(ENTRIES_AT_ONCE, end - high)
            total += sum(size for _, size, _ in queue.entries(high, count, end))
            high += count
            self._sums[key] = (low, high, total)
            yield
        while low < high - 1 and (total > most or low < queue.min_offset):
            count = min(ENTRIES_AT_ONCE, high - 1 - low)
            for _, size, _ in queue.entries(low, count, end):
                if total <= most and low >= queue.min_offset:
                    break
                total -= size
                low += 1
            self._sums[key] = (low, high, total)
            yield
        self._sums[key] = (low, high, total)
