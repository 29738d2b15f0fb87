"""Several workers of one proxy: they share a port, and each is started again."""

import os
import signal
import stat
from pathlib import Path

import pytest
from aerobee.scripts import child_command
from aerobee.scripts.output.command_error import CommandError
from aerobee.scripts.proxy_workers import ProxyWorkers

from ..waiting import PROCESS, until
from .command import running
from .test_child_command import is_open, route_code

NAMES = ("-n", "127.0.0.1:1", "--set", "grpcShutdownTimeSeconds=1")


def look(folder: Path) -> tuple[int, list[str]] | None:
    """The mode of a folder and the names in it; None without it."""
    if not folder.exists():
        return None
    return stat.S_IMODE(folder.stat().st_mode), sorted(each.name for each in folder.iterdir())


async def test_a_worker_that_is_killed_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_command, "BACKOFF_SECONDS", (0.01,))
    workers = ProxyWorkers(NAMES, 2, ("127.0.0.1", 0), -1)
    await workers.start()
    folder = Path(workers._folder)
    try:
        names = ["0.connections", "0.sock", "1.connections", "1.sock"]
        assert look(folder) == (0o700, names)  # no other user can open it
        assert is_open(workers.port)
        process = workers._workers[1]._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: workers.restarts, "no restart", seconds=PROCESS)
        again = workers._workers[1]._process
        assert again is not None
        assert again.pid != process.pid
    finally:
        await workers.stop()
    assert not is_open(workers.port)
    assert look(folder) is None


async def test_a_worker_that_can_not_start_says_why() -> None:
    workers = ProxyWorkers([*NAMES, "--set", "maxMessageSize=x"], 2, ("127.0.0.1", 0), -1)
    with pytest.raises(CommandError, match="the proxy did not start"):
        await workers.start()
    assert look(Path(workers._folder)) is None


def test_the_command_starts_them(tmp_path: Path) -> None:
    words = ("proxy", "--listen-port", "0", *NAMES, "--set", "grpcWorkers=2")
    with running(tmp_path, *words) as daemon:
        assert "2 workers" in daemon.ready
        port = int(daemon.ready.partition("127.0.0.1:")[2].partition(",")[0])
        assert [route_code(port) for _ in range(4)] == [50001] * 4  # there are no name servers
    assert not is_open(port)
