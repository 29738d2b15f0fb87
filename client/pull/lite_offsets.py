"""Offsets of a lite pull consumer: commit and seek.

Polled messages count as consumed with the next commit; after a crash in between they come again. A
seek takes effect with the next pull; messages pulled before are dropped.
"""

from collections.abc import Iterable, Mapping

from ...protocol.bodies.body import MessageQueue
from ..cluster import queue_bounds
from ..errors import ClientError
from ..group.offsets import ReadFrom, persist_surely
from ..group.process_queue import name_of
from .assigned import UNKNOWN
from .lite_member import LiteMember


class LiteOffsets(LiteMember):
    """Commits and seeks; the consumer itself adds its life, its topics and its messages."""

    async def commit(
        self,
        offsets: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None = None,
        *,
        persist: bool = True,
    ) -> None:
        """Commit the polled offsets of all queues or of some, or the given offsets.

        With `persist` the brokers have them when this returns, else within 5 s. Queues that are not
        assigned here are skipped.
        """
        service = self._open()
        if isinstance(offsets, Mapping):
            for queue, offset in offsets.items():
                if offset < 0:
                    raise ClientError(f"the offset of {name_of(queue)} is {offset}; give 0 or more")
                if service.queues.state(queue) is not None:
                    service.store.update(queue, offset, increase_only=False)
            queues = list(offsets)
        else:
            queues = service.queues.queues if offsets is None else list(offsets)
            self._note_consumed(queues)
        if persist:
            mine = [queue for queue in queues if service.queues.state(queue) is not None]
            await persist_surely(service.store, mine)

    async def committed(self, queue: MessageQueue) -> int:
        """The group's offset in a queue, -1 when there is none."""
        return await self._open().store.read(queue, ReadFrom.MEMORY_THEN_STORE)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset` of a queue; ClientError when that is not in it, or it is not ours."""
        service = self._open()
        state = service.queues.state(queue)
        if state is None:
            raise ClientError(
                f"{name_of(queue)} is not assigned here, perhaps not yet or no more; assigned are "
                f"{len(service.queues.queues)} queues, see `assignment`"
            )
        least = await queue_bounds.min_offset(service.cluster, queue)
        most = await queue_bounds.max_offset(service.cluster, queue)
        if not least <= offset <= most:
            raise ClientError(
                f"Seek offset illegal: {offset} is not in {name_of(queue)}, which has {least} to "
                f"{most}"
            )
        state.seek_offset = offset
        service.queues.renew(state)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message of a queue."""
        await self.seek(queue, await queue_bounds.min_offset(self._open().cluster, queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on at the next message that a queue gets."""
        await self.seek(queue, await queue_bounds.max_offset(self._open().cluster, queue))

    async def seek_to_time(self, queue: MessageQueue, ms: int) -> None:
        """Go on at the first message that was stored at `ms` (since the epoch) or later."""
        await self.seek(queue, await self.offset_for_time(queue, ms))

    async def offset_for_time(self, queue: MessageQueue, ms: int) -> int:
        """The offset of the first message stored at `ms` (since the epoch) or later."""
        return await queue_bounds.offset_at(self._open().cluster, queue, ms)

    def _note_consumed(self, queues: Iterable[MessageQueue]) -> None:
        service = self._open()
        for queue in queues:
            state = service.queues.state(queue)
            if state is not None and state.consume_offset != UNKNOWN:
                service.store.update(queue, state.consume_offset, increase_only=False)
