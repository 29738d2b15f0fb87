"""The process of the searches: it reads frames from standard input and answers on standard output.

The console starts it with the first search and ends it by closing its input. It has a low priority
and a limit of memory, so that a search that needs too much ends here and not in the console.
"""

import asyncio
import gc
import os
import resource
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from ...client.base.security import Security
from ...client.errors import AerobeeError
from ...client.pull.reader import Reader
from ...protocol.filters.sql92 import Predicate, SqlError, predicate
from ...protocol.message.record import Record
from ..texts import Text, text_of
from .fields import Bodiless, Reads
from .newest import newest_first
from .search import BadCursor, Progress, search
from .search_frames import Asked, Batch, Leave, More, Start, batch_of, frame, read_frame, said
from .shown import Types

NICENESS = 10
MEMORY_BYTES_MAX = 1 << 30
BATCHES_AHEAD = 2  # sent before the console has used them


class Served:
    """The searches under way, each with its task and the batches that it may send."""

    def __init__(self, out: asyncio.StreamWriter) -> None:
        self._out = out
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._room: dict[int, asyncio.Semaphore] = {}
        self._types: dict[str, Types] = {}

    def take(self, asked: Asked) -> None:
        """Handle a frame of the console: begin a search, allow a batch more, or cancel a search."""
        if isinstance(asked, Start):
            self._room[asked.number] = asyncio.Semaphore(BATCHES_AHEAD)
            self._tasks[asked.number] = asyncio.create_task(self._run(asked))
        elif isinstance(asked, More) and asked.number in self._room:
            self._room[asked.number].release()
        elif isinstance(asked, Leave) and asked.number in self._tasks:
            self._tasks[asked.number].cancel()

    async def _run(self, asked: Start) -> None:
        last = Batch(asked.number, is_last=True)
        try:
            await self._search(asked)
        except (AerobeeError, BadCursor, SqlError, ValueError) as wrong:
            last.wrong = said(text_of(wrong))
        except MemoryError:
            last.wrong = said(
                Text(
                    "it needs more than %(limit)s bytes of memory, the limit of its process; "
                    "choose a shorter time",
                    limit=f"{MEMORY_BYTES_MAX:,}",
                )
            )
        finally:
            del self._tasks[asked.number], self._room[asked.number]
        self._out.write(frame(last))
        await self._out.drain()

    async def _search(self, asked: Start) -> None:
        found: list[Record] = []
        async with Reader(asked.servers, security=Security(**asked.security)) as reader:
            steps = (newest_first if asked.is_newest_first else search)(
                reader,
                asked.topic,
                asked.begin_ms,
                asked.end_ms,
                _condition(asked),
                cursor=asked.cursor,
                hits_max=asked.hits_max,
                reads=self._reads(asked),
            )
            async for one in steps:
                if isinstance(one, Progress):  # one comes after each pull
                    await self._send(batch_of(asked.number, found, one))
                    found = []
                else:
                    found.append(one)

    async def _send(self, batch: Batch) -> None:
        await self._room[batch.number].acquire()
        self._out.write(frame(batch))
        await self._out.drain()

    def _reads(self, asked: Start) -> Reads | None:
        """The reader of fields of the topic's bodies, None if the bodies have no type."""
        if not asked.body_type:
            return None
        types = self._types.get(asked.descriptors)
        if types is None:
            from .protobuf import ProtobufTypes

            types = self._types[asked.descriptors] = ProtobufTypes(Path(asked.descriptors), {})
        return partial(types.value, asked.body_type)


def _condition(asked: Start) -> Predicate | None:
    if not asked.where:
        return None
    found = predicate(asked.where, fields=True)
    return found if asked.sees_bodies else lambda fields: found(Bodiless(fields))


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    given = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(given), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, sys.stdout.buffer
    )
    served = Served(asyncio.StreamWriter(transport, protocol, None, loop))
    decoder = msgspec.msgpack.Decoder(Asked)
    while (body := await read_frame(given)) is not None:
        served.take(decoder.decode(body))


def main() -> None:
    """Serve until standard input closes."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    with suppress(BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        asyncio.run(_serve())


if __name__ == "__main__":
    main()
