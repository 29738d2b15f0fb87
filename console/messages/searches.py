"""The searches of a console, in one process beside it, so that no page waits for them.

The process starts with the first search and ends when none has run for a while. When it dies, the
searches under way end with what they have found and a reason, and the next one starts it again.
"""

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Self

import msgspec

from ...client.errors import ClientError
from ...protocol.message.record import Record
from ..clusters.clusters import Watched
from ..texts import Text, TextError, quoted
from .search import Progress
from .search_frames import (
    Asked,
    Batch,
    Leave,
    More,
    Start,
    frame,
    heard,
    read_frame,
    told,
)
from .shown import Types

SEARCHES_MAX = 8  # at once
IDLE_SECONDS = 60.0  # without a search, until the process ends
BATCH_SECONDS = 90.0  # until a search that says nothing is given up; one request may take 30
RECORDS_PER_STEP = 64  # used before other pages are served
END_SECONDS = 5.0
PIPE_BYTES = 1 << 20

log = logging.getLogger(__name__)


class TooManySearches(TextError):
    """The limit of searches that run at the same time is reached."""

    status = 429


class Searches:
    """Started by its first search; `stop` ends it. `types` are those of bodies."""

    def __init__(self, types: Types | None = None, *, idle_s: float = IDLE_SECONDS) -> None:
        self._types = types
        self._idle_s = idle_s
        self._child: _Child | None = None
        self._children: set[_Child] = set()  # with the ending ones
        self._starting = asyncio.Lock()
        self._running = 0
        self._last = 0
        self._end: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process, None while there is none."""
        return None if self._child is None or self._child.has_ended else self._child.pid

    async def search(
        self,
        watched: Watched,
        topic: str,
        begin_ms: int,
        end_ms: int,
        where: str,
        *,
        sees_bodies: bool,
        cursor: str,
        hits_max: int,
        is_newest_first: bool = False,
    ) -> AsyncGenerator[Record | Progress]:
        """Yield what `search` or `newest_first` does, from the process. TooManySearches at the
        limit; ClientError for arguments that a search can't begin with."""
        if self._running >= SEARCHES_MAX:
            raise TooManySearches(
                "%(count)s searches run, the limit is %(limit)s; wait for one to end",
                count=self._running,
                limit=SEARCHES_MAX,
            )
        self._last += 1
        types = self._types
        body_type = types.by_topic.get(topic, "") if types is not None else ""
        asked = Start(
            self._last,
            watched.servers,
            told(watched.security),
            topic,
            begin_ms,
            end_ms,
            where,
            sees_bodies,
            cursor,
            hits_max,
            is_newest_first,
            str(types.path) if types is not None and body_type else "",
            body_type,
        )
        self._running += 1
        try:
            child = await self._ready()
            async with aclosing(_found(child, asked)) as steps:
                async for one in steps:
                    yield one
        finally:
            self._running -= 1
            self._end_later()

    async def stop(self) -> None:
        """End the process."""
        if self._end is not None:
            self._end.cancel()
        self._child = None
        await asyncio.gather(*(one.close() for one in list(self._children)))

    async def _ready(self) -> "_Child":
        async with self._starting:
            if self._child is None or self._child.has_ended:
                self._child = child = await _Child.started()
                self._children.add(child)
                child.reading.add_done_callback(lambda _: self._children.discard(child))
            return self._child

    def _end_later(self) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(self._idle_s, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if self._child is not None and not self._running:
            self._child.let_go()
            self._child = None


async def _found(child: "_Child", asked: Start) -> AsyncGenerator[Record | Progress]:
    """The steps of one search. When the process dies, the last one says so."""
    batches = child.open(asked)
    last, has_begun = Progress(cursor=asked.cursor or None), False
    try:
        while True:
            try:
                async with asyncio.timeout(BATCH_SECONDS):
                    batch = await batches.get()
            except TimeoutError:
                child.kill(Text("it said nothing for %(seconds)s s", seconds=f"{BATCH_SECONDS:g}"))
                batch = None
            if batch is None:
                last.why = Text(
                    "the process of the searches has ended (%(how)s); go on, or search again",
                    how=child.how or Text("it was killed"),
                )
                yield last
                return
            if batch.wrong is not None:
                if not has_begun:
                    raise ClientError(heard(batch.wrong))
                last.why = heard(batch.wrong)
                yield last
                return
            has_begun = True
            if batch.is_last:
                return
            for number, record in enumerate(batch.found, 1):
                if number % RECORDS_PER_STEP == 0:
                    await asyncio.sleep(0)
                yield record
            last = batch.progress()
            yield last
            child.say(More(asked.number))
    finally:
        child.leave(asked.number)


class _Child:
    """The process, while it runs. `how` says how it ended."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._batches: dict[int, asyncio.Queue[Batch | None]] = {}
        self.how = ""
        self.reading = asyncio.create_task(self._read())

    @classmethod
    async def started(cls) -> Self:
        """A new one; ClientError where the machine has no room for it."""
        module = f"{__package__}.search_process"
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                module,
                stdin=PIPE,
                stdout=PIPE,
                start_new_session=True,
                limit=PIPE_BYTES,
            )
        except OSError as wrong:
            raise ClientError(
                Text(
                    "the process of the searches can't be started: %(why)s; free memory, or end "
                    "other processes",
                    why=quoted(wrong.strerror or ""),
                )
            ) from None
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self.reading.done()

    def open(self, asked: Start) -> "asyncio.Queue[Batch | None]":
        """Begin a search. Its batches; None is the end of the process."""
        batches: asyncio.Queue[Batch | None] = (
            asyncio.Queue()
        )  # it sends two, and one for each More
        self._batches[asked.number] = batches
        if self.has_ended:
            batches.put_nowait(None)
        self.say(asked)
        return batches

    def leave(self, number: int) -> None:
        """No request waits for this search any more."""
        del self._batches[number]
        self.say(Leave(number))

    def say(self, asked: Asked) -> None:
        """Send a frame, unless the process has ended."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(frame(asked))

    def let_go(self) -> None:
        """Have it end by itself."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self, why: str) -> None:
        """Kill the process for the reason `why`."""
        self.how = self.how or why
        with suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        """Let the process end, and wait until it has."""
        self.let_go()
        try:
            async with asyncio.timeout(END_SECONDS):
                await asyncio.shield(self.reading)
        except TimeoutError:
            self.kill(Text("it did not end within %(seconds)s s", seconds=f"{END_SECONDS:g}"))
            await self.reading

    async def _read(self) -> None:
        """Give each search its batches until the process ends."""
        assert self._process.stdout is not None
        decoder = msgspec.msgpack.Decoder(Batch)
        try:
            while (body := await read_frame(self._process.stdout)) is not None:
                batch = decoder.decode(body)
                if batch.number in self._batches:
                    self._batches[batch.number].put_nowait(batch)
        except (ValueError, msgspec.MsgspecError) as wrong:
            self.kill(Text("its answer can't be used: %(wrong)s", wrong=wrong))
        code = await self._process.wait()
        self.how = self.how or _end_of(code)
        if self._batches:
            log.warning("the process of the searches has ended: %s", self.how)
        for waiting in self._batches.values():
            waiting.put_nowait(None)


def _end_of(code: int) -> Text:
    if code < 0:
        return Text("signal %(number)s", number=-code)
    return Text("code %(number)s", number=code)
