"""SIGINT and SIGTERM stop a program's running consumers: the first gracefully, the second at once.

After the first signal consumers finish the messages they have started; the second signal cancels
that and restores the previous handlers. Nothing is installed outside the main thread or in a
program with its own SIGTERM handler (a web server, for example); such a program stops its consumers
itself.
"""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_running: list[Callable[[], None]] = []  # callbacks for each signal
_before: dict[int, Any] = {}  # the handlers to go back to, while ours are in place
_count = 0  # of signals since ours are in place


class Stop:
    """The word to stop, given once or twice in any thread; the loop it is made in waits for it."""

    def __init__(self) -> None:
        self.gently = asyncio.Event()
        self.at_once = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def tell(self) -> None:
        """Stop gently; the second time at once."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._told)

    def _told(self) -> None:
        (self.at_once if self.gently.is_set() else self.gently).set()


async def until_stopped(
    what: str, stop: Stop, ended: asyncio.Event, finish: Callable[[], Coroutine[Any, Any, bool]]
) -> None:
    """Wait until `what` has ended, by itself or because of `stop`.

    `finish` ends it gently, and says whether that was possible; cancelled it ends it at once.
    """
    tasks = [asyncio.create_task(each.wait()) for each in (ended, stop.gently, stop.at_once)]
    is_ended, is_told, is_told_twice = tasks
    finishing: asyncio.Task[bool] | None = None
    try:
        await asyncio.wait({is_ended, is_told}, return_when=asyncio.FIRST_COMPLETED)
        if ended.is_set():
            return
        log.info("%s is told to stop; it waits for what its listener has begun", what)
        finishing = asyncio.create_task(finish())
        await asyncio.wait({finishing, is_told_twice}, return_when=asyncio.FIRST_COMPLETED)
        if not finishing.done() or not finishing.result():
            log.warning(
                "%s is stopped at once; what its listener had not finished comes again", what
            )
    finally:
        for task in (*tasks, finishing):
            if task is not None:
                task.cancel()
        await asyncio.gather(*tasks, *filter(None, [finishing]), return_exceptions=True)


@contextmanager
def stop_signals(tell: Callable[[], None]) -> Iterator[None]:
    """Have `tell` called for each of the signals, up to two, inside the block."""
    if threading.current_thread() is not threading.main_thread() or not _take():
        yield
        return
    _running.append(tell)
    try:
        yield
    finally:
        _running.remove(tell)
        if not _running:
            _give_back()


def _take() -> bool:
    """Put our handlers in place; False when the program has its own."""
    global _count
    if _running:
        return True
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return False
    _count = 0
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as for a program in the background
            _before[number] = signal.signal(number, _on_signal)
    return True


def _give_back() -> None:
    while _before:
        signal.signal(*_before.popitem())


def _on_signal(_: int, __: FrameType | None) -> None:
    global _count
    _count += 1
    if _count > 1:
        _give_back()
    for tell in list(_running):
        tell()
