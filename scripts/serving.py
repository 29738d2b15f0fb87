"""The frame of every daemon: event loop, signals, limits, ready line, clean shutdown.

Parts start in order and stop in reverse order, also after an error. Standard output gets exactly
one line, when all parts serve. SIGTERM and Ctrl-C are the normal end.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Protocol

from ..protocol.open_files import open_files_max
from .output.command_error import CommandError

log = logging.getLogger(__name__)

FILES_WANTED = 8_192


class Part(Protocol):
    """A server or service with a start and a stop."""

    async def start(self) -> None:
        """Begin to serve."""

    async def stop(self) -> None:
        """Stop serving and release everything."""


Parts = Callable[["Stack"], Coroutine[Any, Any, str]]


class Stack:
    """The started parts, in order."""

    def __init__(self, exits: AsyncExitStack) -> None:
        self._exits = exits

    async def start(self, part: Part) -> None:
        """Start a part, to be stopped at the end; CommandError when its files are damaged."""
        try:
            await part.start()
        except ValueError as wrong:  # a file of the store that can't be read
            raise CommandError(str(wrong)) from wrong
        self._exits.push_async_callback(part.stop)


def run(parts: Parts) -> int:
    """Run a daemon until SIGTERM or Ctrl-C. `parts` starts all parts and returns the ready line."""
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
        _relax_collector()
        print(ready, flush=True)
        await told_to_stop.wait()
        log.info("stopping")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop factory of uvloop if it is installed, else None."""
    try:
        import uvloop
    except ImportError:
        return None  # the stock loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def end_with_input(on_line: Callable[[str], None] | None = None) -> None:
    """End as by SIGTERM when standard input, a pipe of the parent process, closes. `on_line` gets
    what the parent writes there."""
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _read_input, on_line)


def _read_input(on_line: Callable[[str], None] | None) -> None:
    data = os.read(sys.stdin.fileno(), 4_096)
    if on_line is not None:
        for line in data.decode(errors="replace").splitlines():
            on_line(line)
    if not data:
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        signal.raise_signal(signal.SIGTERM)


def _relax_collector() -> None:
    """Run the garbage collector rarely, and never on objects that exist since the start.

    Requests make few cycles; with the default thresholds the collector takes a twentieth of a SEND.
    A collection now would take a twentieth of the start, for 200 of 65,000 objects.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _raise_open_files_limit() -> None:
    """Raise the limit of open files, as each connection and each store file takes one; a warning
    where it stays low."""
    try:
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ImportError, ValueError, OSError) as wrong:
        log.info("the limit of open files stays as it is: %s", wrong)
    most = open_files_max()
    if most < FILES_WANTED:
        log.warning(
            "this process may have %d files and connections open, at least %d are wanted; raise "
            "`ulimit -Hn` (LimitNOFILE= of a unit), or clients and queues are refused early",
            most,
            FILES_WANTED,
        )
