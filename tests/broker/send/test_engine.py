"""The compiled engine: a broker uses it by its settings, and where its machine code is kept."""

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
# The command and a broker's process, each with one function to make.
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
    """As where another process has made the machine code before, for a process that has none."""
    monkeypatch.setattr(sys, "executable", "/bin/true")
    monkeypatch.setattr(CompiledEngine, "_found", None)


async def test_brokers_use_machine_code_by_their_settings_the_second_at_once(
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
async def test_python_does_the_sends_where_it_is_off_or_nobody_may_send(
    config: Config, settings: dict[str, object]
) -> None:
    broker = Broker(config(**({"compiled_sends": True} | settings)))
    await broker.start()
    assert broker.server.scheduler.lane is None
    await broker.stop()


async def test_a_broker_goes_on_in_python_where_the_machine_code_fails(
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


async def test_a_broker_that_stops_while_machine_code_is_made_leaves_no_process(
    config: Config,
) -> None:
    broker = Broker(config(compiled_sends=True))
    await broker.start()
    await broker.stop()
    with pytest.raises(asyncio.CancelledError):
        await broker.engine.ready()
    assert broker.server.scheduler.lane is None


def kept(program: str, **more: str) -> Path:
    """The folder where the function is kept."""
    clean = {name: text for name, text in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    command = [PYTHON, "-c", program]
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
