"""The shell scripts are short, stop at the first error, and can be run."""

import os
import subprocess

import pytest

from . import tree

LINES_MAX = 25
SCRIPTS = sorted(
    path
    for path in [*(tree.ROOT / "scripts").iterdir(), *(tree.ROOT / ".ci").iterdir()]
    if path.is_file() and not path.suffix
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_short_and_stops_at_the_first_error(script: os.PathLike[str]) -> None:
    with open(script) as file:
        lines = file.read().splitlines()
    assert lines[0].startswith("#!")
    assert lines[1].startswith("# "), "say what it does"
    assert any(line.startswith("set -eu") for line in lines)
    assert len(lines) <= LINES_MAX, "what is longer belongs in Python, with tests"
    assert os.access(script, os.X_OK)
    shell = "bash" if "bash" in lines[0] else "sh"
    assert subprocess.run([shell, "-n", script], check=False).returncode == 0
