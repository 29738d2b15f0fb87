"""What every daemon does around its parts: loop, signals, log, limits, one ready line, a clean end.

Parts start in order and stop in reverse, whatever happens in between. Standard output gets exactly
one line, when everything serves. SIGTERM and Ctrl-C are the normal way to end.
"""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Protocol

from .output.command_error import Failed

log = logging.getLogger(__name__)


class Part(Protocol):
    """Something that serves between its start and its stop."""

    async def start(self) -> None:
        """Begin to serve."""

    async def stop(self) -> None:
        """Leave nothing behind."""


Parts = Callable[["Stack"], Coroutine[Any, Any, str]]


class Stack:
    """The parts that were started, in order."""

    def __init__(self, exits: AsyncExitStack) -> None:
        self._exits = exits

    async def start(self, part: Part) -> None:
        """Start a part and remember to stop it; Failed when what it finds is wrong."""
        try:
            await part.start()
        except ValueError as wrong:  # a file of the store that can't be read
            raise Failed(str(wrong)) from wrong
        self._exits.push_async_callback(part.stop)


def run(parts: Parts) -> int:
    """Run a daemon until SIGTERM or Ctrl-C. `parts` starts them all and gives the ready line."""
    _raise_open_files_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(parts))
    return 0


async def _serve(parts: Parts) -> None:
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told_to_stop.set)
    async with AsyncExitStack() as exits:
        ready = await parts(Stack(exits))
        _calm_collector()
        print(ready, flush=True)
        await told_to_stop.wait()
        log.info("stopping")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, if that is installed."""
    try:
        import uvloop
    except ImportError:
        return None  # the stock loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _calm_collector() -> None:
    """Let the cycle collector look seldom, and never at what was there from the start.

    Requests make few cycles; with the stock thresholds each SEND pays a twentieth for looking.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _raise_open_files_limit() -> None:
    """Each connection and each file of the store takes one; shells start with few."""
    try:
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ImportError, ValueError, OSError) as wrong:
        log.info("the limit of open files stays as it is: %s", wrong)
