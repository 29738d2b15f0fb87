"""scripts/venv: what reads the environment without running it finds the package there, too."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..waiting import PROCESS, wait_until

ROOT = Path(__file__).parents[2]
PROGRAM = "from aerobee.client import Producer\n\nreveal_type(Producer().group)\n"


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


PYTHON = """\
#!/bin/sh
case "$*" in
*"-m venv .venv"*) mkdir -p .venv/bin .venv/lib/python3/site-packages; cp "$0" .venv/bin/python ;;
*"-m pip install"*) echo installed >>log; until [ -e may-end ]; do sleep 0.01; done ;;
esac
"""


@pytest.mark.skipif(shutil.which("flock") is None, reason="without flock both install")
def test_two_that_begin_at_once_install_once(tmp_path: Path) -> None:
    for each in ("pyproject.toml", "constraints.txt", "scripts/venv"):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / each, tmp_path / each)
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    log = tmp_path / "log"
    log.touch()

    def begin() -> subprocess.Popen[bytes]:
        words = [str(tmp_path / "scripts" / "venv"), "dev"]
        return subprocess.Popen(words, env=os.environ | {"PYTHON": str(python)})

    def installed() -> int:
        return len(log.read_text().split())

    may_end = tmp_path / "may-end"
    with contextlib.ExitStack() as started:
        first = started.enter_context(begin())
        started.callback(may_end.touch)
        wait_until(installed, pause=0.01)
        second = started.enter_context(begin())
        started.callback(may_end.touch)
        wait_until(lambda: waits_for_a_lock(second.pid) or installed() > 1, pause=0.01)
        may_end.touch()
        assert (first.wait(PROCESS), second.wait(PROCESS)) == (0, 0)
    assert installed() == 1


def waits_for_a_lock(pid: int) -> bool:
    """Whether the shell of that process waits for flock (Linux)."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if Path(f"/proc/{child}/comm").read_text() == "flock\n":
                return True
    return False
