"""Popping in order: one batch of a queue at a time, in consumerOrderInfo.json.

A group gets the next messages of a queue only when the batch before is acknowledged, or visible
again; then it gets the rest of that batch once more, with a count. Its offset moves with the
acknowledgements, so a crash repeats a batch and never skips one.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ...protocol.bodies.pop import ConsumerOrderInfoWrapper, OrderInfo
from ...store.files import json_file
from ..groups.groups import Groups
from ..runtime.persistent import PersistentTable
from ..topics.topics import Topics

UNUSED_MS_MAX = 24 * 3_600_000  # a batch without a request for this long is forgotten
SEPARATOR = "@"
NOT_OF_BATCH, OTHER_POP = -1, -2  # results of `ack` beside offsets

GroupQueueKey = tuple[str, str, int]  # topic, group, queue id


class PopOrders(PersistentTable):
    """The last batch of each queue and group."""

    def __init__(
        self, path: Path, topics: Topics, groups: Groups, now_ms: Callable[[], int]
    ) -> None:
        super().__init__(path, now_ms)
        self._topics = topics
        self._groups = groups
        self._batches: dict[GroupQueueKey, OrderInfo] = {}
        self._free: dict[
            GroupQueueKey, int
        ] = {}  # when a batch that blocks its queue no longer does

    def load(self) -> None:
        """Read the file; ValueError naming it when neither it nor its .bak can be read."""
        found = json_file.load(self.path, ConsumerOrderInfoWrapper.decode)
        for name, queues in (found.table if found is not None else {}).items():
            topic, separator, group = name.partition(SEPARATOR)
            if not separator:
                continue
            for queue_id, batch in queues.items():
                self._batches[topic, group, queue_id] = batch
                self._note_free((topic, group, queue_id), batch)

    def text(self, *, standard: bool = False) -> Iterator[bytes]:
        """The table as its file has it, in one piece."""
        yield self.to_body().encode(standard=standard)

    def to_body(self) -> ConsumerOrderInfoWrapper:
        """The table as consumerOrderInfo.json has it, without unused entries."""
        self._clean()
        table: dict[str, dict[int, OrderInfo]] = {}
        for (topic, group, queue_id), batch in self._batches.items():
            table.setdefault(topic + SEPARATOR + group, {})[queue_id] = batch
        return ConsumerOrderInfoWrapper(table)

    def is_blocked(self, key: GroupQueueKey, attempt_id: str | None, invisible_ms: int = 0) -> bool:
        """True if a batch of the queue is still being consumed.

        The same attempt as the one before, asking again, may have the batch once more. A batch that
        was popped without an invisible time takes that of the next pop that asks.
        """
        batch = self._batches.get(key)
        if batch is None or (batch.attempt_id is not None and batch.attempt_id == attempt_id):
            return False
        if not batch.invisible_time and invisible_ms:
            batch.invisible_time = invisible_ms
            self.changed = True
            self._note_free(key, batch)
        return self._visible_ms(batch) > self._now_ms()

    def popped(
        self,
        key: GroupQueueKey,
        offsets: Sequence[int],
        pop_ms: int,
        invisible_ms: int,
        attempt_id: str | None,
    ) -> dict[int, int]:
        """A batch goes out; how often each of its messages did before, where it did."""
        first, now_ms = offsets[0], self._now_ms()
        counts: dict[int, int] | None = None
        before = self._batches.get(key)
        if before is not None:
            had = before.consumed_counts or {}
            if before.attempt_id is not None and before.attempt_id == attempt_id:
                counts = had
            else:
                old = set(_absolute(before))
                counts = {each: had.get(each, 0) + 1 for each in offsets if each in old}
        batch = OrderInfo(
            pop_ms,
            invisible_ms,
            [first, *(offset - first for offset in offsets[1:])],
            consumed_counts=counts,
            last_consume_time=now_ms,
            attempt_id=attempt_id,
        )
        self._batches[key] = batch
        self._note_free(key, batch)
        self.changed = True
        return counts or {}

    def ack(self, key: GroupQueueKey, offset: int, pop_ms: int) -> int:
        """Note an acknowledgement; the offset that the group has come to, or a reason for none."""
        batch = self._batches.get(key)
        if batch is None:
            return offset + 1
        if batch.pop_time != pop_ms:
            return OTHER_POP
        offsets = _absolute(batch)
        if offset not in offsets:
            return NOT_OF_BATCH
        batch.acked |= 1 << offsets.index(offset)
        self.changed = True
        self._note_free(key, batch)
        left = [each for at, each in enumerate(offsets) if not batch.acked >> at & 1]
        return left[0] if left else offsets[-1] + 1

    def hide(self, key: GroupQueueKey, offset: int, pop_ms: int, visible_ms: int) -> bool:
        """Set when a message is visible again; False when the batch was popped again since."""
        batch = self._batches.get(key)
        if batch is None or batch.pop_time != pop_ms:
            return False
        batch.next_visible_times = (batch.next_visible_times or {}) | {offset: visible_ms}
        self.changed = True
        self._note_free(key, batch)
        return True

    def clear(self, key: GroupQueueKey) -> None:
        """Forget the batch of a queue: its offset was reset."""
        if self._batches.pop(key, None) is not None:
            self._free.pop(key, None)
            self.changed = True

    def freed(self, now_ms: int) -> list[GroupQueueKey]:
        """The queues whose batches have become visible again since the last call."""
        found = [key for key, free_ms in self._free.items() if free_ms <= now_ms]
        for key in found:
            del self._free[key]
        return found

    def _visible_ms(self, batch: OrderInfo) -> int:
        """The time at which the last unacknowledged message is visible again; 0 when all are
        acknowledged."""
        usual = batch.pop_time + (batch.invisible_time or 0)
        own = batch.next_visible_times or {}
        times = [
            own.get(offset, usual)
            for at, offset in enumerate(_absolute(batch))
            if not batch.acked >> at & 1
        ]
        return max(times, default=0)

    def _note_free(self, key: GroupQueueKey, batch: OrderInfo) -> None:
        visible_ms = self._visible_ms(batch)
        if visible_ms > 0:
            self._free[key] = visible_ms
        else:
            self._free.pop(key, None)

    def _clean(self) -> None:
        before_ms = self._now_ms() - UNUSED_MS_MAX
        for key, batch in list(self._batches.items()):
            topic, group, queue_id = key
            config = self._topics.get(topic)
            is_used = (
                config is not None
                and queue_id < config.read_queue_nums
                and self._groups.get(group) is not None
                and batch.last_consume_time >= before_ms
            )
            if not is_used:
                del self._batches[key]
                self._free.pop(key, None)


def _absolute(batch: OrderInfo) -> list[int]:
    if not batch.offsets:
        return []
    first, *distances = batch.offsets
    return [first, *(first + distance for distance in distances)]
