"""The compiled engine of a broker: machine code that takes the sends of the fast path
(`fast_path.py`), and on a slave makes queues and index from the master's log.

A process of its own makes the machine code while the broker serves in interpreted Python: that
takes ten seconds, once for these sources on a machine. Later brokers load it from numba's cache in
a third of a second. A master does so with its first message: it takes 50 MiB, which one without
needs not. `python -m aerobee.broker.send.engine` makes it beforehand, as when an image is built.

The cache is in the user's cache folder. In the package's own folder, which is numba's choice, it
would stay behind when the package is uninstalled, and `import aerobee` would find an empty package.
"""

import asyncio
import hashlib
import importlib.util
import logging
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from ...protocol.aio.tasks import end

if TYPE_CHECKING:
    from .fast_path import CompiledSends

NICENESS = 10  # of the process that a broker starts: requests go first
BEHIND = "--behind-requests"
# The rooms with compiled functions, and the file in numba's cache that names the states of them
# whose machine code is there, a digest a line.
SOURCES = ("protocol/kernels", "store/kernels", "broker/send")
PROCESSOR = (b"model name", b"flags", b"CPU part", b"Features")  # lines of /proc/cpuinfo
MADE_FILE, MADE_MAX = "aerobee-made", 32

log = logging.getLogger(__name__)


class CompiledEngine:
    """Makes the machine code ready, then calls `use` with the class that runs it."""

    _found: "type[CompiledSends] | None" = None  # ready in this process

    def __init__(self, use: "Callable[[type[CompiledSends]], None]") -> None:
        self._use = use
        self._task: asyncio.Task[bool] | None = None
        self._wanted = asyncio.Event()

    def start(self) -> None:
        """Have it made, in the loop that runs, if it is not there; it is loaded once it is wanted.
        Does nothing where numba is not installed."""
        if CompiledEngine._found is not None:
            self._use(CompiledEngine._found)
        elif importlib.util.find_spec("numba") is None:
            log.info("numba is not installed, so plain Python is used (extra: fast)")
        else:
            choose_cache_folder()
            self._task = asyncio.create_task(self._run(), name="compiled-sends")

    def want(self) -> None:
        """Load it now, or once it is made."""
        self._wanted.set()

    async def start_loaded(self) -> None:
        """Like `start`, but machine code that is made already is in use on return: a slave spends
        far less on each byte of its master's log then."""
        self.start()
        self.want()
        if self._task is not None and await asyncio.to_thread(is_made):
            await self.ready()

    async def load(self) -> None:
        """Use machine code from now on, made in this process if need be; ImportError where numba
        is not installed."""
        # Half a second of another thread, so that requests don't wait for it.
        CompiledEngine._found = found = await asyncio.to_thread(_load)
        self._use(found)

    async def ready(self) -> bool:
        """Want it, and wait until machine code does the sends; False where interpreted
        Python goes on doing them."""
        self.want()
        if self._task is not None:
            return await asyncio.shield(self._task)
        return CompiledEngine._found is not None

    async def stop(self) -> None:
        """Stop making it."""
        if self._task is not None:
            await end(self._task)

    async def _run(self) -> bool:
        try:
            if not await asyncio.to_thread(is_made):
                await _make()
            await self._wanted.wait()
            await self.load()
        except Exception as wrong:
            log.warning("plain Python is used, as the machine code failed: %s", wrong)
            return False
        log.info("machine code is used from now on")
        return True


async def _make() -> None:
    """Have another process fill numba's cache. RuntimeError with the last line of its errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        BEHIND,
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


def is_made() -> bool:
    """True if the cache has the machine code of these sources for this processor."""
    return _digest() in _all_made()


def _all_made() -> list[str]:
    try:
        return _made_file().read_text("ascii").split()
    except (OSError, ValueError):  # none, or not ours
        return []


def _made_file() -> Path:
    return Path(os.environ.get("NUMBA_CACHE_DIR", os.devnull), MADE_FILE)


def _digest() -> str:
    """All that numba compiles for: its version, Python's, the processor, the sources."""
    found = hashlib.sha256(f"{sys.version} {platform.machine()}".encode())
    with suppress(OSError), open("/proc/cpuinfo", "rb") as file:  # the first of equal processors
        lines = file.read(8_192).split(b"\n")
        found.update(b"".join(line for line in lines if line.startswith(PROCESSOR)))
    numba = importlib.util.find_spec("numba")
    root = Path(__file__).parents[2]
    sources = [path for room in SOURCES for path in sorted((root / room).glob("*.py"))]
    for path in [*sources, *([Path(numba.origin)] if numba and numba.origin else [])]:
        state = path.stat()  # whole seconds: layers of images may keep no more
        found.update(f"{path} {int(state.st_mtime)} {state.st_size}".encode())
    return found.hexdigest()


def _note_made() -> None:
    """Note in a file that the machine code is made, so that later processes need not load it to
    know. Without the file they do."""
    digest, file = _digest(), _made_file()
    known = [each for each in _all_made() if each != digest]
    with suppress(OSError), NamedTemporaryFile("w", dir=file.parent, delete=False) as written:
        written.write("\n".join([*known[1 - MADE_MAX :], digest]))
        written.flush()
        os.replace(written.name, file)


def main() -> None:
    """Make the machine code, or find it made. Who waits for it does so on a busy machine, too."""
    choose_cache_folder()
    if BEHIND in sys.argv[1:] and hasattr(os, "nice"):
        os.nice(NICENESS)
    _load()
    _note_made()


if __name__ == "__main__":
    main()
