"""How `aerobee console --link` gets a link that logs in once from a console that runs already.

The console listens on a Unix socket without a file, whose name has the console's port (Linux's
abstract namespace). Each end asks the kernel for the user of the other one, and talks to its own
user only: another user of this machine could have taken the name.
"""

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

ANSWER_BYTES_MAX = 8 << 10
ANSWER_SECONDS = 10.0

log = logging.getLogger(__name__)


class ConsoleLink(NamedTuple):
    """The address of a console, and a link that logs in once: None where the console has users."""

    url: str
    link: str | None


class LinkSocket:
    """The socket of a console; `answer` makes a link, which voids the one before."""

    def __init__(self, answer: Callable[[], ConsoleLink]) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None

    async def start(self, port: int) -> None:
        """Listen under the name of a port. Where that is not possible, the log says so."""
        try:
            self._server = await asyncio.start_unix_server(self._asked, _name(port))
        except (OSError, AttributeError) as wrong:  # Windows has no such sockets
            log.warning("aerobee console --link can't find this console: %s", wrong)

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _asked(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # the other end has left
            if _user(writer.get_extra_info("socket")) == os.geteuid():
                writer.write(json.dumps(self._answer()).encode())
            writer.close()
            await writer.wait_closed()


def ask(port: int) -> ConsoleLink | None:
    """A new link of the console at a port, None without a console of this user there."""
    try:
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(ANSWER_SECONDS)
            asked.connect(_name(port))
            if _user(asked) != os.geteuid():
                return None
            with asked.makefile("rb") as answer:
                text = answer.read(ANSWER_BYTES_MAX)
    except (OSError, AttributeError):
        return None
    return ConsoleLink(*json.loads(text)) if text else None


def _name(port: int) -> str:
    return f"\0aerobee-console-{port}"


def _user(peer: socket.socket) -> int:
    """The user of the other end's process."""
    kind = struct.Struct("3i")  # ucred: process, user, group
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, kind.size)
    user: int = kind.unpack(found)[1]
    return user
