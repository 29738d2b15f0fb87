"""Machine code for plain sends: made in a process of its own, then given to a broker that serves.

Making it takes ten seconds where that never happened on this machine, and a third of a second from
numba's cache; the broker serves all the while. `python -m aerobee.scripts.compiled_sends` makes it
beforehand, as when an image is built.

The cache is in the user's cache folder. In the package's own folder, which is numba's choice, it
would stay behind when the package is uninstalled, and `import aerobee` would find an empty package.
"""

import asyncio
import importlib.util
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from ..broker.server import Broker

NICENESS = 10  # whoever is served goes first

log = logging.getLogger(__name__)


class CompiledSends:
    """Has the broker take plain sends by machine code as soon as there is some."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to make it, if this broker can use it."""
        if not self._broker.may_have_lane:
            return
        if importlib.util.find_spec("numba") is None:
            log.info("numba is not installed, so sends are done in plain Python (extra: fast)")
            return
        choose_cache_folder()
        self._task = asyncio.create_task(self._run(), name="compiled-sends")

    async def stop(self) -> None:
        """Stop making it."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        try:
            await self._make()
            await self._broker.open_lane()
        except Exception as wrong:
            log.warning("sends are done in plain Python, as the machine code failed: %s", wrong)
            return
        log.info("plain sends are done by machine code from now on")

    async def _make(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __name__),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, told = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            lines = told.decode(errors="replace").strip().splitlines()
            raise RuntimeError(lines[-1] if lines else f"it ended with {process.returncode}")


def choose_cache_folder() -> None:
    """Tell numba, which is not imported yet, where to keep machine code, unless somebody has.

    Where nobody may write there it takes the package's folder.
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
    from ..broker.send import fast_path

    fast_path.prepare()


if __name__ == "__main__":
    main()
