"""Pulls a range of a queue, in pieces large enough to be worth decoding.

A broker answers some 32 messages a pull, and waiting for each answer would cost more than the rest
of a read: a range is cut into slots of that size, and several slots are pulled at the same time.
What is held at once is one piece, so the memory of a task doesn't depend on how long its range is.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from ..client.blocking import MessageQueue, Pulled
from ..client.errors import AerobeeError
from ..protocol import codes
from ..store import Piece
from .options import MESSAGES_PER_PULL, RETRIES, RETRY_MS
from .plan import DataLossError, QueueRange

log = logging.getLogger(__name__)

PIECE_MESSAGES_MAX = 8192  # Spark's own Arrow batches have 10,000 rows
PIECE_BYTES_ENOUGH = 8 << 20  # no slot is begun after it
HOLES_OFFSETS_MAX = 1 << 20  # looked through for a piece, when messages are left out
PULLS_UNDER_WAY_MAX = 16  # of one task; an answer is 256 KiB at most, or one message


class Puller(Protocol):
    """What pulling asks of `client.reader.Reader`."""

    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def queues(self, topic: str) -> list[MessageQueue]: ...
    async def pull(self, queue: MessageQueue, offset: int, max_messages: int = 32) -> Pulled: ...


@dataclass(frozen=True, slots=True)
class Pulling:
    """How a range is pulled.

    `has_holes`: the broker leaves messages out, so how many a pull brings says nothing of offsets.
    A broker that doesn't answer is asked `retries` times more, `retry_ms` apart.
    """

    messages_per_pull: int = MESSAGES_PER_PULL
    fail_on_data_loss: bool = True
    has_holes: bool = False
    retries: int = RETRIES
    retry_ms: int = RETRY_MS


def pull_pieces(puller: Puller, wanted: QueueRange, how: Pulling) -> Iterator[Piece]:
    """The pieces of a range, one after the other and without a gap; opens and closes the puller.

    DataLossError when the broker has deleted a part of the range, unless that is not to fail: then
    what is left is read. Raises what the client raises.
    """
    with asyncio.Runner() as runner:
        try:
            runner.run(puller.start())
            start = wanted.start
            while start < wanted.end:
                work = _Work(puller, wanted, how)
                piece = runner.run(work.pull_piece(start))
                start = piece.end
                if piece.data:
                    yield piece
        finally:
            runner.run(puller.close())


@dataclass(slots=True)
class _Work:
    puller: Puller
    wanted: QueueRange
    how: Pulling

    async def pull_piece(self, start: int) -> Piece:
        if self.how.has_holes:
            return await self._pull_through(start)
        limit = min(self.wanted.end, start + PIECE_MESSAGES_MAX)
        under_way: deque[asyncio.Task[list[bytes]]] = deque()
        held: list[bytes] = []
        size, end = 0, start
        try:
            while True:
                while (
                    end < limit
                    and size < PIECE_BYTES_ENOUGH
                    and len(under_way) < PULLS_UNDER_WAY_MAX
                ):
                    begin, end = end, min(limit, end + self.how.messages_per_pull)
                    under_way.append(asyncio.create_task(self._pull_slot(begin, end)))
                if not under_way:
                    return Piece(start, end, b"".join(held))
                bodies = await under_way.popleft()
                held += bodies
                size += sum(map(len, bodies))
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _pull_through(self, start: int) -> Piece:
        """One pull after the other: only an answer says where the next one begins."""
        held: list[bytes] = []
        size, offset, stop = 0, start, min(self.wanted.end, start + HOLES_OFFSETS_MAX)
        while offset < stop and size < PIECE_BYTES_ENOUGH:
            pulled = await self._pull(offset, self.how.messages_per_pull)
            if pulled.code == codes.SUCCESS and pulled.next_offset > offset:
                held.append(pulled.body)
                size += len(pulled.body)
                offset = pulled.next_offset
            elif pulled.code == codes.SUCCESS:
                raise self._stuck(pulled, offset)
            else:
                offset = self._after_nothing(pulled, offset)
        return Piece(start, min(offset, self.wanted.end), b"".join(held))

    async def _pull(self, offset: int, count: int) -> Pulled:
        """An answer, from whichever broker has the queue by then, if need be at a later try."""
        for left in range(self.how.retries, -1, -1):
            try:
                return await self.puller.pull(self.wanted.queue, offset, count)
            except AerobeeError as wrong:
                if not wrong.retriable or not left:
                    raise
                log.warning("reading %s: %s; %d more tries", self.wanted, wrong, left)
            await asyncio.sleep(self.how.retry_ms / 1000)
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
        """Where reading goes on when there were no messages at `offset`."""
        if pulled.code == codes.PULL_RETRY_IMMEDIATELY and pulled.next_offset > offset:
            return pulled.next_offset
        if self.how.fail_on_data_loss:
            raise DataLossError(
                f"nothing is at offset {offset} while reading {self.wanted}: the broker now holds "
                f"{pulled.min_offset} to {pulled.max_offset}; read again, "
                "or set failOnDataLoss to false to read what is left"
            )
        return pulled.min_offset if offset < pulled.min_offset else self.wanted.end
