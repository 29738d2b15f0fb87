"""The Go client's programs of this folder (go/), built once per content into a cache.

The modules come from the Go module proxy at the first build, checked against go.sum.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from aerobee.scripts.harness.child import Reporter

SOURCES = Path(__file__).resolve().parent / "go"


class GoMissing(RuntimeError):
    """What the machine lacks, in one sentence."""


class NotBuilt(RuntimeError):
    """The programs have an error, or their modules can't be had: what go said."""


def build() -> Path:
    """The program, built if that is not done yet."""
    go = shutil.which("go")
    if go is None:
        raise GoMissing("go is not on the PATH; install Go 1.19 or newer")
    base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    cache = base / "aerobee-interop" / "go"
    cache.mkdir(parents=True, exist_ok=True)
    program = cache / f"programs-{_digest()}"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once build once
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
    """Starts the programs and ends those that are left when the module is through."""

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
        # A broadcasting consumer keeps its offsets at home; the variable would win over the orders.
        env = {"HOME": str(home), "NAMESRV_ADDR": ""}
        program = Reporter([str(self._program), word, *words], home / "stderr", env=env, cwd=home)
        self._running.append(program)
        return program

    def stop(self) -> None:
        """Ends all of them."""
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
