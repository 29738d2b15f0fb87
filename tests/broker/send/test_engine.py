"""The compiled engine: the settings that enable it, and the cache of its machine code."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")

from aerobee.broker.send import engine
from aerobee.broker.send.engine import CompiledEngine
from aerobee.broker.server import Broker
from aerobee.protocol import codes

from ...waiting import SHORT
from ..conftest import Caller, Config

PYTHON = sys.executable
# Two programs that each compile one function: the command, and a broker's process.
BEFOREHAND = """
from aerobee.broker.send import engine

def prepare():
    from aerobee.protocol.kernels import compiled
    assert compiled.int64(7) == 7
    print(compiled.int64.stats.cache_path)

import sys, types
fast_path = types.SimpleNamespace(prepare=prepare, CompiledSends=1)
sys.modules["aerobee.broker.send.fast_path"] = fast_path
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
    """Act as if another process compiled the code and this process had none."""
    monkeypatch.setattr(engine, "is_made", lambda: False)
    monkeypatch.setattr(sys, "executable", "/bin/true")
    monkeypatch.setattr(CompiledEngine, "_found", None)


async def test_a_broker_uses_the_compiled_engine_and_a_second_one_has_it_at_once(
    config: Config,
) -> None:
    for number in range(2):
        broker = Broker(config(compiled_sends=True))
        await broker.start()
        assert number == 0 or broker.server.scheduler.batch is not None
        assert await broker.engine.ready()
        assert broker.server.scheduler.batch is not None
        await broker.stop()


async def test_machine_code_is_loaded_with_the_first_message(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CompiledEngine, "_found", None)
    monkeypatch.setattr(engine, "is_made", lambda: True)
    loads: list[str] = []
    loaded = asyncio.Event()

    async def load(self: CompiledEngine) -> None:
        loads.append("once")
        loaded.set()

    monkeypatch.setattr(CompiledEngine, "load", load)
    broker = Broker(config(compiled_sends=True))
    await broker.start()
    caller = Caller(broker)
    await caller.ask(codes.GET_BROKER_CONFIG)
    await caller.pull("orders", 0)
    assert loads == []
    for _ in range(2):
        assert (await caller.send("orders")).code == codes.SUCCESS
    await asyncio.wait_for(loaded.wait(), SHORT)
    assert loads == ["once"]
    await caller.peers.close()
    await broker.stop()


async def test_a_broker_with_compiled_sends_off_has_no_compiled_engine(config: Config) -> None:
    broker = Broker(config(compiled_sends=False))
    await broker.start()
    assert not await broker.engine.ready()
    assert broker.server.scheduler.batch is None
    await broker.stop()


async def test_a_slave_takes_the_log_with_compiled_code_and_no_sends(config: Config) -> None:
    broker = Broker(config(compiled_sends=True, broker_role="SLAVE", broker_id=1))
    await broker.start()
    assert await broker.engine.ready()
    assert broker.store.state.kernels.runs is not None
    assert broker.server.scheduler.batch is None
    await broker.stop()


async def test_a_broker_falls_back_to_python_if_compilation_fails(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    broker = Broker(config(compiled_sends=True))
    await broker.start()
    assert not await broker.engine.ready()
    assert "plain Python is used" in caplog.text
    caller = Caller(broker)
    assert (await caller.send("orders")).code == codes.SUCCESS
    await caller.peers.close()
    await broker.stop()


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
async def test_machine_code_that_is_made_needs_no_other_process(
    config: Config, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    monkeypatch.setattr(engine, "is_made", lambda: True)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    is_slave = role == "SLAVE"
    broker = Broker(config(compiled_sends=True, broker_role=role, broker_id=int(is_slave)))
    await broker.start()
    if is_slave:  # before it follows
        assert broker.store.state.kernels.runs is not None
    assert await broker.engine.ready()
    await broker.stop()


async def test_a_broker_that_stops_during_compilation_leaves_no_process(
    config: Config,
) -> None:
    broker = Broker(config(compiled_sends=True))
    await broker.start()
    await broker.stop()
    with pytest.raises(asyncio.CancelledError):
        await broker.engine.ready()
    assert broker.server.scheduler.batch is None


def kept(program: str, **more: str) -> Path:
    """The folder in which numba caches the function."""
    clean = {name: text for name, text in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    command = [PYTHON, "-c", program]
    done = subprocess.run(command, env=clean | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.mark.parametrize("program", [BY_HAND, IN_A_BROKER], ids=["by hand", "in a broker"])
def test_machine_code_is_cached_outside_the_package(tmp_path: Path, program: str) -> None:
    folder = kept(program, XDG_CACHE_HOME=str(tmp_path))
    assert folder.is_relative_to(tmp_path / "aerobee")
    assert list(folder.glob("*.nbi"))


def test_only_machine_code_of_the_same_sources_is_made(tmp_path: Path) -> None:
    def says(program: str) -> str:
        clean = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        asked = f"{BEFOREHAND}\n{program}\nprint(engine.is_made())"
        return subprocess.check_output([PYTHON, "-c", asked], env=clean, text=True).split()[-1]

    assert says("") == "False"
    assert says("engine.main()") == "True"
    assert says("") == "True"
    assert says("engine.SOURCES = engine.SOURCES[1:]") == "False"
    (tmp_path / engine.MADE_FILE).write_bytes(b"\xff")
    assert says("") == "False"


def test_numba_cache_dir_overrides_the_cache_folder(tmp_path: Path) -> None:
    given, cache = tmp_path / "numba", tmp_path / "cache"
    folder = kept(BY_HAND, NUMBA_CACHE_DIR=str(given), XDG_CACHE_HOME=str(cache))
    assert folder.is_relative_to(given)
    assert not cache.exists()


def test_compilation_works_without_a_writable_cache_folder(tmp_path: Path) -> None:
    (tmp_path / "aerobee").write_text("in the way")
    folder = kept(BY_HAND, XDG_CACHE_HOME=str(tmp_path))
    assert not folder.is_relative_to(tmp_path)


@pytest.mark.parametrize("asked_by", ["a user", "a broker"])
def test_only_what_a_broker_has_made_stands_behind_other_work(
    asked_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[object] = []
    monkeypatch.setattr(os, "nice", steps.append)
    monkeypatch.setattr(engine, "_load", lambda: steps.append("made"))
    monkeypatch.setattr(engine, "_note_made", lambda: None)
    words = ["engine", *([engine.BEHIND] if asked_by == "a broker" else [])]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "unused")
    engine.main()
    assert steps == (["made"] if asked_by == "a user" else [engine.NICENESS, "made"])
