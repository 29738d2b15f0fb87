"""The console of `aerobee up`: a port from the start, a process from the first visitor on.

The visitor's connection waits in the socket's backlog until the console takes it over.
"""

import asyncio
import errno
import logging
import socket
import time
from contextlib import suppress
from importlib.util import find_spec

from .child_command import Backoff, ChildCommand
from .output.command_error import CommandError

ADDRESS = "127.0.0.1"
BACKLOG = 100

log = logging.getLogger(__name__)


class HeldConsole:
    """A port of the loopback, and the console behind it. `port` 0 takes any free one. `url` is
    None without a console; `said` is the text about it in the ready line."""

    def __init__(self, namesrv: str, port: int) -> None:
        self.said = ""
        self._namesrv = namesrv
        self._port = port
        self._socket: socket.socket | None = None
        self._child: ChildCommand | None = None
        self._serving: asyncio.Task[None] | None = None
        self._backoff = Backoff()

    @property
    def url(self) -> str | None:
        """The address for a browser on this machine."""
        return None if self._socket is None else f"http://{ADDRESS}:{self._port}/"

    async def start(self) -> None:
        """Listen. Without jinja2, or where the port is taken, there is no console."""
        if find_spec("jinja2") is None:
            self.said = ", no console (pip install 'aerobee[console]' gives one)"
            return
        held = socket.socket()
        try:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind((ADDRESS, self._port))
            held.listen(BACKLOG)
        except OSError as wrong:
            held.close()
            is_taken = wrong.errno == errno.EADDRINUSE
            reason = "is taken" if is_taken else f"can't be used: {wrong.strerror}"
            self.said = f", no console, as port {self._port} {reason}; --console-port gives another"
            return
        held.setblocking(False)
        self._socket = held
        self._port = held.getsockname()[1]
        self.said = f", console {self.url}"
        self._wait()

    async def stop(self) -> None:
        """End the console, and release the port."""
        held, self._socket = self._socket, None
        if held is None:
            return
        asyncio.get_running_loop().remove_reader(held)
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        if self._child is not None:
            await self._child.stop()
        held.close()

    def _refuse_visitors(self) -> None:
        """Close the connections that wait for the console; later ones start it again."""
        with suppress(OSError):  # no more wait
            while self._socket is not None:
                self._socket.accept()[0].close()

    def _wait(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._visited, self._socket)

    def _visited(self, held: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(held)
        self._serving = asyncio.create_task(self._serve(held.fileno()))

    async def _serve(self, number: int) -> None:
        """Run the console until it ends, then wait for another visitor."""
        began = time.monotonic()
        self._child = ChildCommand(
            ("console", "-n", self._namesrv, "--given-socket", str(number)),
            is_watched=False,
            on_line=_say,
            pass_fds=(number,),
        )
        try:
            await self._child.start()
            _say(self._child.ready)
            code = await self._child.ended()
            log.warning("the console ended with code %d; the next visitor starts it again", code)
        except (CommandError, OSError) as wrong:
            log.error("the console did not start: %s", wrong)
            self._refuse_visitors()
        await asyncio.sleep(self._backoff.next(time.monotonic() - began))
        self._wait()


def _say(line: str) -> None:
    """A line of the console, such as the one with a link that logs in."""
    with suppress(BrokenPipeError):
        print(line, flush=True)
