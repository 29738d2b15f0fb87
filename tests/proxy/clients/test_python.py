"""rocketmq-python-client before our proxy: each kind of message, each kind of consumer."""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from .told import EXAMPLES, FOUND, PRINTED, check_deliveries, printed_by_example, told_by

NAME = "rocketmq-python-client==5.1.2"
PROGRAM = Path(__file__).with_name("python_program.py")
ONE_PROCESS = Path(__file__).with_name("one_process_program.py")
INSTALL_SECONDS = 300
PROGRAM_SECONDS = 120


@pytest.fixture(scope="module")
def packages() -> Path:
    """A folder with the client and what it needs, apart from our environment; skips with the reason
    where it can't be installed, which in CI is a failure."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    folder = cache / "aerobee" / NAME.replace("==", "-")
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as part:
            target = Path(part) / "packages"
            argv = [sys.executable, "-m", "pip", "install", "-q", "--target", str(target), NAME]
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
            )
            if done.returncode:
                why = f"{NAME} can't be installed: {done.stderr.strip()[-300:]}"
                if os.environ.get("CI") == "true":
                    pytest.fail(f"CI must run the Python client: {why}")
                pytest.skip(why)
            target.rename(folder)
    return folder


@pytest.mark.smoke
def test_it_finds_every_kind_of_message(packages: Path) -> None:
    words = [sys.executable, str(PROGRAM)]
    check_deliveries(asyncio.run(told_by(words, {"PYTHONPATH": str(packages)})), FOUND)


def test_the_example_prints_what_it_received(packages: Path) -> None:
    words = [sys.executable, str(EXAMPLES / "first_message.py")]
    assert asyncio.run(printed_by_example(words, {"PYTHONPATH": str(packages)})) == PRINTED


@pytest.mark.smoke
def test_it_shares_a_process_with_our_proxy_and_receives_the_largest_message(
    packages: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, str(ONE_PROCESS)],
        env=os.environ | {"PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "received True 2\n"), done.stderr[-2_000:]
