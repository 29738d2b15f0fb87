"""The load generator in C: changes of its source, and what a broker may refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from aerobee.bench.loads import loadgen
from aerobee.bench.rates import ALL_TAGS_IN_EACH, SENDS


def test_only_the_refusals_of_a_busy_broker_are_borne_and_few_of_them() -> None:
    assert loadgen.refused_max(SENDS, loadgen.SYSTEM_BUSY) == SENDS.count / 100
    assert loadgen.refused_max(SENDS, "14") == 0


def test_a_generator_without_the_place_to_change_is_named(tmp_path: Path) -> None:
    source = tmp_path / "loadgen.c"
    for text in ("", "id % 4, per > 1; id % 4, per > 1"):
        source.write_text(text)
        with pytest.raises(loadgen.LoadFailed, match="does not have 'id % 4, per > 1' once"):
            loadgen.build(source, tmp_path, ALL_TAGS_IN_EACH)
