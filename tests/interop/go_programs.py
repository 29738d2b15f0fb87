"""The Go client's programs in go/, built once per source state and cached.

The first build downloads the modules from the Go module proxy and checks them against go.sum.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from aerobee.harness.child import Reporter

SOURCES = Path(__file__).resolve().parent / "go"


class GoMissing(RuntimeError):
    """What the machine lacks, in one sentence."""


class NotBuilt(RuntimeError):
    """The build failed or the modules are not available; the message is the output of go."""


def build() -> Path:
    """The path of the program, built first if necessary."""
    go = shutil.which("go")
    if go is None:
        raise GoMissing("go is not on the PATH; install Go 1.19 or newer")
    base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    cache = base / "aerobee-interop" / "go"
    cache.mkdir(parents=True, exist_ok=True)
    program = cache / f"programs-{_digest()}"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two concurrent runs only one builds
        if not program.exists():
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                built = Path(scratch) / "programs"
                argv = [go, "build", "-mod=readonly", "-buildvcs=false", "-o", str(built), "."]
                done = subprocess.run(argv, cwd=SOURCES, capture_output=True, text=True)
                if done.returncode != 0:
                    raise NotBuilt(f"go build failed: {(done.stdout + done.stderr)[-2_000:]}")
                built.rename(program)
    return program


class Go:
    """Starts the programs and stops the ones that still run at the end of the module."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._running: list[Reporter] = []

    def start(self, word: str, **orders: object) -> Reporter:
        """Starts a program: start("consume", namesrv=..., topic=...), True for a bare flag."""
        words: list[str] = []
        for name, value in orders.items():
            words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        home = Path(tempfile.mkdtemp(prefix=f"{word}-", dir=self._folder))
        # A broadcasting consumer keeps its offsets in HOME; the variable would override the flags.
        env = {"HOME": str(home), "NAMESRV_ADDR": ""}
        program = Reporter([str(self._program), word, *words], home / "stderr", env=env, cwd=home)
        self._running.append(program)
        return program

    def stop(self) -> None:
        """Stops all programs."""
        for program in self._running:
            if program.process.poll() is None:
                program.process.terminate()
        for program in self._running:
            program.wait(10)


def _digest() -> str:
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]
