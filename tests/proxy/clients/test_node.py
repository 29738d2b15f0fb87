"""rocketmq-client-nodejs before our proxy: each kind of message, each kind of consumer."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .told import EXAMPLES, FOUND, PRINTED, check_deliveries, printed_by_example, told_by

NAME = "rocketmq-client-nodejs@1.0.8"
PROGRAM = Path(__file__).with_name("node_program.js")
INSTALL_SECONDS = 300


@pytest.fixture(scope="module")
def folder() -> Path:
    """A folder with the client; skips with the reason where there is no Node.js or the client can't
    be installed, which in CI is a failure."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    found = cache / "aerobee" / NAME.replace("@", "-")
    why = ""
    if shutil.which("node") is None or shutil.which("npm") is None:
        why = "node and npm are not installed"
    elif not (found / "node_modules" / "rocketmq-client-nodejs").exists():
        found.mkdir(parents=True, exist_ok=True)
        argv = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(found), NAME]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
        if done.returncode:
            why = f"{NAME} can't be installed: {done.stderr.strip()[-300:]}"
    if why and os.environ.get("CI") == "true":
        pytest.fail(f"CI must run the client of Node.js: {why}")
    if why:
        pytest.skip(why)
    return found


def test_it_finds_every_kind_of_message(folder: Path) -> None:
    words = ["node", str(PROGRAM), str(folder)]
    check_deliveries(asyncio.run(told_by(words, {"HOME": str(folder)})), FOUND)


def test_the_example_prints_what_it_received(folder: Path) -> None:
    words = ["node", str(EXAMPLES / "first_message.js")]
    environment = {"HOME": str(folder), "NODE_PATH": str(folder / "node_modules")}
    assert asyncio.run(printed_by_example(words, environment)) == PRINTED
