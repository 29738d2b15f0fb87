"""The copy of one topic: its queues at the target, and the copies of all of them."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping

from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.topic import PERM_READ, PERM_WRITE
from ..base.start_from import StartFrom
from ..errors import AerobeeError, ClientError, NoRouteError
from .queue_copy import QueueCopy
from .side import Side
from .source import Source

log = logging.getLogger(__name__)

ROUTE_TRIES = 50  # until a name server has a topic that was just made
ROUTE_PAUSE_SECONDS = 0.2
COPIES_AT_ONCE = 32  # requests to the target, of all topics


class TopicCopy:
    """Copies the queues of `topic`, the first to the first of the target, the second to the second,
    in the order of broker names and queue ids. So each queue keeps its order, and queues of several
    brokers can be on one broker. A queue without any copy begins at `start`. `target` is the
    topic's name at the target. `waiting` counts the messages of a topic that can't be begun.
    """

    def __init__(
        self, sides: tuple[Source, Side], topic: str, target: str, cluster: str, start: StartFrom
    ) -> None:
        self.topic, self.target = topic, target
        self.waiting = 0
        self._sides = sides
        self._from, self._to = sides
        self._cluster = cluster
        self._start = start
        self.queues: dict[MessageQueue, QueueCopy] = {}  # by the source's queue

    async def find_ends(self) -> None:
        """Find the queues and their ends; the topic is made at the target if it isn't there.

        ClientError when the target has fewer queues than the source.
        """
        sources = await self._from.queues(self.topic)
        ends = await self._from.ends(sources)
        if sources != list(self.queues):
            try:
                await self._pair(sources)
            except AerobeeError:
                self.waiting = await self._count(ends)
                raise
        self.waiting = 0
        for queue, end in ends.items():
            self.queues[queue].end = end

    async def catch_up(self, room: asyncio.Semaphore) -> None:
        """Copy all queues up to the ends that `find_ends` found."""

        async def one(queue: MessageQueue, copy: QueueCopy) -> None:
            async with room:
                await copy.catch_up(lambda is_new: self._first_offset(queue, is_new))

        behind = [item for item in self.queues.items() if item[1].is_behind]
        await asyncio.gather(*(one(*item) for item in behind))

    # --- inside ---------------------------------------------------------------------------------

    def _first_offset(self, queue: MessageQueue, is_new: bool) -> Awaitable[int]:
        return self._from.first_offset(queue, self._start, is_new=is_new)

    async def _count(self, ends: Mapping[MessageQueue, int]) -> int:
        """The number of messages to be copied from queues that have no copy yet."""
        found = 0
        for queue, end in ends.items():
            if queue not in self.queues:
                found += max(0, end - await self._first_offset(queue, True))
        return found

    async def _pair(self, sources: list[MessageQueue]) -> None:
        try:
            targets = await self._to.queues(self.target)
        except NoRouteError:
            targets = await self._make(len(sources))
        if len(targets) < len(sources):
            raise ClientError(
                f"topic {self.target} has {len(sources)} queues at the source and {len(targets)} "
                "at the target, and a queue is copied to one of its own so that its order stays; "
                f"give the target more: aerobee topics create {self.target} --queues N"
            )
        for source, target in zip(sources, targets, strict=False):
            known = self.queues.get(source)
            if known is None or known.target != target:
                self.queues[source] = QueueCopy(self._sides, (source, target), self._cluster)
        self.queues = {source: self.queues[source] for source in sources}

    async def _make(self, count: int) -> list[MessageQueue]:
        """Make the topic at the target, with at least this number of queues."""
        config = await self._from.settings(self.topic)
        masters = await self._to.masters()
        each = -(-count // len(masters))
        await self._to.create_topic(
            self.target,
            each,
            perm=config.perm | PERM_READ | PERM_WRITE,
            order=config.order,
            attributes=config.attributes,
        )
        log.info("made topic %s with %d queues on %d brokers", self.target, each, len(masters))
        found: list[MessageQueue] = []
        for _ in range(ROUTE_TRIES):
            try:
                found = await self._to.queues(self.target)
            except NoRouteError:
                found = []
            if len(found) >= count:
                break
            await asyncio.sleep(ROUTE_PAUSE_SECONDS)
        return found
