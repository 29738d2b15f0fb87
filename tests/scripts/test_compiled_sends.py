"""Where machine code is kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")

# `python -m aerobee.scripts.compiled_sends` and a broker's process, each with one function to make.
BEFOREHAND = """
from aerobee.scripts import compiled_sends

def prepare():
    from aerobee.protocol.kernels import compiled
    assert compiled.wide(7) == 7
    print(compiled.wide.stats.cache_path)

import sys, types
sys.modules["aerobee.broker.send.fast_path"] = types.SimpleNamespace(prepare=prepare)
import aerobee.broker.send
aerobee.broker.send.fast_path = sys.modules["aerobee.broker.send.fast_path"]
"""
BY_HAND = BEFOREHAND + "compiled_sends.main()"
IN_A_BROKER = (
    BEFOREHAND
    + """
import asyncio

class Broker:
    may_have_lane = True

    async def open_lane(self):
        prepare()

async def run():
    sys.executable = "/bin/true"  # has made it
    sends = compiled_sends.CompiledSends(Broker())
    await sends.start()
    await sends._task

asyncio.run(run())
"""
)


def kept(program: str, **more: str) -> Path:
    """The folder where the function is kept."""
    clean = {name: text for name, text in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=clean | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.mark.parametrize("program", [BY_HAND, IN_A_BROKER], ids=["by hand", "in a broker"])
def test_machine_code_is_kept_outside_of_the_package(tmp_path: Path, program: str) -> None:
    folder = kept(program, XDG_CACHE_HOME=str(tmp_path))
    assert folder.is_relative_to(tmp_path / "aerobee")
    assert list(folder.glob("*.nbi"))


def test_the_folder_that_numba_is_given_is_used(tmp_path: Path) -> None:
    given, cache = tmp_path / "numba", tmp_path / "cache"
    folder = kept(BY_HAND, NUMBA_CACHE_DIR=str(given), XDG_CACHE_HOME=str(cache))
    assert folder.is_relative_to(given)
    assert not cache.exists()


def test_a_cache_folder_that_can_not_be_made_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "aerobee").write_text("in the way")
    folder = kept(BY_HAND, XDG_CACHE_HOME=str(tmp_path))
    assert not folder.is_relative_to(tmp_path)
