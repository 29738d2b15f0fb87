"""What the benchmark measures of filters, with too few rounds to mean anything."""

from pathlib import Path

import pytest
from aerobee.bench import filters
from aerobee.bench.command import read_options
from aerobee.bench.filters import EXPRESSIONS, evaluations
from aerobee.bench.report import Held
from aerobee.bench.turns import Run


def test_each_expression_is_held_against_the_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "EVALUATIONS", 5)
    run = Run(tmp_path, read_options(["--quick"]))
    rows = evaluations(run)
    assert [row.name for row in rows] == [f"`{text}`" for text in EXPRESSIONS]
    assert {row.wanted for row in rows if isinstance(row, Held)} == {">= 200,000"}
    monkeypatch.setattr(filters, "MARK", ">= 9,000,000,000")
    assert [row.holds for row in evaluations(run) if isinstance(row, Held)] == [False] * len(rows)
