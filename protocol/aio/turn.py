"""One turn of the event loop: what came in is handled, then all answers go out together.

A connection that has something to write puts itself on the list; when the turn ends the list is
worked off, with one write per connection. Before that the owner's `before_write` runs: the broker
writes the staged messages there, so that no answer leaves before its message is in the log. When it
raises, the answers of this turn are not sent and their connections are aborted: a client that
hears nothing tries again, one that hears a lie doesn't.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import Connection

log = logging.getLogger(__name__)

TICK_SECONDS = 0.05  # how late a request's timeout may be noticed


class Turn:
    """The writes of one loop turn, and the one timer behind all waiting requests."""

    __slots__ = ("_dirty", "_loop", "_scheduled", "_ticking", "_waiting", "before_write")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        before_write: Callable[[], None] | None = None,
    ) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self.before_write = before_write
        self._dirty: list[Connection] = []
        self._scheduled = False
        self._waiting: set[Connection] = set()
        self._ticking = False

    def add(self, connection: "Connection") -> None:
        """The connection has output; called once a turn for each."""
        self._dirty.append(connection)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end)

    def wake(self) -> None:
        """Run `before_write` at the end of this turn even when nothing is to be written yet."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end)

    def watch(self, connection: "Connection") -> None:
        """The connection waits for answers: look for overdue ones from now on."""
        self._waiting.add(connection)
        if not self._ticking:
            self._ticking = True
            self._loop.call_later(TICK_SECONDS, self._tick)

    def _end(self) -> None:
        self._scheduled = False
        if self.before_write is not None:
            try:
                self.before_write()
            except Exception:
                dirty, self._dirty = self._dirty, []
                log.exception("the store did not take this turn's messages; closing %d", len(dirty))
                for connection in dirty:
                    connection.abort()
                return
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()

    def _tick(self) -> None:
        now = self._loop.time()
        for connection in list(self._waiting):
            if not connection.expire(now):
                self._waiting.discard(connection)
        if self._waiting:
            self._loop.call_later(TICK_SECONDS, self._tick)
        else:
            self._ticking = False
