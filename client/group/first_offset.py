"""The offset at which a queue is pulled first (computePullFromWhere), and after an offset that is
not in it.

Once the group has an offset there, that one counts and nothing else does, until the queue begins
anew: a topic that is deleted and made again has queues of the same names.
"""

import logging

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.headers.offsets import OffsetResponse, QueueAddress, SearchOffset
from ...protocol.names import RETRY_PREFIX
from ..base.responses import header_of
from ..base.start_from import FIRST, LAST, StartFrom
from ..cluster.cluster import Cluster
from .offsets import OffsetStore, ReadFrom
from .process_queue import ProcessQueue, name_of

log = logging.getLogger(__name__)


class FirstOffset:
    """Computes it for the queues of one group; `where` is how the group's own offset is read."""

    def __init__(
        self,
        cluster: Cluster,
        store: OffsetStore,
        start: StartFrom,
        where: ReadFrom = ReadFrom.STORE,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._start = start
        self._where = where

    async def __call__(self, queue: MessageQueue) -> int:
        """The group's committed offset, else the configured start; retry topics start at the oldest
        message.

        Raises the errors of the requests; the queue is then not assigned in this round.
        """
        known = await self._store.read(queue, self._where)
        return known if known >= 0 else await self._of_new(queue)

    async def after(
        self, process_queue: ProcessQueue, offset: int, next_offset: int, end: int
    ) -> int:
        """The offset to go on from when `offset` is not in the queue. The reason is logged.

        `end` is the queue's next offset, `next_offset` the broker's suggestion, which is taken for
        an offset before the queue's first one. A queue that ends before `offset` was made again, or
        has lost its end, for example with a master whose slave was behind. Then reading goes on
        with the messages stored since the last one pulled; if none was pulled, at `start`. Raises
        the errors of the requests.
        """
        queue, last_ms = process_queue.queue, process_queue.last_store_ms
        if offset <= end:
            log.warning(
                "going on at offset %d of %s instead of %d: the messages before it were deleted, "
                "or an administrator has reset it",
                next_offset,
                name_of(queue),
                offset,
            )
            return next_offset
        if last_ms:
            found = await self._at(queue, last_ms)
        elif self._start.where == LAST or queue.topic.startswith(RETRY_PREFIX):
            found = next_offset
        else:
            found = await self._of_new(queue)
        log.warning(
            "going on at offset %d of %s instead of %d: it ends at %d, so it was made again, or "
            "has lost its last messages",
            found,
            name_of(queue),
            offset,
            end,
        )
        return found

    async def _at(self, queue: MessageQueue, ms: int) -> int:
        """The offset of the first message stored at `ms` (since the epoch) or later."""
        code, search = (
            codes.SEARCH_OFFSET_BY_TIMESTAMP,
            SearchOffset(queue.topic, queue.queue_id, ms),
        )
        answer = await self._cluster.ask(self._cluster.address_for(queue), code, search)
        return header_of(answer, OffsetResponse, code).offset

    async def _of_new(self, queue: MessageQueue) -> int:
        start = self._start
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if start.where == FIRST or (is_retry and start.where == LAST):
            return 0  # the broker corrects it when the oldest message has another offset
        address = self._cluster.address_for(queue)
        if start.where == LAST or is_retry:
            code, header = codes.GET_MAX_OFFSET, QueueAddress(queue.topic, queue.queue_id)
            end = header_of(await self._cluster.ask(address, code, header), OffsetResponse, code)
            # The broker says 0 for a young queue once it has a message: the first may have come
            # between the two requests, and must not be skipped.
            known = await self._store.read(queue, self._where)
            return known if known >= 0 else end.offset
        return await self._at(queue, start.ms)
