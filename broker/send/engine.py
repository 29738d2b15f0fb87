"""The compiled engine of a broker: machine code that takes plain sends (`fast_path.py`).

A process of its own makes the machine code while the broker serves in plain Python: that takes ten
seconds the first time on a machine, and a third of a second from numba's cache.
`python -m aerobee.broker.send.engine` makes it beforehand, as when an image is built.

The cache is in the user's cache folder. In the package's own folder, which is numba's choice, it
would stay behind when the package is uninstalled, and `import aerobee` would find an empty package.
"""

import asyncio
import importlib.util
import logging
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.aio.tasks import end

if TYPE_CHECKING:
    from .fast_path import CompiledSends

NICENESS = 10  # requests go first

log = logging.getLogger(__name__)


class CompiledEngine:
    """Makes the machine code ready, then calls `use` with the class that runs it."""

    _found: "type[CompiledSends] | None" = None  # ready in this process

    def __init__(self, use: "Callable[[type[CompiledSends]], None]") -> None:
        self._use = use
        self._task: asyncio.Task[bool] | None = None

    def start(self) -> None:
        """Begin, in the loop that runs. Does nothing where numba is not installed."""
        if CompiledEngine._found is not None:
            self._use(CompiledEngine._found)
        elif importlib.util.find_spec("numba") is None:
            log.info("numba is not installed, so sends are done in plain Python (extra: fast)")
        else:
            self._task = asyncio.create_task(self._run(), name="compiled-sends")

    async def load(self) -> None:
        """Use machine code from now on, made in this process if need be; ImportError where numba
        is not installed."""
        # Half a second of another thread, so that requests don't wait for it.
        CompiledEngine._found = found = await asyncio.to_thread(_load)
        self._use(found)

    async def ready(self) -> bool:
        """Wait until machine code does the sends; False where plain Python goes on doing them."""
        if self._task is not None:
            return await asyncio.shield(self._task)
        return CompiledEngine._found is not None

    async def stop(self) -> None:
        """Stop making it."""
        if self._task is not None:
            await end(self._task)

    async def _run(self) -> bool:
        try:
            choose_cache_folder()
            await _make()
            await self.load()
        except Exception as wrong:
            log.warning("sends are done in plain Python, as the machine code failed: %s", wrong)
            return False
        log.info("plain sends are done by machine code from now on")
        return True


async def _make() -> None:
    """Have another process fill numba's cache. RuntimeError with the last line of what it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = said.decode(errors="replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"it ended with {process.returncode}")


def _load() -> "type[CompiledSends]":
    """The class, once all functions it calls are compiled."""
    module = import_module(".fast_path", __package__)
    module.prepare()
    found: type[CompiledSends] = module.CompiledSends
    return found


def choose_cache_folder() -> None:
    """Tell numba, before its first import, where to keep machine code, unless NUMBA_CACHE_DIR does.

    Where that folder can't be written numba takes the package's folder.
    """
    base = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(base), "aerobee")
    if folder.is_absolute():
        os.environ.setdefault("NUMBA_CACHE_DIR", str(folder))


def main() -> None:
    """Make the machine code, or find it made."""
    choose_cache_folder()
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    _load()


if __name__ == "__main__":
    main()
