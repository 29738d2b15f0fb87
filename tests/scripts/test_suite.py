"""The suite itself: which tier a test is in, what is repeated, and what a run leaves."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest

from .. import run, tiers
from ..repeats import NEVER_REPEATED, Repeats
from ..tiers import Place, Tier

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("path", "markers", "place"),
    [
        ("store/test_store.py", "", Place(Tier.DEFAULT)),
        ("store/test_store.py", "soak", Place(Tier.SOAK)),
        ("spark/test_plan.py", "", Place(Tier.DEFAULT)),
        ("spark/test_spark.py", "spark smoke", Place(Tier.INTEROP, is_process=True)),
        ("interop/test_tls.py", "", Place(Tier.INTEROP, is_process=True)),
        ("loss/test_kill.py", "smoke", Place(Tier.SOAK, is_process=True)),
        ("loss/test_ledger.py", "", Place(Tier.DEFAULT)),
        ("tidy/test_imports.py", "", Place(Tier.CHECK)),
    ],
)
def test_a_tier_comes_from_the_markers_or_the_folder(path: str, markers: str, place: Place) -> None:
    assert tiers.place(PurePosixPath(path), frozenset(markers.split())) == place


def test_every_row_of_the_table_is_a_place_that_there_is() -> None:
    missing = [each for each in tiers.PLACES if not (ROOT / "tests" / each).exists()]
    assert missing == []


@pytest.mark.parametrize(
    ("path", "text", "tier", "may"),
    [
        ("store/test_store.py", "def test_one(): ...", Tier.DEFAULT, True),
        ("store/test_store.py", "def test_one(): ...", Tier.SOAK, False),
        ("store/test_store.py", "@pytest.mark.soak", Tier.SOAK, True),
        ("store/test_store.py", "@pytest.mark.quarantine", Tier.SOAK, True),
        ("interop/test_tls.py", "def test_one(): ...", Tier.SMOKE, False),
        ("interop/test_tls.py", "@pytest.mark.smoke", Tier.SMOKE, True),
        ("spark/test_spark.py", "pytestmark = [pytest.mark.spark]", Tier.INTEROP, True),
    ],
)
def test_a_file_without_a_test_of_the_tier_is_not_read(
    path: str, text: str, tier: Tier, may: bool
) -> None:
    assert tiers.may_hold(PurePosixPath(path), text, tier) is may


def repeats(failures: Path | None = None, repeated: Path | None = None) -> Repeats:
    """The plugin of a run with these options."""
    options = {"failures": failures, "repeated": repeated}
    return Repeats(cast(pytest.Config, SimpleNamespace(getoption=options.get)))


def report(name: str, outcome: str, *markers: str, log: str = "", said: str = "") -> Any:
    """What pytest tells of a test."""
    return pytest.TestReport(
        name,
        ("", 0, ""),
        dict.fromkeys(markers, 1),
        cast(Any, outcome),
        log or None,
        "call",
        sections=[("Captured stdout call", said)] if said else [],
    )


class Terminal:
    """Keeps the lines that a plugin writes."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def section(self, title: str) -> None:
        self.lines.append(title)

    def line(self, text: str) -> None:
        self.lines.append(text)


def test_a_test_of_processes_may_be_repeated_but_not_where_a_message_was_lost(
    tmp_path: Path,
) -> None:
    plugin = repeats(failures=tmp_path / "failures")
    plugin.pytest_runtest_logreport(report("a", "failed", "process", log="too slow"))
    plugin.pytest_runtest_logreport(report("b", "failed", "process", log=f"E {NEVER_REPEATED}: m"))
    plugin.pytest_runtest_logreport(report("c", "failed", log="wrong"))
    plugin.pytest_runtest_logreport(report("d", "passed", "process"))
    plugin.pytest_terminal_summary(Terminal())
    failed = json.loads((tmp_path / "failures").read_text())
    assert [(each["name"], each["may_repeat"]) for each in failed] == [
        ("a", True),
        ("b", False),
        ("c", False),
    ]


def test_the_name_of_a_lost_message_is_that_of_its_error() -> None:
    from ..loss.ledger import Lost

    assert f"{Lost.__module__}.{Lost.__qualname__}" == NEVER_REPEATED


def test_what_passes_when_repeated_is_shown_as_flaky_with_both_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = [{"name": name, "log": "too slow", "may_repeat": True} for name in ("a", "b")]
    (tmp_path / "failures").write_text(json.dumps(before))
    plugin = repeats(repeated=tmp_path / "failures")
    plugin.pytest_runtest_logreport(report("a", "passed", "process", said="in time"))
    plugin.pytest_runtest_logreport(report("b", "failed", "process", log="too slow again"))
    terminal = Terminal()
    plugin.pytest_terminal_summary(terminal)
    text = "\n".join(terminal.lines)
    assert terminal.lines[0].startswith("FLAKY 1")
    assert "FLAKY a" in text
    assert "too slow" in text
    assert "in time" in text
    assert "FLAKY b" not in text
    assert [each["name"] for each in json.loads((tmp_path / "build/flaky.json").read_text())] == [
        "a"
    ]


@pytest.mark.parametrize(
    ("tier", "failed", "is_repeated"),
    [
        (Tier.SMOKE, [True], True),
        (Tier.SOAK, [True] * 3, True),
        (Tier.SMOKE, [True] * 4, False),
        (Tier.INTEROP, [True, False], False),
        (Tier.DEFAULT, [True], False),
    ],
)
def test_up_to_three_tests_of_processes_run_once_more_alone(
    tier: Tier,
    failed: list[bool],
    is_repeated: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[list[str]] = []
    failures = tmp_path / "failures"

    def pytest_fails_once(words: list[str], seconds: float) -> int:
        runs.append(words)
        return 1 if len(runs) == 1 else 0

    monkeypatch.setattr(run, "pytest", pytest_fails_once)
    found = [{"name": f"t{n}", "log": "", "may_repeat": may} for n, may in enumerate(failed)]
    failures.write_text(json.dumps(found))
    assert run.run(tier, ["tests"], failures) == (0 if is_repeated else 1)
    assert all(f"--tier={tier}" in words for words in runs)  # the second is as strict
    assert len(runs) == 1 + is_repeated
    if is_repeated:
        assert runs[1][-len(failed) :] == [each["name"] for each in found]
        assert "no:xdist" in runs[1]


@pytest.mark.parametrize(("words", "is_alone"), [(["tests"], False), (["tests/loss", "-s"], True)])
def test_what_tests_print_is_shown_by_one_process(
    words: list[str], is_alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[list[str]] = []

    def passes(words: list[str], seconds: float) -> int:
        runs.append(words)
        return 0

    monkeypatch.setattr(run, "pytest", passes)
    assert run.run(None, words, tmp_path / "failures") == 0
    assert ("no:xdist" in runs[0], "-n" in runs[0]) == (is_alone, not is_alone)


@pytest.mark.parametrize(
    ("used_gib", "free_mib", "is_enough"),
    [(1, 1_024, True), (1, 1_023, False), (900, 110 << 10, True), (900, 90 << 10, False)],
)
def test_a_run_on_a_disk_without_room_does_not_begin(
    used_gib: int,
    free_mib: int,
    is_enough: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    usage = SimpleNamespace(used=used_gib << 30, free=free_mib << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    monkeypatch.setattr(run, "run", lambda *_: 0)
    monkeypatch.setattr(run, "become_reaper", lambda: None)
    assert run.main([]) == (0 if is_enough else run.USAGE_ERROR)
    assert ("set TMPDIR to a folder" in capsys.readouterr().err) is not is_enough


@pytest.mark.parametrize("code", [2, 3, -9])
def test_a_run_that_was_ended_is_never_repeated(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = SimpleNamespace(send_signal=lambda number: None, wait=lambda seconds: code)
    failures = tmp_path / "failures"
    failures.write_text("[]")
    runs: list[list[str]] = []

    def is_ended(words: list[str], seconds: float) -> int:
        runs.append(words)
        return run.end(cast(Any, ended))

    monkeypatch.setattr(run, "pytest", is_ended)
    assert run.run(Tier.SMOKE, ["tests"], failures) > run.TESTS_FAILED
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("word", "is_path"),
    [
        ("tests/store", True),
        ("tests/store/test_platforms.py::test_x", True),
        ("store", False),  # a folder, but as in -k store
        ("torn", False),
        ("-x", False),
    ],
)
def test_a_path_is_one_below_the_tests(word: str, is_path: bool) -> None:
    assert run.is_test_path(word) is is_path


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans to another process")
def test_a_run_leaves_no_process_even_if_its_parent_has_ended() -> None:
    program = (
        "import subprocess\n"
        "from tests.run import become_reaper, descendants, end_all\n"
        "import os\n"
        "become_reaper()\n"
        "subprocess.run(['sh', '-c', 'sleep 1000 >/dev/null & '], check=True)\n"
        "print(len(list(descendants(os.getpid()))), flush=True)\n"
        "end_all()\n"
        "print(len(list(descendants(os.getpid()))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    first, killed, last = done.stdout.splitlines()
    assert (first, last) == ("1", "0")
    assert killed.startswith("still running, killed: ")


HANGS = """
import asyncio
import pytest

@pytest.mark.timeout(0.2)
async def test_that_hangs():
    await asyncio.Event().wait()  # for ever
"""


def test_a_test_that_hangs_fails_by_its_name_and_shows_where_it_waits(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    words = ["-p", "no:xdist", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", *words, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "::test_that_hangs - Failed: Timeout" in done.stdout
    assert "await asyncio.Event().wait()  # for ever" in done.stdout.partition("Captured")[2]
