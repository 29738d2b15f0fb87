"""The compiled engine: the settings that enable it, and the cache of its machine code."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")

from aerobee.broker.send.engine import CompiledEngine
from aerobee.broker.server import Broker
from aerobee.protocol import codes

from ..conftest import Caller, Config

PYTHON = sys.executable
# Two programs that each compile one function: the command, and a broker's process.
BEFOREHAND = """
from aerobee.broker.send import engine

def prepare():
    from aerobee.protocol.kernels import compiled
    assert compiled.wide(7) == 7
    print(compiled.wide.stats.cache_path)

import sys, types
sys.modules["aerobee.broker.send.fast_path"] = types.SimpleNamespace(prepare=prepare, PlainLane=1)
"""
BY_HAND = BEFOREHAND + "engine.main()"
IN_A_BROKER = (
    BEFOREHAND
    + """
import asyncio

async def run():
    sys.executable = "/bin/true"  # has made it
    compiled = engine.CompiledEngine(lambda found: None)
    compiled.start()
    assert await compiled.ready()

asyncio.run(run())
"""
)


@pytest.fixture(autouse=True)
def made_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if another process had compiled the code before and this process had none."""
    monkeypatch.setattr(sys, "executable", "/bin/true")
    monkeypatch.setattr(CompiledEngine, "_found", None)


async def test_a_broker_uses_the_compiled_engine_and_a_second_one_has_it_at_once(
    config: Config,
) -> None:
    for number in range(2):
        broker = Broker(config(compiled_sends=True))
        await broker.start()
        assert number == 0 or broker.server.scheduler.lane is not None
        assert await broker.engine.ready()
        assert broker.server.scheduler.lane is not None
        await broker.stop()


@pytest.mark.parametrize(
    "settings", [{"compiled_sends": False}, {"broker_role": "SLAVE", "broker_id": 1}]
)
async def test_a_slave_or_a_broker_with_compiled_sends_off_has_no_compiled_engine(
    config: Config, settings: dict[str, object]
) -> None:
    broker = Broker(config(**({"compiled_sends": True} | settings)))
    await broker.start()
    assert broker.server.scheduler.lane is None
    await broker.stop()


async def test_a_broker_falls_back_to_python_if_compilation_fails(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    broker = Broker(config(compiled_sends=True))
    await broker.start()
    assert not await broker.engine.ready()
    assert "in plain Python" in caplog.text
    caller = Caller(broker)
    assert (await caller.send("orders")).code == codes.SUCCESS
    await caller.peers.close()
    await broker.stop()


async def test_a_broker_that_stops_during_compilation_leaves_no_process(
    config: Config,
) -> None:
    broker = Broker(config(compiled_sends=True))
    await broker.start()
    await broker.stop()
    with pytest.raises(asyncio.CancelledError):
        await broker.engine.ready()
    assert broker.server.scheduler.lane is None


def kept(program: str, **more: str) -> Path:
    """The folder in which numba caches the function."""
    clean = {name: text for name, text in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    command = [PYTHON, "-c", program]
    done = subprocess.run(command, env=clean | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.mark.finding("A22")
@pytest.mark.parametrize("program", [BY_HAND, IN_A_BROKER], ids=["by hand", "in a broker"])
def test_machine_code_is_cached_outside_the_package(tmp_path: Path, program: str) -> None:
    folder = kept(program, XDG_CACHE_HOME=str(tmp_path))
    assert folder.is_relative_to(tmp_path / "aerobee")
    assert list(folder.glob("*.nbi"))


def test_numba_cache_dir_overrides_the_cache_folder(tmp_path: Path) -> None:
    given, cache = tmp_path / "numba", tmp_path / "cache"
    folder = kept(BY_HAND, NUMBA_CACHE_DIR=str(given), XDG_CACHE_HOME=str(cache))
    assert folder.is_relative_to(given)
    assert not cache.exists()


def test_compilation_works_without_a_writable_cache_folder(tmp_path: Path) -> None:
    (tmp_path / "aerobee").write_text("in the way")
    folder = kept(BY_HAND, XDG_CACHE_HOME=str(tmp_path))
    assert not folder.is_relative_to(tmp_path)
