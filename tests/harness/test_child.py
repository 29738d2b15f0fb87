"""A child's lines, orders and end, on small Python programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aerobee.harness.child import Child, ChildFailed, Reporter

ECHO = """
import json, sys
print(json.dumps({"event": "started"}), flush=True)
for line in sys.stdin:
    print("noise " + line, end="")
    print(json.dumps({"event": "echo", "text": line.strip()}), flush=True)
"""


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Reporter]:
    child = Reporter([sys.executable, "-c", ECHO], tmp_path / "stderr")
    with child:
        child.wait_event("started")
        yield child


def test_an_order_is_answered_by_the_next_report_and_not_by_an_older_one(echo: Reporter) -> None:
    assert echo.ask("one", "echo")["text"] == "one"
    assert echo.ask("two", "echo")["text"] == "two"
    assert [each["text"] for each in echo.events("echo")] == ["one", "two"]


def test_a_child_gets_the_settings_of_its_caller_and_not_those_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AEROBEE_OF_ALL", "1")
    monkeypatch.setenv("OTHER", "2")
    program = "import json, os; print(json.dumps({'event': 'got', **os.environ}), flush=True)"
    env = {"AEROBEE_OWN": "3"}
    with Reporter([sys.executable, "-c", program], tmp_path / "stderr", env) as child:
        got = child.wait_event("got")
    assert (got["OTHER"], got["AEROBEE_OWN"]) == ("2", "3")
    assert "AEROBEE_OF_ALL" not in got


def test_a_child_whose_input_is_closed_ends_by_itself(echo: Reporter) -> None:
    assert echo.close_input() == 0


def test_stop_is_sigterm_and_kill_is_sigkill(tmp_path: Path) -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    for end, code in ((Child.stop, 7), (Child.kill, -9)):
        child = Child([sys.executable, "-c", program], tmp_path / "stderr")
        child.wait_line(lambda line: line == "up", 30)
        end(child)
        assert child.process.returncode == code


def test_a_child_that_ends_instead_of_speaking_is_an_error_with_its_last_words(
    tmp_path: Path,
) -> None:
    program = "import sys; sys.stderr.write('no such store'); sys.exit(3)"
    with (
        Child([sys.executable, "-c", program], tmp_path / "stderr") as child,
        pytest.raises(ChildFailed, match="ended; standard error ends: 'no such store'"),
    ):
        child.wait_line(lambda line: "ready" in line, 30)


def test_a_silent_child_is_not_waited_for_longer_than_asked(echo: Reporter) -> None:
    with pytest.raises(ChildFailed, match=r"was silent for 0\.05 s"):
        echo.wait_line(lambda line: line == "never", 0.05)
