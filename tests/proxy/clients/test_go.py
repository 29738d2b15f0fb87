"""The Go client of RocketMQ 5 before our proxy. Its module is not to be had everywhere, so the test
builds it from its source: AEROBEE_GO_CLIENT names the folder golang of apache/rocketmq-clients."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .told import EXAMPLES, FOUND, PRINTED, check_deliveries, printed_by_example, told_by

SOURCE = Path(__file__).with_name("go")
MODULE = "github.com/apache/rocketmq-clients/golang/v5"
BUILD_SECONDS = 900
PARTS = ("simple", "ordered", "delayed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both programs; skips with the reason without Go or the client's source."""
    source = os.environ.get("AEROBEE_GO_CLIENT", "")
    if not source:
        pytest.skip("AEROBEE_GO_CLIENT does not name the source of the Go client")
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    folder = tmp_path_factory.mktemp("go")
    for each in (SOURCE / "main.go", EXAMPLES / "first_message.go"):
        (folder / each.stem).mkdir()
        shutil.copy(each, folder / each.stem)
    shutil.copy(Path(source) / "go.sum", folder)
    (folder / "go.mod").write_text(
        f"module program\n\ngo 1.24\n\nrequire {MODULE} v5.0.0\n\nreplace {MODULE} => {source}\n"
    )
    done = subprocess.run(
        ["go", "build", "-mod=mod", "-o", "bin/", "./..."],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return folder


def test_it_finds_every_kind_of_message(folder: Path) -> None:
    words = [str(folder / "bin" / "main")]
    found = asyncio.run(told_by(words, {"HOME": str(folder)}))
    check_deliveries(found, {part: FOUND[part] for part in PARTS})


def test_the_example_prints_what_it_received(folder: Path) -> None:
    words = [str(folder / "bin" / "first_message")]
    assert asyncio.run(printed_by_example(words, {"HOME": str(folder)})) == PRINTED
