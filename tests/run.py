"""Runs a tier of the suite, or the tests below given paths: what scripts/test does in .venv.

The run has a limit; at its end, and after Ctrl-C, no process that it started is left.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
from tests.tiers import TEST_SECONDS, Tier  # noqa: E402
from tests.waiting import SLOWNESS  # noqa: E402

RUN_SECONDS = {
    Tier.DEFAULT: 1_500,
    Tier.SMOKE: 1_200,
    Tier.INTEROP: 4_500,
    Tier.SOAK: 4_500,
    None: 12_000,  # all, or paths
}
END_SECONDS = 60  # from Ctrl-C to SIGKILL
GRACE_SECONDS = 30  # for a test that its limit did not end: then its worker ends, with all stacks
REPEATED_MAX = 3
# What the garbage collector finds fails whatever test it comes in; elsewhere it is a warning.
STRICT_WARNINGS = (
    *("-W", "error::ResourceWarning"),
    *("-W", "error::pytest.PytestUnraisableExceptionWarning"),
)
WORKERS = os.environ.get("AEROBEE_TEST_PROCESSES", "3")  # many tests wait for others
FREE_BYTES = 1 << 30  # for temporary files; the default tier needs a third of it
USED_PERCENT_MAX = 90  # diskSpaceWarningLevelRatio: above it the daemons take no messages
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
TESTS_FAILED, INTERRUPTED, USAGE_ERROR = 1, 2, 4  # pytest's exit codes


def main(words: Sequence[str]) -> int:
    """Runs the tests that the words choose; the exit code is pytest's."""
    parser = argparse.ArgumentParser("scripts/test", description=__doc__, add_help=False)
    parser.add_argument("-h", "--help", action="store_true")
    group = parser.add_mutually_exclusive_group()
    for each in (Tier.SMOKE, Tier.INTEROP, Tier.SOAK):
        group.add_argument(f"--{each}", action="store_const", const=each, dest="tier")
    group.add_argument("--all", action="store_const", const=None, dest="tier")
    parser.set_defaults(tier=Tier.DEFAULT)
    known, rest = parser.parse_known_args(words)
    if known.help:
        parser.print_help()
        print("\nOther words go to pytest; a path runs all tests below it, of every tier.")
        return 0
    tier: Tier | None = known.tier
    if any(is_test_path(word) for word in rest):
        tier = None
    else:
        rest = ["tests", *(["--ignore=tests/tidy"] if tier is None else []), *rest]
    # A caller that ignores SIGINT, such as a script with `&`, hands that down.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    become_reaper()
    if lack := lack_of_room(Path(tempfile.gettempdir())):
        print(lack, file=sys.stderr)
        return USAGE_ERROR
    with tempfile.TemporaryDirectory(prefix="aerobee-tests-") as folder:
        return run(tier, rest, Path(folder) / "failures.json")


def lack_of_room(folder: Path) -> str:
    """What is wrong with the disk of the temporary files; nothing where the tests can run."""
    disk = shutil.disk_usage(folder)
    used = 100 * disk.used / (disk.used + disk.free)
    if disk.free >= FREE_BYTES and used <= USED_PERCENT_MAX:
        return ""
    return (
        f"{folder} has {disk.free >> 20:,} MiB free and is {used:.0f} % full; the tests need "
        f"{FREE_BYTES >> 20:,} MiB, and brokers take no message above {USED_PERCENT_MAX} %: set "
        "TMPDIR to a folder on a disk with more room"
    )


def is_test_path(word: str) -> bool:
    """Whether a word names tests below tests/, and not a word to look for: -k store."""
    path = (ROOT / word.partition("::")[0]).resolve()
    return path.exists() and path.is_relative_to(ROOT / "tests")


def run(tier: Tier | None, words: list[str], failures: Path) -> int:
    """Runs pytest, and once more what may be repeated."""
    name = tier or "paths"
    limit = (TEST_SECONDS[tier or Tier.SOAK] + GRACE_SECONDS) * SLOWNESS
    strict = ["-o", "asyncio_debug=true", *STRICT_WARNINGS] if tier is Tier.SOAK else []
    common = [
        *([] if tier is None else [f"--tier={tier}"]),
        *strict,
        *("--durations=25", "--durations-min=1"),
        *("-o", f"faulthandler_timeout={limit}", "-o", "faulthandler_exit_on_timeout=true"),
    ]
    # What a test prints is shown as it comes (-s) by one process only.
    is_shown = not {"-s", "--capture=no"}.isdisjoint(words)
    several = ["-n", WORKERS, "--dist", "loadfile", "--no-loadscope-reorder"]
    files = ["-p", "no:xdist"] if is_shown else several
    junit = f"--junit-xml=build/tests-{name}.xml"
    seconds = RUN_SECONDS[tier] * SLOWNESS
    code = pytest([*files, *common, junit, f"--failures={failures}", *words], seconds)
    if code != TESTS_FAILED or tier is Tier.DEFAULT or not failures.exists():
        return code
    failed = json.loads(failures.read_text())
    if not 0 < len(failed) <= REPEATED_MAX or not all(each["may_repeat"] for each in failed):
        return code
    print(f"{len(failed)} failed: once more, alone", flush=True)
    names = [each["name"] for each in failed]
    junit = f"--junit-xml=build/tests-{name}-repeated.xml"
    return pytest(["-p", "no:xdist", *common, junit, f"--repeated={failures}", *names], seconds)


def pytest(words: list[str], seconds: float) -> int:
    """Runs pytest to its end, at most so long; ends whatever it has left."""
    process = subprocess.Popen([sys.executable, "-m", "pytest", *words], cwd=ROOT)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        print(f"the run took longer than its limit of {seconds:g} s and is ended", flush=True)
        return end(process)
    except KeyboardInterrupt:
        return end(process)
    finally:
        end_all()


def end(process: subprocess.Popen[bytes]) -> int:
    """Interrupts pytest, which prints what it has. The exit code is never that of a run whose
    failed tests may be repeated."""
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        return max(process.wait(END_SECONDS), INTERRUPTED)
    process.kill()
    return max(process.wait(), INTERRUPTED)


def become_reaper() -> None:
    """Processes whose parents have ended become children of this one (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_all() -> None:
    """Kills all that is left of a run, and names it."""
    while left := list(descendants(os.getpid())):
        for pid, command in left:
            print(f"still running, killed: {command[:200]} ({pid})", flush=True)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """The living processes below one, with their command lines (Linux)."""
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        children: list[str] = []
        with suppress(OSError):
            children = tasks.read_text().split()
        for child in children:
            with suppress(OSError):
                state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
                command = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ")
                if state != "Z":  # it has not ended yet
                    yield int(child), command.decode(errors="replace")
                yield from descendants(int(child))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
