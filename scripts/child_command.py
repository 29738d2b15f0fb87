"""A command of aerobee as a child process of another one, which ends with it.

The child reads its standard input, a pipe of its parent, and stops when that closes. So it ends
when its parent is killed, too. It has a session of its own, so Ctrl-C reaches the parent alone.
"""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence

from .output.command_error import CommandError

log = logging.getLogger(__name__)

STOP_SECONDS = 40.0  # the grace of its calls, and a little more
READY_SECONDS = 60.0
LINE_BYTES_MAX = 1 << 20
# Variables for the parent alone: its port, and its file, which one process writes.
OF_PARENT = ("AEROBEE_HTTP_PORT", "AEROBEE_LOG_FILE")
# The first line of a child begins so if it must not be started again before its fault is mended.
STAYS_DOWN = "stays down: "
# Seconds before a child that ended is started again; the first after it served for some time.
BACKOFF_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
STEADY_SECONDS = 60.0


class ChildStaysDown(CommandError):
    """The child says that another start would end in the same way; the text is its reason."""


class Backoff:
    """The pauses before a child is started again."""

    def __init__(self) -> None:
        self._failures = 0

    def next(self, served_seconds: float) -> float:
        """Seconds to wait after a child that ended when it had served for so long."""
        if served_seconds > STEADY_SECONDS:
            self._failures = 0
        wait = BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1
        return wait


class ChildCommand:
    """One child; `words` are the command and its arguments. `ready` is its ready line.

    With `is_watched` the log says when it ends by itself. `on_line` gets the lines of its standard
    output after the ready line, `on_log` those of its standard error, else that is ours.
    `ready_seconds` is how long it may take to start; None: any time. The child has the open files
    of `pass_fds`, too, and `variables` in its environment, which no list of processes shows.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        is_watched: bool = True,
        on_line: Callable[[str], None] | None = None,
        on_log: Callable[[str], None] | None = None,
        ready_seconds: float | None = READY_SECONDS,
        pass_fds: Sequence[int] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._command, *self._words = words
        self._is_watched = is_watched
        self._on_line = on_line
        self._on_log = on_log
        self._ready_seconds = ready_seconds
        self._pass_fds = pass_fds
        self._variables = dict(variables or {})
        self._process: Process | None = None
        self._readers: list[asyncio.Task[None]] = []  # they end with its output
        self._watcher: asyncio.Task[None] | None = None
        self.ready = ""

    @property
    def pid(self) -> int:
        """The process id of the child; 0 before its start."""
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start it and wait until it serves; CommandError if it doesn't."""
        own = {name: text for name, text in os.environ.items() if name not in OF_PARENT}
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "aerobee.scripts.cli",
            self._command,
            "--with-parent",
            *self._words,
            stdin=PIPE,
            stdout=PIPE,
            stderr=None if self._on_log is None else PIPE,
            env={**own, **self._variables},
            start_new_session=True,
            pass_fds=self._pass_fds,
            limit=LINE_BYTES_MAX,
        )
        if self._on_log is not None:
            assert process.stderr is not None
            self._readers.append(asyncio.create_task(_copy(process.stderr, self._on_log)))
        assert process.stdout is not None
        try:
            async with asyncio.timeout(self._ready_seconds):
                line = (await process.stdout.readline()).decode().strip()
        except TimeoutError:
            line = ""
        if not line or line.startswith(STAYS_DOWN):
            await self.stop()
            if line:
                raise ChildStaysDown(line.removeprefix(STAYS_DOWN))
            raise CommandError(f"the {self._command} did not start; its message is above")
        self.ready = line
        if self._on_line is not None:
            self._readers.append(asyncio.create_task(_copy(process.stdout, self._on_line)))
        if self._is_watched:
            self._watcher = asyncio.create_task(self._watch())

    def say(self, line: str) -> None:
        """Write a line to its standard input, unless that is closed."""
        stdin = None if self._process is None else self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(f"{line}\n".encode())

    async def stop(self) -> None:
        """End it; it has some seconds for the calls under way."""
        if self._watcher is not None:
            self._watcher.cancel()
        process = self._process
        if process is not None and process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                log.warning(
                    "the %s did not end within %g s; it is killed", self._command, STOP_SECONDS
                )
                process.kill()
                await process.wait()
        await asyncio.gather(*self._readers)

    async def ended(self) -> int:
        """Wait until the child has ended; returns its exit code."""
        return 0 if self._process is None else await self._process.wait()

    async def _watch(self) -> None:
        code = await self.ended()
        log.error(
            "the %s ended with code %d; start one with `aerobee %s`",
            self._command,
            code,
            self._command,
        )


async def _copy(stream: asyncio.StreamReader, take: Callable[[str], None]) -> None:
    """Give each line of a stream until it ends; a line over the limit comes in parts."""
    while data := await _line(stream):
        take(data.decode(errors="replace").rstrip("\n"))


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readuntil()
    except asyncio.IncompleteReadError as end:
        return end.partial
    except asyncio.LimitOverrunError as over:
        return await stream.read(over.consumed)
