"""A proxy as a child process of `aerobee up` and `aerobee broker`, which ends with them.

The child reads its standard input, a pipe of ours, and stops when that closes: so it also ends when
its parent is killed.
"""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

from .output.command_error import CommandError

log = logging.getLogger(__name__)

STOP_SECONDS = 40.0  # the grace of its calls, and a little more
READY_SECONDS = 60.0
HTTP_PORT = "AEROBEE_HTTP_PORT"  # the parent's own; the child takes the one above its port of gRPC


class ProxyChild:
    """One child; `words` are the arguments of `aerobee proxy`. `ready` is its ready line. With
    `is_watched` the log says when it ends by itself."""

    def __init__(self, words: Sequence[str], *, is_watched: bool = True) -> None:
        self._words = list(words)
        self._is_watched = is_watched
        self._process: Process | None = None
        self._watcher: asyncio.Task[None] | None = None
        self.ready = ""

    async def start(self) -> None:
        """Start it and wait until it serves; CommandError if it doesn't."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aerobee.scripts.cli", "proxy", "--with-parent", *self._words),
            stdin=PIPE,
            stdout=PIPE,
            env={name: text for name, text in os.environ.items() if name != HTTP_PORT},
        )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(READY_SECONDS):
                line = await self._process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            await self.stop()
            raise CommandError("the proxy did not start; its message is above")
        self.ready = line.decode().strip()
        if self._is_watched:
            self._watcher = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """End it; it has some seconds for the calls under way."""
        if self._watcher is not None:
            self._watcher.cancel()
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            log.warning("the proxy did not end within %g s; it is killed", STOP_SECONDS)
            process.kill()
            await process.wait()

    async def ended(self) -> int:
        """Its exit code, once it has ended."""
        return 0 if self._process is None else await self._process.wait()

    async def _watch(self) -> None:
        code = await self.ended()
        log.error("the proxy ended with code %d; start one with `aerobee proxy`", code)
