"""scripts/venv: what reads the environment without running it finds the package there, too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = "from aerobee.client import Producer\n\nreveal_type(Producer().group)\n"


@pytest.mark.requirement("Documents: Editors and type checkers find the package in .venv")
def test_a_type_checker_finds_the_package_in_the_environment(tmp_path: Path) -> None:
    """As editors do: they follow paths, not the import hook of an editable install."""
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {name: value for name, value in os.environ.items() if name != "MYPYPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "program.py"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert 'Revealed type is "str"' in done.stdout.replace("builtins.", "")


def test_pyspark_finds_the_source_in_the_environment() -> None:
    pytest.importorskip("pyspark")
    program = "import pkgutil; print([each.name for each in pkgutil.iter_modules()])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert "'pyspark_rocketmq'" in done.stdout
