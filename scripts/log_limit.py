"""One line for each problem of a connection or with a message, and of many alike their number.

A client in a loop, a port scanner or a name server that is down can cause thousands of lines a
second, a file of the log that is lost one for each of its messages. Of one kind, `LINES_MAX` pass
in `SECONDS`. The others are counted; one line at the end of that time says how many they were and
what the last one said.
"""

import atexit
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

LINES_MAX = 5
SECONDS = 60.0
KINDS_MAX = 1_000  # at a time, since each has a thread; lines of further kinds all pass
SERVED = "aerobee.protocol.aio"  # all of its lines are limited, of the others the warnings
# Loggers about connections, which log as often as a peer tries, and about single messages.
LIMITED = (
    SERVED,
    "aerobee.broker.pop",
    "aerobee.broker.scheduled",
    "aerobee.broker.naming",
    "aerobee.broker.replication",
    "aerobee.namesrv.handlers",
    "aerobee.namesrv.server",
    "aerobee.controller.server",
    "aerobee.proxy",
    "aerobee.store.engine.derive",
    "aerobee.store.log.walk",
    "asyncio",
)


@dataclass
class Kind:
    """Lines with one text before its values are filled in, since the first of them."""

    passed: int = 0
    more: int = 0
    last: logging.LogRecord | None = None


class LogLimit(logging.Filter):
    """A filter of a handler, to whose `handle` the lines with numbers go.

    `later(seconds, act)` calls `act` once; left out, a thread does it.
    """

    def __init__(
        self,
        handle: Callable[[logging.LogRecord], object],
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        super().__init__()
        self._handle = handle
        self._later = later or _by_thread
        self._kinds: dict[tuple[str, int, str], Kind] = {}
        # The collector may end a task, which logs, while this thread has the lock.
        self._lock = threading.RLock()
        atexit.register(self.end)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is written now. Lines at debug always are."""
        if not _is_limited(record):
            return True
        # asyncio puts names and addresses of objects into the lines below the first.
        key = record.name, record.levelno, str(record.msg).partition("\n")[0]
        with self._lock:
            kind = self._kinds.get(key)
            if kind is None and len(self._kinds) >= KINDS_MAX:
                return True
            if kind is None:
                kind = self._kinds[key] = Kind()
                self._later(SECONDS, lambda: self._close(key))
            if kind.passed < LINES_MAX:
                kind.passed += 1
                return True
            kind.more += 1
            kind.last = record
            return False

    def end(self) -> None:
        """Write all numbers now."""
        for key in list(self._kinds):
            self._close(key)

    def _close(self, key: tuple[str, int, str]) -> None:
        with self._lock:
            kind = self._kinds.pop(key, None)
        if kind is None or kind.last is None:
            return
        line = logging.LogRecord(
            kind.last.name,
            kind.last.levelno,
            "",
            0,
            "and %s more in %g s, the last: %s",
            (f"{kind.more:,}", SECONDS, kind.last.getMessage()),
            None,
        )
        line.is_number = True
        self._handle(line)


def _is_limited(record: logging.LogRecord) -> bool:
    if hasattr(record, "of_member") or hasattr(record, "is_number"):
        return False
    if record.levelno <= logging.DEBUG:
        return False
    name = record.name + "."
    if record.levelno < logging.WARNING:
        return name.startswith(SERVED + ".")
    return any(name.startswith(one + ".") for one in LIMITED)


def _by_thread(seconds: float, act: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()
