"""The worker processes of one proxy (grpcWorkers): they share its port, and each is started again
when it ends."""

import asyncio
import logging
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..conf import log_levels
from . import logs
from .child_command import Backoff, ChildCommand
from .output.command_error import CommandError

log = logging.getLogger(__name__)


class ProxyWorkers:
    """`count` workers at this address. `words` are the arguments of `aerobee proxy` for each.

    `pages` is the HTTP port of the first; the others take those above. None or 0: any, -1: none.
    """

    def __init__(
        self, words: Sequence[str], count: int, address: tuple[str, int], pages: int | None
    ) -> None:
        self._words = list(words)
        self._count = count
        self._host, self.port = address
        self._pages = pages
        self._folder = ""
        self._bound: socket.socket | None = None
        self._workers: dict[int, ChildCommand] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self.restarts = 0

    async def start(self) -> None:
        """Take the port, start all and wait until they serve; CommandError if one doesn't."""
        from ..proxy.http2.balance import shared_port

        try:
            self._bound = shared_port(self._host, self.port)
        except OSError as wrong:
            raise CommandError(str(wrong)) from None
        self.port = self._bound.getsockname()[1]
        self._folder = tempfile.mkdtemp(prefix="aerobee-proxy-")  # readable by this user alone
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._count):
                    group.create_task(self._begin(number))
        except* CommandError as wrong:
            await self.stop()
            raise CommandError(str(wrong.exceptions[0])) from None
        self._keepers = [
            asyncio.create_task(self._keep(number), name=f"proxy-worker-{number}")
            for number in range(self._count)
        ]

    async def stop(self) -> None:
        """End them all; each has some seconds for the calls under way."""
        for task in self._keepers:
            task.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(worker.stop() for worker in self._workers.values()))
        if self._bound is not None:
            self._bound.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def use_levels(self, levels: str) -> None:
        """Give the loggers of all workers, and of this process, these levels."""
        log_levels.use(levels)
        for worker in self._workers.values():
            worker.say(levels)

    async def _begin(self, number: int) -> None:
        pages = self._pages
        if pages is not None and pages > 0:
            pages += number
        words = [*self._words, "--set", f"grpcServerPort={self.port}"]
        if pages is not None:
            words += ["--set", f"httpPort={pages}"]
        words += ["--worker", f"{number}/{self._count}", "--worker-folder", str(Path(self._folder))]
        worker = self._workers[number] = ChildCommand(
            ("proxy", *words),
            is_watched=False,
            on_log=lambda line: logs.copy(f"worker-{number}", line),
        )
        await worker.start()

    async def _keep(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff()
        while True:
            began = loop.time()
            code = await self._workers[number].ended()
            wait = backoff.next(loop.time() - began)
            log.error("worker %d ended with code %d; it starts again in %g s", number, code, wait)
            await asyncio.sleep(wait)
            try:
                await self._begin(number)
                self.restarts += 1
            except CommandError as wrong:
                log.error("worker %d: %s", number, wrong)
