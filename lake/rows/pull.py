"""Pulls a range of a queue, in chunks large enough to be worth decoding.

Waiting for each answer would cost more than the rest of a read. So a chunk begins with one pull,
which shows how much this broker gives at once (RocketMQ's 32 messages, ours a MiB), and the rest of
it is cut into slots of that size, several of which are pulled at the same time. They are pulled on
another thread, the next chunk while this one is worked on. What is held at once is two chunks, so
the memory of a task doesn't depend on how long its range is.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from ...client.base.loop_thread import LoopThread
from ...client.cluster.route import MessageQueue
from ...client.errors import AerobeeError
from ...client.pull.reader import BULK_MESSAGES_MAX, Pulled
from ...protocol import codes
from ...store.log.chunk import Chunk
from .ranges import DataLossError, QueueRange

log = logging.getLogger(__name__)

PIECE_MESSAGES_MAX = 8192  # Spark's own Arrow batches have 10,000 rows
PIECE_BYTES_ENOUGH = 4 << 20  # no slot is begun after it
HOLES_OFFSETS_MAX = 1 << 20  # passed for a chunk, when messages are left out
PULLS_UNDER_WAY_MAX = 16  # of one task


class Puller(Protocol):
    """The part of `client.pull.reader.Reader` that pulling uses."""

    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def queues(self, topic: str) -> list[MessageQueue]: ...
    async def pull(
        self, queue: MessageQueue, offset: int, max_messages: int = 32, *, bulk: bool = False
    ) -> Pulled: ...


@dataclass(frozen=True, slots=True)
class Pulling:
    """Settings of the pulls of a range.

    `messages_per_pull` is what one pull asks for, None: as much as the broker gives.
    `has_holes`: the broker leaves messages out, so how many a pull brings says nothing of offsets.
    A broker that doesn't answer is asked `retries` times more, `retry_ms` apart.
    """

    messages_per_pull: int | None = None
    fail_on_data_loss: bool = True
    has_holes: bool = False
    retries: int = 3
    retry_ms: int = 10


def pull_chunks(
    puller: Puller, wanted: QueueRange, how: Pulling, thread: LoopThread | None = None
) -> Iterator[Chunk]:
    """The chunks of a range, one after the other and without a gap.

    With `thread` the puller is open on that loop, and stays so; without, this opens and closes it.
    DataLossError when the broker has deleted a part of the range, unless that is not to fail: then
    what is left is read. Raises what the client raises.
    """
    if thread is not None:
        yield from _chunks(_Work(puller, wanted, how), thread)
        return
    thread = LoopThread("aerobee-pull")
    try:
        thread.run(puller.start())
        yield from _chunks(_Work(puller, wanted, how), thread)
    finally:
        thread.run(puller.close())
        thread.close()


def _chunks(work: "_Work", thread: LoopThread) -> Iterator[Chunk]:
    end, last = work.wanted.start, work.wanted.end
    following = thread.begin(work.pull_chunk(end))
    try:
        while end < last:
            chunk = following.result()
            end = chunk.end
            if end < last:
                following = thread.begin(work.pull_chunk(end))
            if chunk.data:
                yield chunk
    finally:
        following.cancel()


@dataclass(slots=True)
class _Work:
    puller: Puller
    wanted: QueueRange
    how: Pulling

    async def pull_chunk(self, start: int) -> Chunk:
        if self.how.has_holes:
            return await self._pull_through(start)
        limit = min(self.wanted.end, start + PIECE_MESSAGES_MAX)
        end, held = await self._pull_first(start, limit)
        if end >= limit or not held:
            return Chunk(start, end, held)
        slot, slot_bytes, bodies = max(1, end - start), len(held), [held]
        size = len(held)
        under_way: deque[asyncio.Task[list[bytes]]] = deque()
        try:
            while True:
                while (
                    end < limit
                    and size + len(under_way) * slot_bytes < PIECE_BYTES_ENOUGH
                    and len(under_way) < PULLS_UNDER_WAY_MAX
                ):
                    begin, end = end, min(limit, end + slot)
                    under_way.append(asyncio.create_task(self._pull_slot(begin, end)))
                if not under_way:
                    return Chunk(start, end, b"".join(bodies))
                found = await under_way.popleft()
                bodies += found
                size += sum(map(len, found))
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _pull_first(self, start: int, limit: int) -> tuple[int, bytes]:
        """The offset behind the records of one pull from `start` on, and their bytes."""
        pulled = await self._pull(start, limit - start)
        if pulled.code != codes.SUCCESS:
            return min(self.wanted.end, self._after_nothing(pulled, start)), b""
        if pulled.next_offset <= start:
            raise self._stuck(pulled, start)
        return min(limit, pulled.next_offset), pulled.body

    async def _pull_through(self, start: int) -> Chunk:
        """Pull one after the other: only a response tells where the next pull begins."""
        held: list[bytes] = []
        size, offset, stop = 0, start, min(self.wanted.end, start + HOLES_OFFSETS_MAX)
        while offset < stop and size < PIECE_BYTES_ENOUGH:
            pulled = await self._pull(offset, BULK_MESSAGES_MAX)
            if pulled.code == codes.SUCCESS and pulled.next_offset > offset:
                held.append(pulled.body)
                size += len(pulled.body)
                offset = pulled.next_offset
            elif pulled.code == codes.SUCCESS:
                raise self._stuck(pulled, offset)
            else:
                offset = self._after_nothing(pulled, offset)
        return Chunk(start, min(offset, self.wanted.end), b"".join(held))

    async def _pull(self, offset: int, count: int) -> Pulled:
        """An answer, from whichever broker has the queue by then, if need be at a later try."""
        most = self.how.messages_per_pull
        bulk = most is None
        count = min(count, BULK_MESSAGES_MAX if most is None else most)
        for left in range(self.how.retries, -1, -1):
            try:
                return await self.puller.pull(self.wanted.queue, offset, count, bulk=bulk)
            except AerobeeError as wrong:
                if not wrong.retriable or not left:
                    raise
                tries = self.how.retries + 1
                log.warning(
                    "reading %s: %s (try %d of %d)", self.wanted, wrong, tries - left, tries
                )
                # The client does not connect again before that pause is over.
                rest_s = max(self.how.retry_ms / 1000, getattr(wrong, "rest_s", 0.0))
            await asyncio.sleep(rest_s)
            with suppress(AerobeeError):
                await self.puller.queues(self.wanted.topic)  # its route may have changed
        raise AssertionError("the last try returns or raises")

    async def _pull_slot(self, offset: int, end: int) -> list[bytes]:
        """The answers that hold the offsets up to `end`: one, unless the broker gives less."""
        bodies = []
        while offset < end:
            pulled = await self._pull(offset, end - offset)
            if pulled.code != codes.SUCCESS:
                offset = self._after_nothing(pulled, offset)
                continue
            if pulled.next_offset <= offset:
                raise self._stuck(pulled, offset)
            bodies.append(pulled.body)
            offset = pulled.next_offset
        return bodies

    def _stuck(self, pulled: Pulled, offset: int) -> DataLossError:
        return DataLossError(
            f"the broker answered offset {offset} while reading {self.wanted} and "
            f"{pulled.next_offset} as the next one; reading would not get on"
        )

    def _after_nothing(self, pulled: Pulled, offset: int) -> int:
        """The offset at which reading goes on when there were no messages at `offset`.

        DataLossError if messages are lost and that is to fail.
        """
        if pulled.code == codes.PULL_RETRY_IMMEDIATELY and pulled.next_offset > offset:
            return pulled.next_offset
        if self.how.fail_on_data_loss:
            raise DataLossError(
                f"nothing is at offset {offset} while reading {self.wanted}: the broker now holds "
                f"{pulled.min_offset} to {pulled.max_offset}; read again, "
                "or set failOnDataLoss to false to read what is left"
            )
        return pulled.min_offset if offset < pulled.min_offset else self.wanted.end
