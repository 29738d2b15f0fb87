"""What the benchmark measures of filters, with too few rounds to mean anything."""

from pathlib import Path

import pytest
from aerobee.bench import filter_measures
from aerobee.bench.filter_measures import EXPRESSIONS, evaluations
from aerobee.bench.loads import loadgen


def test_each_expression_is_held_against_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_measures, "EVALUATIONS", 5)
    said: list[str] = []
    rows = evaluations(1, said.append)
    assert [row.name for row in rows] == [f"`{text}`" for text in EXPRESSIONS]
    assert {row.wanted for row in rows} == {">= 200,000"}
    assert len(said) == len(EXPRESSIONS)
    monkeypatch.setattr(filter_measures, "EVALUATIONS_MIN", 1 << 60)
    assert not any(row.holds for row in evaluations(1, said.append))


def test_a_generator_without_the_place_to_change_is_named(tmp_path: Path) -> None:
    source = tmp_path / "loadgen.c"
    for text in ("", "id % 4, per > 1; id % 4, per > 1"):
        source.write_text(text)
        with pytest.raises(loadgen.LoadFailed, match="does not have 'id % 4, per > 1' once"):
            filter_measures._built(
                source, tmp_path, "fill", filter_measures.ONE_TAG_A_QUEUE, "something else"
            )
