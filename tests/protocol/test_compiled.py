"""Where compiled functions are kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")

PROGRAM = """
import numba
from aerobee.protocol import compiled

assert compiled.wide(7) == 7
print(repr(numba.core.config.CACHE_DIR))
print(compiled.wide.stats.cache_path)
"""


def run(**more: str) -> list[str]:
    """What the program prints: numba's own folder afterwards, and where the function is kept."""
    clean = {name: text for name, text in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=clean | more, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_compiled_functions_are_kept_outside_of_the_package(tmp_path: Path) -> None:
    others, ours = run(XDG_CACHE_HOME=str(tmp_path))
    assert Path(ours).is_relative_to(tmp_path / "aerobee")
    assert list(Path(ours).glob("*.nbi"))
    assert others == "''"  # other packages' functions stay where numba puts them


def test_the_folder_that_numba_is_given_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "numba"
    others, ours = run(NUMBA_CACHE_DIR=str(folder), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert Path(ours).is_relative_to(folder)
    assert others == repr(str(folder))
    assert not (tmp_path / "cache").exists()


def test_a_cache_folder_that_can_not_be_made_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "aerobee").write_text("in the way")
    _, ours = run(XDG_CACHE_HOME=str(tmp_path))
    assert not Path(ours).is_relative_to(tmp_path)
