"""Programs that use Spark: one process runs them after each other, since a JVM takes long to start.

Tests that kill a program, or send it a signal, start it by themselves.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from aerobee.harness.child import Child, Reporter

from ..waiting import PROCESS

SPARK_SECONDS = 3 * PROCESS  # of one program; a tenth of it on a quiet machine


class Driver:
    """The process, which works in `folder`."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        argv = [sys.executable, str(Path(__file__).with_name("driver.py"))]
        self._process = Reporter(argv, folder / "driver.stderr", env, cwd=folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close_input()  # which ends the JVM, too

    def run(self, program: Path, *words: str) -> str:
        """What a program prints."""
        order = json.dumps([str(program), *words])
        ended = self._process.ask(order, "ended", SPARK_SECONDS)
        assert not ended["failed"], f"{ended['failed'][-3000:]} {self._process.tail()}"
        return str(ended["out"])

    def found_by(self, program: Path, *words: str) -> dict[str, Any]:
        """What a program prints behind FOUND, as JSON."""
        lines = self.run(program, *words).splitlines()
        (line,) = (each for each in lines if each.startswith("FOUND "))
        result: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
        return result


def has_ended(child: Child) -> bool:
    """False while it runs; a program that has ended fails the test."""
    assert child.process.poll() is None, child.tail()
    return False


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with Driver(tmp_path_factory.mktemp("spark-driver")) as driver:
        yield driver
