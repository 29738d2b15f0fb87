"""How far a group is: the smallest open offset of each queue, and the broker's record of it.

An offset is open from the moment its message is held until it is settled. What is reported is
always the smallest open one, or the one after the last message when none is open: a crash repeats
messages, it never skips one.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable

from ..protocol import codes
from ..protocol.bodies.body import MessageQueue
from ..protocol.headers.offsets import OffsetAnswer, QueryConsumerOffset, UpdateConsumerOffset
from .answers import header_of
from .cluster import Cluster
from .errors import BrokerError, ClientError

log = logging.getLogger(__name__)

QUERY_SECONDS = 5.0  # for a group's offset, as Java's client waits


class OpenOffsets:
    """The open offsets of one queue. Offsets are opened in ascending order, settled in any."""

    __slots__ = ("_next", "_open", "_settled")

    def __init__(self) -> None:
        self._open: deque[int] = deque()
        self._settled: set[int] = set()  # settled behind one that is still open
        self._next = -1

    def __len__(self) -> int:
        return len(self._open) - len(self._settled)

    def open(self, offset: int) -> bool:
        """The message at `offset` is held now; False when it was held before."""
        if offset < self._next:
            return False
        self._open.append(offset)
        self._next = offset + 1
        return True

    def settle(self, offset: int) -> None:
        """The message at `offset` needs no more work."""
        waiting, settled = self._open, self._settled
        if waiting and waiting[0] == offset:
            waiting.popleft()
            while settled and waiting[0] in settled:
                settled.remove(waiting.popleft())
        else:
            settled.add(offset)

    @property
    def committed(self) -> int:
        """Everything below is settled; -1 before the first message."""
        return self._open[0] if self._open else self._next

    @property
    def span(self) -> int:
        """From the smallest open offset to the largest held one."""
        return self._open[-1] - self._open[0] if self._open else 0


class GroupOffsets:
    """What a group has committed, queue by queue, in memory and with the brokers.

    Memory is written as messages are settled; `persist` carries it to the brokers.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._memory: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """The group is at `offset` now. With `increase_only` a smaller one than before is not."""
        if not increase_only or offset > self._memory.get(queue, -1):
            self._memory[queue] = offset

    def read(self, queue: MessageQueue) -> int:
        """The offset in memory, -1 when there is none."""
        return self._memory.get(queue, -1)

    async def load(self, queue: MessageQueue) -> int | None:
        """The offset that the broker has, into memory; None when the group never was there."""
        address = self._cluster.address_of(queue.broker_name, only=False)
        # Java's client leaves out setZeroIfNotFound, so the broker may say 0 for a young queue.
        header = QueryConsumerOffset(self._group, queue.topic, queue.queue_id)
        answer = await self._cluster.request(
            address, codes.QUERY_CONSUMER_OFFSET, header, timeout_s=QUERY_SECONDS
        )
        if answer.code == codes.QUERY_NOT_FOUND:
            return None
        if answer.code != codes.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address, "tell the group's offset")
        offset = header_of(answer, OffsetAnswer, codes.QUERY_CONSUMER_OFFSET).offset
        self.update(queue, offset, increase_only=False)
        return offset

    async def persist(self, queues: Iterable[MessageQueue], *, sure: bool = False) -> None:
        """Carry the offsets of these queues to the brokers.

        With `sure` each broker's answer is awaited; a failure is logged, and the next call carries
        the offset again.
        """
        work = [self._persist(queue, sure) for queue in list(queues)]
        await asyncio.gather(*work)

    def forget(self, queue: MessageQueue) -> None:
        """The queue belongs to somebody else now."""
        self._memory.pop(queue, None)

    async def _persist(self, queue: MessageQueue, sure: bool) -> None:
        offset = self._memory.get(queue, -1)
        if offset < 0:
            return
        header = UpdateConsumerOffset(self._group, queue.topic, queue.queue_id, offset)
        try:
            address = self._cluster.address_of(queue.broker_name, only=False)
            if sure:
                await self._cluster.ask(address, codes.UPDATE_CONSUMER_OFFSET, header)
            else:
                await self._cluster.oneway(address, codes.UPDATE_CONSUMER_OFFSET, header)
        except (ClientError, BrokerError) as wrong:
            log.warning(
                "offset %d of group %s in queue %d of %s is not persisted yet: %s",
                offset,
                self._group,
                queue.queue_id,
                queue.topic,
                wrong,
            )
