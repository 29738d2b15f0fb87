"""The offset at which a queue is pulled first: computePullFromWhere.

Once the group has an offset there, that one counts and nothing else does.
"""

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.headers.offsets import OffsetResponse, QueueAddress, SearchOffset
from ...protocol.names import RETRY_PREFIX
from ..base.responses import header_of
from ..base.start_from import FIRST, LAST, StartFrom
from ..cluster.cluster import Cluster
from .offsets import OffsetStore, ReadFrom


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
        if known >= 0:
            return known
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
        code = codes.SEARCH_OFFSET_BY_TIMESTAMP
        search = SearchOffset(queue.topic, queue.queue_id, start.ms)
        answer = await self._cluster.ask(address, code, search)
        return header_of(answer, OffsetResponse, code).offset
