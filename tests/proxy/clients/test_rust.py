"""The crate rocketmq before our proxy: each kind of message, and its simple consumer."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .told import FOUND, PRINTED, check_deliveries, printed_by_example, told_by

SOURCE = Path(__file__).with_name("rust")
BUILD_SECONDS = 900


@pytest.fixture(scope="module")
def program() -> Path:
    """The program, built in the cache; skips with the reason where there is no cargo or the crate
    can't be had. In CI a build that fails is a failure."""
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    target = cache / "aerobee" / "rust-program"
    done = subprocess.run(
        ["cargo", "build", "-q", "--locked", "--target-dir", str(target)],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    if done.returncode:
        why = f"the program with the crate rocketmq can't be built: {done.stderr[-500:]}"
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must run the client in Rust: {why}")
        pytest.skip(why)
    return target / "debug" / "rust-program"


def test_it_finds_every_kind_of_message(program: Path) -> None:
    wanted = {
        part: found for part, found in FOUND.items() if part != "pushed"
    }  # it has no push consumer
    check_deliveries(asyncio.run(told_by([str(program)], {})), wanted)


def test_the_example_prints_what_it_received(program: Path) -> None:
    words = [str(program.with_name("first-message"))]
    assert asyncio.run(printed_by_example(words, {})) == PRINTED
