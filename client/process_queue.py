"""One queue while this consumer holds it: what was pulled and not settled yet, and its limits.

Messages enter in ascending offset when they are pulled and leave when they are settled, in any
order. The three limits are the Java client's: how many messages, how many bytes, and how far apart
the smallest and the largest offset may be.
"""

import asyncio
from dataclasses import dataclass

from ..protocol.bodies.body import MessageQueue
from ..protocol.bodies.running import ProcessQueueInfo
from .offsets import OpenOffsets

MESSAGES_MAX = 1_000  # pullThresholdForQueue
BYTES_MAX = 100 << 20  # pullThresholdSizeForQueue, bytes of bodies
SPAN_MAX = 2_000  # consumeConcurrentlyMaxSpan, offsets


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop pulling from a queue."""

    messages_max: int = MESSAGES_MAX
    bytes_max: int = BYTES_MAX
    span_max: int = SPAN_MAX


class ProcessQueue:
    """A held queue. `next_offset` is the one to pull next, `dropped` that it is no longer ours.

    `suggested_broker_id` is the one the broker asked us to pull from next.
    """

    __slots__ = (
        "_has_room",
        "_open",
        "_sizes",
        "bytes",
        "dropped",
        "last_pull_ms",
        "last_settle_ms",
        "limits",
        "next_offset",
        "queue",
        "suggested_broker_id",
    )

    def __init__(self, queue: MessageQueue, next_offset: int, limits: Limits) -> None:
        self.queue = queue
        self.next_offset = next_offset
        self.limits = limits
        self.dropped = False
        self.suggested_broker_id = 0
        self.bytes = 0
        self.last_pull_ms = 0
        self.last_settle_ms = 0
        self._open = OpenOffsets()
        self._sizes: dict[int, int] = {}  # of the open messages, by offset
        self._has_room = asyncio.Event()
        self._has_room.set()

    def hold(self, offset: int, size: int) -> bool:
        """A message of `size` bytes was pulled; False when it is held or settled already."""
        if not self._open.open(offset):
            return False
        self._sizes[offset] = size
        self.bytes += size
        return True

    def settle(self, offset: int) -> int:
        """The message needs no more work; gives the offset that may be committed, -1 for none.

        Nothing happens when the queue was dropped or the message is not open.
        """
        size = self._sizes.pop(offset, None)
        if size is None or self.dropped:
            return -1
        self.bytes -= size
        self._open.settle(offset)
        if not self._has_room.is_set() and not self.is_full:
            self._has_room.set()
        return self._open.committed

    @property
    def is_empty(self) -> bool:
        """Nothing is open."""
        return not self._sizes

    @property
    def is_full(self) -> bool:
        """A limit is reached: settle before pulling on."""
        limits = self.limits
        return (
            len(self._sizes) > limits.messages_max
            or self.bytes > limits.bytes_max
            or self._open.span > limits.span_max
        )

    @property
    def load(self) -> str:
        """What is open, in words."""
        return f"{len(self._sizes)} messages and {self.bytes} bytes open over {self._open.span}"

    async def room(self) -> None:
        """Wait until no limit is reached."""
        if self.is_full:
            self._has_room.clear()
            await self._has_room.wait()

    def drop(self) -> None:
        """The queue is no longer ours; what is open counts for nothing here."""
        self.dropped = True
        self._has_room.set()

    def info(self, commit_offset: int) -> ProcessQueueInfo:
        """What a broker may be told about it."""
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=min(self._sizes, default=0),
            cached_msg_max_offset=max(self._sizes, default=0),
            cached_msg_count=len(self._sizes),
            cached_msg_size_in_mi_b=self.bytes >> 20,
            droped=self.dropped,
            last_pull_timestamp=self.last_pull_ms,
            last_consume_timestamp=self.last_settle_ms,
        )
