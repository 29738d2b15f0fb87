"""While little comes another thread finds memory for the log."""

import threading

import pytest
from aerobee.broker import upkeep
from aerobee.broker.runtime import log_prefault
from aerobee.broker.server import Broker
from aerobee.store.files import disk

from ..conftest import Caller, Config

MIB = 1 << 20


class Spy(disk.Disk):
    """A disk that remembers for which bytes memory was to be found, and by which thread."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int]] = []
        self.threads: set[str] = set()

    def will_need(self, fd: int, at: int, size: int) -> None:
        super().will_need(fd, at, size)
        self.asked.append((at, size))
        self.threads.add(threading.current_thread().name.rpartition("_")[0])


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """The disk of a broker that does nothing about it by itself."""
    spy = Spy()
    monkeypatch.setattr(upkeep, "AHEAD_SECONDS", 3_600.0)
    monkeypatch.setattr(disk, "current", spy)
    return spy


async def test_memory_is_found_ahead_of_the_log_when_little_comes(
    config: Config, spy: Spy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_prefault, "AHEAD_BYTES", 12 * MIB)
    monkeypatch.setattr(log_prefault, "STEP_BYTES", 4 * MIB)
    broker = Broker(config(mapped_file_size_commit_log=16 * MIB))
    await broker.start()
    caller = Caller(broker)
    ahead = broker.log_ahead
    await caller.send("T")
    await ahead.step()
    assert not spy.asked  # that was next to nothing

    for _ in range(6):
        await caller.send("T", bytes(MIB))
    await ahead.step()
    assert not spy.asked  # much came just now
    end = broker.store.log_end
    for _ in range(5):
        await ahead.step()
    assert spy.asked[0][0] == end
    assert sum(size for _, size in spy.asked) == 16 * MIB - end  # the file ends there
    places = [at for at, _ in spy.asked]
    assert places == sorted(set(places))
    assert "aerobee-ahead" in spy.threads

    del spy.asked[:]
    for _ in range(11):
        await caller.send("T", bytes(MIB))  # another file
    await ahead.step()
    for _ in range(5):
        await ahead.step()
    assert sum(size for _, size in spy.asked) == 12 * MIB
    await caller.peers.close()
    await broker.stop()


async def test_a_file_that_is_gone_is_no_error(config: Config, spy: Spy) -> None:
    broker = Broker(config())
    await broker.start()
    end = broker.store.log_end
    assert broker.store.ahead(end + (1 << 40), 1) is None
    found = broker.store.ahead(end, 300_000)
    assert found is not None
    find_memory, behind = found
    assert behind == end + 300_000
    find_memory()
    assert [size for _, size in spy.asked] == [131_072, 131_072, 300_000 - 2 * 131_072]
    (file,) = (broker.root / "commitlog").iterdir()
    file.rename(broker.root / "away")
    find_memory()
    assert len(spy.asked) == 3
    (broker.root / "away").rename(file)
    await broker.stop()
