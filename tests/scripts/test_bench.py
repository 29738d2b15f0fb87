"""The benchmark's table and its verdict; the measures themselves need a machine to themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from aerobee.scripts import bench, loadgen
from aerobee.scripts.measures import CASES, Compared, Growth


def row(ratio: float, *, holds: bool) -> Compared:
    return Compared("SEND", "messages/s", 1_000.0, 1_000.0 * ratio, ">= 2.5", holds)


@pytest.mark.parametrize(
    ("compared", "calls", "grown", "missed"),
    [
        ([row(3.0, holds=True)], {"SEND": 11.9}, [Growth("SEND", 100.0, 91.0)], 0),
        ([row(2.0, holds=False)], {"SEND": 11.9}, [Growth("SEND", 100.0, 91.0)], 1),
        ([row(3.0, holds=True)], {"SEND": 12.1}, [Growth("SEND", 100.0, 91.0)], 1),
        ([row(3.0, holds=True)], {"SEND": 11.9}, [Growth("SEND", 100.0, 90.0)], 1),
    ],
)
def test_the_report_says_of_each_mark_whether_it_was_reached(
    compared: list[Compared], calls: dict[str, float], grown: list[Growth], missed: int
) -> None:
    options = bench.read_options(["--quick"])
    report = bench.report(["--quick"], options, compared, calls, grown)
    assert report.count(bench.MISSED) == missed
    assert "`scripts/bench --quick`" in report
    assert f"| {compared[0].ratio:.2f} |" in report


def test_a_missing_load_generator_is_named_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "loadgen.c"
    assert bench.main(["--loadgen", str(missing), "--scratch", str(tmp_path)]) == 2
    assert f"bench: {missing} does not exist: name the load" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_only_the_refusals_of_a_busy_broker_are_borne_and_few_of_them() -> None:
    load = CASES[0].load
    assert loadgen.refused_max(load, loadgen.SYSTEM_BUSY) == load.count / 100
    assert loadgen.refused_max(load, "14") == 0
