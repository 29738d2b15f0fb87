"""A queue assigned to this consumer: its unsettled messages and its limits.

Messages enter in ascending offset when pulled and leave when settled, in any order. The three
limits are those of Java's client: number of messages, bytes, and the distance between the smallest
and the largest offset. Times are seconds of the loop's clock, except those shown to brokers.
"""

import asyncio
from dataclasses import dataclass, replace

from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.running import ProcessQueueInfo
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.message.record import Record
from ...protocol.names import RETRY_PREFIX, without_namespace
from ..base.arguments import check_count
from .consume_stats import TopicStats
from .open_offsets import OpenOffsets

MESSAGES_MAX = 1_000  # pullThresholdForQueue
BYTES_MAX = 100 << 20  # pullThresholdSizeForQueue, bytes of bodies
SPAN_MAX = 2_000  # consumeConcurrentlyMaxSpan, offsets
PULL_IDLE_SECONDS = 120.0  # rocketmq.client.pull.pullMaxIdleTime: then the queue is replaced
LOCK_SECONDS = 30.0  # rocketmq.client.rebalance.lockMaxLiveTime: then the lock counts as lost


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a queue. At one of them pulling stops until the application has settled messages.

    `messages_max` is a number of unsettled messages of one queue (1,000 by default), `bytes_max`
    the bytes of their bodies (100 MiB), `span_max` the distance in offsets between the first and
    the last of them (2,000). `topic_messages_max` and `topic_bytes_max` (pullThresholdForTopic,
    pullThresholdSizeForTopic) are for all queues of a topic together and replace the first two
    where they are given.
    """

    messages_max: int = MESSAGES_MAX
    bytes_max: int = BYTES_MAX
    span_max: int = SPAN_MAX
    topic_messages_max: int | None = None
    topic_bytes_max: int | None = None

    def __post_init__(self) -> None:
        for name in ("messages_max", "bytes_max", "span_max"):
            check_count(name, getattr(self, name), 0)
        for name in ("topic_messages_max", "topic_bytes_max"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 0)

    def shared_by(self, queues: int) -> "Limits":
        """The limits of each of `queues` queues: at least one message and one MiB."""
        found = self
        if queues and self.topic_messages_max is not None:
            found = replace(found, messages_max=max(1, self.topic_messages_max // queues))
        if queues and self.topic_bytes_max is not None:
            found = replace(found, bytes_max=max(1 << 20, self.topic_bytes_max // queues))
        return found


class UnderWay:
    """Counts the messages of an ordered queue that the application works on. It stays with the
    queue when its offset is reset and another `ProcessQueue` begins."""

    __slots__ = ("_none", "count")

    def __init__(self) -> None:
        self.count = 0
        self._none = asyncio.Event()
        self._none.set()

    def begin(self, count: int) -> None:
        """Count messages that the application got."""
        self.count += count
        if self.count:
            self._none.clear()

    def end(self, count: int) -> None:
        """Count messages that the application settled or returned."""
        self.count -= count
        if not self.count:
            self._none.set()

    async def none(self) -> None:
        """Wait until the application works on no message."""
        await self._none.wait()


class ProcessQueue:
    """An assigned queue. `next_offset` is the next to pull; `dropped` means it is no longer
    assigned.

    `suggested_broker_id` is the broker to pull from next, as the last response suggests. `topic` is
    the topic without its `namespace`, None for a retry topic, whose messages name their own topic.
    `pull_fields` caches the header fields of pulls with the subscription they belong to.
    `locked` means that this consumer owned the queue's lock at `last_lock`.
    """

    __slots__ = (
        "_has_room",
        "_idle",
        "_open",
        "_sizes",
        "bytes",
        "dropped",
        "last_lock",
        "last_pull",
        "last_pull_ms",
        "last_settle_ms",
        "last_store_ms",
        "limits",
        "locked",
        "namespace",
        "next_offset",
        "pull_fields",
        "queue",
        "stats",
        "suggested_broker_id",
        "topic",
        "under_way",
    )

    def __init__(
        self,
        queue: MessageQueue,
        next_offset: int,
        limits: Limits,
        stats: TopicStats | None = None,
        namespace: str = "",
        under_way: UnderWay | None = None,
    ) -> None:
        self.queue = queue
        self.namespace = namespace
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        self.topic = None if is_retry else without_namespace(queue.topic, namespace)
        self.next_offset = next_offset
        self.limits = limits
        self.stats = stats or TopicStats()
        self.dropped = False
        self.suggested_broker_id = 0
        self.bytes = 0
        self.pull_fields: tuple[SubscriptionData, dict[str, str]] | None = None
        self.under_way = under_way or UnderWay()
        self.locked = False
        self.last_lock = 0.0
        self.last_pull = 0.0
        self.last_pull_ms = 0
        self.last_settle_ms = 0
        self.last_store_ms = 0  # when the last pulled message was stored; 0 before the first one
        self._open = OpenOffsets()
        self._sizes: dict[int, int] = {}  # of the open messages, by offset
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._idle: asyncio.Event | None = None

    def hold(self, offset: int, size: int) -> bool:
        """Add a pulled message of `size` bytes; False if it is open or settled already."""
        if not self._open.open(offset):
            return False
        self._sizes[offset] = size
        self.bytes += size
        return True

    def hold_all(self, records: list[Record]) -> list[Record]:
        """Add pulled messages, in this order; returns the records that were neither open nor
        settled before."""
        if records:
            self.last_store_ms = records[-1].store_ms
        offsets = [record.queue_offset for record in records]
        if self._open.open_all(offsets):  # as nearly always
            lengths = [len(record.body) for record in records]
            self._sizes.update(zip(offsets, lengths, strict=True))
            self.bytes += sum(lengths)
            return records
        return [each for each in records if self.hold(each.queue_offset, len(each.body))]

    def restart(self) -> None:
        """Forget all messages: earlier offsets come again, as other messages."""
        self._open = OpenOffsets()
        self._sizes = {}
        self.bytes = 0
        self._has_fewer()

    def settle(self, offset: int) -> int:
        """Settle a message; returns the offset to commit, -1 if nothing changed.

        Nothing happens if the queue was dropped or the message is not open.
        """
        size = None if self.dropped else self._sizes.pop(offset, None)
        if size is None:
            return -1
        self.bytes -= size
        self._open.settle(offset)
        return self._has_fewer()

    def settle_all(self, offsets: list[int]) -> tuple[int, int]:
        """Settle several messages; also returns how many of them were open."""
        if self.dropped:
            return 0, -1
        sizes = self._sizes
        found = [sizes.pop(offset, -1) for offset in offsets]
        if -1 in found:
            offsets = [offset for offset, size in zip(offsets, found, strict=True) if size >= 0]
            found = [size for size in found if size >= 0]
        if not found:
            return 0, -1
        self.bytes -= sum(found)
        self._open.settle_all(offsets)
        return len(found), self._has_fewer()

    def _has_fewer(self) -> int:
        """Wake the tasks that wait for fewer open messages; returns the offset to commit."""
        if not self._has_room.is_set() and not self.is_full:
            self._has_room.set()
        if self._idle is not None and not self._sizes:
            self._idle.set()
        return self._open.committed

    @property
    def is_empty(self) -> bool:
        """True if each message that was pulled is settled."""
        return not self._sizes

    @property
    def is_full(self) -> bool:
        """True if a limit is exceeded: pulls must wait until messages are settled."""
        limits = self.limits
        return (
            len(self._sizes) > limits.messages_max
            or self.bytes > limits.bytes_max
            or self._open.span > limits.span_max
        )

    def has_room_for(self, count: int, size: int) -> bool:
        """True if no limit is exceeded by `count` more messages of `size` bytes together.

        `next_offset` must already be the offset behind them.
        """
        limits = self.limits
        return (
            len(self._sizes) + count <= limits.messages_max
            and self.bytes + size <= limits.bytes_max
            and self.next_offset - self._open.committed <= limits.span_max
        )

    @property
    def count(self) -> int:
        """The number of open messages."""
        return len(self._sizes)

    @property
    def span(self) -> int:
        """The distance from the smallest to the largest open offset."""
        return self._open.span

    @property
    def load(self) -> str:
        """The open messages as text for logs."""
        return (
            f"{len(self._sizes)} messages and {self.bytes} bytes open from offset "
            f"{min(self._sizes, default=0)} to {max(self._sizes, default=0)}"
        )

    def is_locked(self, now: float) -> bool:
        """True if this consumer owned the broker's lock at most LOCK_SECONDS ago."""
        return self.locked and now - self.last_lock <= LOCK_SECONDS

    def is_pull_expired(self, now: float) -> bool:
        """True if the last pull was more than PULL_IDLE_SECONDS ago."""
        return now - self.last_pull > PULL_IDLE_SECONDS

    def limit(self, limits: Limits) -> None:
        """Change the limits."""
        self.limits = limits
        if not self.is_full:
            self._has_room.set()

    async def room(self) -> None:
        """Wait until no limit is reached."""
        if self.is_full and not self.dropped:
            self._has_room.clear()
            await self._has_room.wait()

    async def idle(self) -> None:
        """Wait until nothing is open, or the queue is dropped."""
        if self._sizes and not self.dropped:
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()

    def drop(self) -> None:
        """Mark the queue as not assigned any more; its open messages are ignored from now on."""
        self.dropped = True
        self._has_room.set()
        if self._idle is not None:
            self._idle.set()

    def info(self, commit_offset: int) -> ProcessQueueInfo:
        """The queue's state, as brokers ask for it."""
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=min(self._sizes, default=0),
            cached_msg_max_offset=max(self._sizes, default=0),
            cached_msg_count=len(self._sizes),
            cached_msg_size_in_mi_b=self.bytes >> 20,
            locked=self.locked,
            droped=self.dropped,
            last_pull_timestamp=self.last_pull_ms,
            last_consume_timestamp=self.last_settle_ms,
        )


def name_of(queue: MessageQueue) -> str:
    """A queue's name in logs and errors."""
    return f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
