"""The command of the benchmark; the measures themselves need a machine to themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from aerobee.bench import command


def test_a_missing_load_generator_is_named_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "loadgen.c"
    assert command.main(["--loadgen", str(missing), "--scratch", str(tmp_path)]) == 2
    assert f"bench: {missing} does not exist: name the load" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_usual_parts_have_no_timers() -> None:
    assert [*command.read_options([]).only, "timers"] == list(command.PARTS)
