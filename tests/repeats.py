"""Tests that failed, for tests/run.py: which of them run once more, and what came of that.

A test that waits for other processes may fail on a machine that has much else to do. It runs once
more, alone; a test within one process never does, nor one whose ledger misses a message.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypedDict

import pytest

FLAKY_FILE = Path("build") / "flaky.json"
LOG_CHARS_MAX = 20_000  # of a test, in the terminal and in the file; its end
NEVER_REPEATED = "tests.loss.ledger.Lost"


class Failure(TypedDict):
    """A test that failed, and all that it printed."""

    name: str
    log: str
    may_repeat: bool


class Repeats:
    """A plugin of the process that sees all results."""

    def __init__(self, config: pytest.Config) -> None:
        self.failures: Path | None = config.getoption("failures")
        repeated: Path | None = config.getoption("repeated")
        self.before: list[Failure] = json.loads(repeated.read_text()) if repeated else []
        self.logs: dict[str, str] = {}  # of this run, by name
        self.failed: dict[str, Failure] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes what a test printed, and its failure."""
        name = report.nodeid
        if self.before:
            self.logs[name] = self.logs.get(name, "") + _log(report)
        if report.failed:
            log = self.failed[name]["log"] if name in self.failed else ""
            log += _log(report)
            repeats = "process" in report.keywords and NEVER_REPEATED not in log
            self.failed[name] = Failure(name=name, log=log, may_repeat=repeats)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Writes what failed; of the tests that failed before, shows what has passed."""
        if self.failures is not None:
            self.failures.write_text(json.dumps(list(self.failed.values())))
        passed = [each for each in self.before if each["name"] not in self.failed]
        if not passed:
            return
        flaky = [
            {"name": each["name"], "failed": each["log"], "passed": self.logs.get(each["name"], "")}
            for each in passed
        ]
        FLAKY_FILE.parent.mkdir(exist_ok=True)
        FLAKY_FILE.write_text(json.dumps(flaky, indent=1))
        terminalreporter.section(f"FLAKY {len(flaky)}: failed, then passed alone ({FLAKY_FILE})")
        for one in flaky:
            terminalreporter.line(f"FLAKY {one['name']}")
            for state in ("failed", "passed"):
                terminalreporter.line(f"--- {state}:\n{one[state][-LOG_CHARS_MAX:]}")


def _log(report: pytest.TestReport) -> str:
    parts = [report.longreprtext, *(f"{title}:\n{text}" for title, text in report.sections)]
    return "".join(f"[{report.when}] {part}\n" for part in parts if part)
