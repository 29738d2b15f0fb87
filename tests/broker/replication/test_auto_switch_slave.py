"""Pairs in controller mode: what a slave takes, where it cuts, and what it refuses."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aerobee.broker.replication import slave as classic
from aerobee.broker.replication.slave import HaSlave
from aerobee.protocol.ha_auto_switch import Chunk, MasterHello, SlaveStream
from aerobee.store.epochs.entries import EPOCHS_MAX
from aerobee.store.files import disk
from aerobee.store.inspect.dump import log_lines

from ...clocks import Clock
from ...waiting import until
from ..conftest import Config
from .auto_switch import SEGMENT, Node

IN_VIRTUAL_TIME = True

NewNode = Callable[[int], Node]


@pytest.fixture
async def node(config: Config, tmp_path: Path, clock: Clock) -> AsyncIterator[NewNode]:
    made: list[Node] = []

    def make(number: int) -> Node:
        made.append(Node(config, tmp_path / f"{number}", clock, number))
        return made[-1]

    yield make
    for each in made:
        await each.halt()
        each.store.close()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


async def test_a_new_slave_gets_the_whole_log_with_its_epochs(node: NewNode) -> None:
    a, b = node(1), node(2)
    for epoch in (1, 3, 4):
        await a.lead(epoch)
        end = a.put(100, b"x" * 1_000)
    assert end > 4 * SEGMENT
    await b.follow(a)
    await b.has(end)
    assert b.log() == a.log()
    assert b.epochs == a.epochs
    assert [entry.split("-")[0] for entry in a.epochs] == ["1", "3", "4"]


async def test_with_sync_from_last_file_an_empty_slave_gets_the_last_file(node: NewNode) -> None:
    a, b = node(1), node(2)
    await a.lead(1)
    end = a.put(150, b"x" * 1_000)
    b.config.sync_from_last_file = True
    await b.follow(a)
    await b.has(end)
    assert b.store.log_start == end - end % SEGMENT > 0
    assert b.epochs == ["1-0"]


async def test_a_slave_reads_up_to_the_confirmed_end_of_its_master(
    node: NewNode, clock: Clock
) -> None:
    a, b = node(1), node(2)
    await a.lead(1, 3)  # whose member 3 is away
    end = a.put(4)
    await b.follow(a)
    await b.has(end)
    assert (a.bodies(), b.bodies()) == (0, 0)
    a.controller.take({1})
    assert a.bodies() == 4
    end = a.put()
    await until(lambda: a.bodies() == 5)
    clock.ms += 1_000  # our pairs speak each second
    await until(lambda: b.bodies() == 5, "the slave learns that all is confirmed")
    assert b.confirmations
    assert b.store.confirmed_end == end


async def test_an_old_master_loses_what_the_new_one_does_not_have(
    node: NewNode, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = node(1), node(2)
    await a.lead(1)
    common = a.put(20)
    await b.follow(a)
    await b.has(common)
    await b.halt()
    a.put(7, b"only here")  # never acknowledged: the slave is gone
    await b.lead(2)
    end = b.put(5, b"the new master's")
    await a.follow(b)
    await a.has(end)
    assert a.log() == b.log()
    assert a.epochs == b.epochs == ["1-0", f"2-{common}"]
    assert a.cuts == [common]
    await until(lambda: a.bodies() == 25)
    (text,) = [one.getMessage() for one in caplog.records if "cut off" in one.getMessage()]
    assert text.startswith(f"7 messages are cut off, the log from {common} to ")
    (copy,) = disk.current.entries(a.folder / "cut")
    assert [line["body"] for line in log_lines(a.folder / "cut" / copy.name, common)] == [
        "only here"
    ] * 7


async def test_a_cut_survives_a_crash_of_the_slave_right_after_it(node: NewNode) -> None:
    a, b = node(1), node(2)
    await a.lead(1)
    common = a.put(20)
    await b.follow(a)
    await b.has(common)
    await b.lead(2)
    await a.lead(1)
    a.put(7, b"only here")
    slave = await a.follow(b)
    await until(lambda: a.cuts == [common])
    await slave.stop()
    await a.reopen(crash=True)
    assert a.store.log_end == common
    assert a.epochs == ["1-0"]


# The order of events of RocketMQ's fault, by which two logs differ for ever.
async def test_fault_10_2_logs_agree_after_an_epoch_without_a_message(node: NewNode) -> None:
    a, b = node(1), node(2)
    await a.lead(1)
    common = a.put(10)
    await b.follow(a)
    await b.has(common)
    await a.lead(2)
    await until(lambda: a.master is not None)
    await b.follow(a)  # hears of epoch 2 by heartbeats
    await until(lambda: b.slave is not None and b.slave.connected)
    await b.lead(3)
    b.put(20, b"of epoch 3")
    a.put(10, b"a tail of epoch 2")
    await a.follow(b)
    await a.has(b.store.log_end)
    assert a.log() == b.log()
    assert a.epochs == b.epochs == ["1-0", f"3-{common}"]


# RocketMQ's first epoch begins at the end of a log that has data, and the data is never sent.
async def test_fault_10_3_a_first_election_on_a_log_with_data_sends_all_of_it(
    node: NewNode,
) -> None:
    a, b = node(1), node(2)
    end = a.put(50)  # of a broker without a controller
    await a.lead(1)
    assert a.epochs == ["1-0"]
    await b.follow(a)
    await b.has(end)
    assert b.log() == a.log()


async def test_fault_10_3_a_slave_with_data_and_without_epochs_is_compared(
    node: NewNode, caplog: pytest.LogCaptureFixture
) -> None:
    a, b, c = node(1), node(2), node(3)
    await a.lead(1)
    common = a.put(50)
    await b.follow(a)
    await b.has(common)
    await b.halt()
    b.store.epochs.cut(0)  # as after the classic protocol
    await a.lead(2)
    end = a.put(5)
    await b.follow(a)
    await b.has(end)
    assert b.log() == a.log()
    assert b.epochs == a.epochs == ["1-0", f"2-{common}"]
    c.put(40, b"beef")  # of the same size, and others
    await c.follow(a)
    await until(lambda: any("has other messages than this one" in one for one in errors(caplog)))
    assert (c.store.log_end, c.epochs) == (common // 50 * 40, [])


async def test_other_bytes_in_the_same_epoch_stop_a_slave_and_it_says_so(
    node: NewNode, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = node(1), node(2)
    await a.lead(1)
    a.put(50)
    await b.lead(1)
    end = b.put(40, b"beef")
    await b.follow(a)
    await until(lambda: any("has other messages than this one" in one for one in errors(caplog)))
    assert "delete its store folder" in errors(caplog)[-1]
    assert b.store.log_end == end
    assert not b.cuts


async def test_logs_without_a_common_epoch_are_refused_and_nothing_is_cut(
    node: NewNode, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = node(1), node(2)
    await a.lead(1)
    a.put(50)
    await b.lead(2)
    end = b.put(40)
    await b.follow(a)
    await until(lambda: any("no epoch in common" in one for one in errors(caplog)))
    assert (
        f"(epochs here: 2-0, there: 1-0; the log here has bytes from 0 to {end}, there to"
        in (errors(caplog)[-1])
    )
    assert b.store.log_end == end
    assert not disk.current.exists(b.folder / "cut")


async def test_with_sync_flush_a_slave_reports_what_its_disk_has(node: NewNode) -> None:
    a, b = node(1), node(2)
    await a.lead(1, 2)
    await b.reopen(sync_flush=True)
    asked: list[int] = []
    may_sync = asyncio.Event()

    async def sync_to(end: int) -> bool:
        asked.append(end)
        if end > b.store.durable_end:
            await may_sync.wait()
            b.store.sync()
        return True

    await b.follow(a, sync_to=sync_to)
    await until(lambda: bool(a.master and a.master.slaves))
    end = a.put(4)
    await b.has(end)
    await until(lambda: bool(asked) and asked[-1] == end)
    assert a.bodies() == 0
    may_sync.set()
    await until(lambda: a.bodies() == 4)


async def test_a_slave_follows_another_master_when_told(node: NewNode) -> None:
    a, b, c = node(1), node(2), node(3)
    await a.lead(1)
    end = a.put(10)
    await b.follow(a)
    slave = await c.follow(None)
    assert not slave.connected
    slave.set_master(f"127.0.0.1:{a.port}")
    await c.has(end)
    await b.has(end)
    await b.lead(2)
    end = b.put(10)
    slave.set_master(f"127.0.0.1:{b.port}")
    await c.has(end)
    assert c.log() == b.log()


class RawMaster:
    """A listening socket that says what a test wants to every slave that connects."""

    def __init__(self) -> None:
        self.said = b""
        self.then = b""  # after the first report
        self.heard: list[object] = []
        self.address = ""
        self.writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._came, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = SlaveStream()
        self.writers.add(writer)
        writer.write(self.said)
        try:
            while data := await reader.read(1_000):
                self.heard += stream.feed(data)
                if self.heard and isinstance(self.heard[-1], int):
                    writer.write(self.then)
                    self.then = b""
        except ConnectionResetError:
            pass
        finally:
            writer.close()
            self.writers.remove(writer)

    async def stop(self) -> None:
        self.server.close()
        for writer in self.writers:
            writer.close()
        await until(lambda: not self.writers)


@pytest.fixture
async def raw_master() -> AsyncIterator[RawMaster]:
    found = RawMaster()
    await found.start()
    yield found
    await found.stop()


async def following(b: Node, master: RawMaster) -> HaSlave:
    slave = await b.follow(None)
    slave.set_master(master.address)
    return slave


MANY = tuple((number, number) for number in range(EPOCHS_MAX + 1))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (MasterHello(5_000, 1, MANY).encode(), f"0 to {EPOCHS_MAX} epochs"),
        (MasterHello(5_000, 1, ((2, 0), (1, 50))).encode(), "number and offset must grow"),
        (Chunk(0, 1, 0, 0, b"abc").encode(), "before the epochs"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "a packet in state 1213486160"),
    ],
)
async def test_what_no_master_says_is_refused(
    node: NewNode, raw_master: RawMaster, caplog: pytest.LogCaptureFixture, said: bytes, reason: str
) -> None:
    b = node(2)
    end = b.put(5)
    b.store.epochs.append(1, 0)
    raw_master.said = said
    await following(b, raw_master)
    await until(lambda: any(reason in one for one in errors(caplog)), reason)
    assert b.store.log_end == end
    assert not b.cuts


@pytest.mark.parametrize(
    ("chunk", "reason"),
    [
        (Chunk(100, 1, 0, 0, b"abc"), "has other messages"),
        (Chunk(101, 1, 0, 0, b""), "100 was asked for"),
        (Chunk(101, 1, 0, 0, b"abc"), "the two have come apart"),
        (Chunk(99, 1, 0, 0, b"abc"), "the two have come apart"),
    ],
)
async def test_a_chunk_that_does_not_fit_is_not_taken(
    node: NewNode,
    raw_master: RawMaster,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    chunk: Chunk,
    reason: str,
) -> None:
    b = node(2)
    end = b.put(5)
    monkeypatch.setattr(classic, "COMPARED_BYTES", end - 100)
    b.store.epochs.append(1, 0)
    raw_master.said = MasterHello(5_000, 1, ((1, 0),)).encode()
    raw_master.then = chunk.encode()
    await following(b, raw_master)
    await until(lambda: any(reason in one for one in errors(caplog)), reason)
    assert (b.store.log_end, b.epochs) == (end, ["1-0"])
    assert 100 in raw_master.heard


@pytest.mark.parametrize(
    ("epoch", "start"), [(2, 50), (2, 1 << 40), (1, 3), (0, 0)], ids=lambda one: str(one)
)
async def test_an_epoch_that_cannot_begin_there_is_not_taken(
    node: NewNode,
    raw_master: RawMaster,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    epoch: int,
    start: int,
) -> None:
    b = node(2)
    end = b.put(5)
    monkeypatch.setattr(classic, "COMPARED_BYTES", 0)
    b.store.epochs.append(1, 0)
    raw_master.said = MasterHello(5_000, 1, ((1, 0),)).encode()
    raw_master.then = Chunk(end, epoch, start, 0, b"abc").encode()
    await following(b, raw_master)
    await until(lambda: any(f"as of epoch {epoch}" in one for one in errors(caplog)))
    assert (b.store.log_end, b.epochs) == (end, ["1-0"])


async def test_the_last_chunk_of_an_epoch_may_name_the_next_as_a_java_masters_does(
    node: NewNode, raw_master: RawMaster
) -> None:
    a, b = node(1), node(2)
    end = a.put(5)
    raw_master.said = MasterHello(end, 2, ((1, 0), (2, end))).encode()
    raw_master.then = b"".join(
        (
            Chunk(-1, -1, 0, 0, b"").encode(),
            Chunk(0, 1, 0, 0, a.log()[:100]).encode(),
            Chunk(100, 2, end, 0, a.log()[100:end]).encode(),
            Chunk(end, 2, end, end, b"").encode(),
        )
    )
    await following(b, raw_master)
    await b.has(end)
    assert b.epochs == ["1-0", f"2-{end}"]
    await until(lambda: b.bodies() == 5)
