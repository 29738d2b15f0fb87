"""A slave's connection to its master, with a master by hand: what it says, keeps and refuses."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker.replication import slave as ha_slave
from aerobee.broker.replication.slave import HaSlave
from aerobee.protocol.ha import CHUNK_BYTES_MAX, CHUNK_HEAD, REPORT, REPORT_BYTES
from aerobee.store.base.errors import DiskFull
from aerobee.store.engine.following import Follower
from aerobee.store.engine.messages import Message
from aerobee.store.engine.store import MessageStore

from ...clocks import Clock
from ...simulation.cluster import SMALL
from ...waiting import LONG, until
from ..conftest import Config

IN_VIRTUAL_TIME = True

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


@dataclass
class Master:
    """A listening socket, and a log to send; `came` gets each slave that connects."""

    store: MessageStore
    came: asyncio.Queue["Link"] = field(default_factory=asyncio.Queue)
    address: str = ""

    def put(self, body: bytes = b"body", topic: str = "T") -> int:
        """A message more in the log; where it ends."""
        end = self.store.put(Message((topic, 0), 0, 0, 0, HOST, body, b"TAGS\x01a\x02", 0))[2]
        self.store.write_staged()
        return end

    async def link(self) -> "Link":
        async with asyncio.timeout(LONG):
            return await self.came.get()


@dataclass
class Link:
    """One slave's connection, seen from the master."""

    master: Master
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, place: int, end: int) -> None:
        data = self.master.store.raw(place, end - place)
        self.writer.write(CHUNK_HEAD.pack(place, len(data)) + data)

    async def report(self) -> int:
        async with asyncio.timeout(LONG):
            (place,) = REPORT.unpack(await self.reader.readexactly(REPORT_BYTES))
            return int(place)

    async def report_of(self, place: int) -> None:
        while await self.report() != place:
            pass

    async def closed(self) -> None:
        async with asyncio.timeout(LONG):
            try:
                while await self.reader.read(1_024):
                    pass
            except ConnectionResetError:
                pass
        self.writer.close()


@pytest.fixture
async def new_master(
    config: Config, tmp_path: Path, clock: Clock
) -> AsyncIterator[Callable[[str], Awaitable[Master]]]:
    made: list[tuple[asyncio.Server, MessageStore]] = []
    links: list[Link] = []

    async def make(name: str) -> Master:
        store = MessageStore(
            tmp_path / name,
            config(store_path_root_dir=str(tmp_path / name), **SMALL).store_settings(),
            HOST,
            clock,
        )
        store.open()
        master = Master(store)

        def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            links.append(Link(master, reader, writer))
            master.came.put_nowait(links[-1])

        server = await asyncio.start_server(came, "127.0.0.1", 0)
        made.append((server, store))
        master.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return master

    yield make
    for server, store in made:
        server.close()
        store.close()
    for link in links:
        link.writer.close()


@pytest.fixture
async def master(new_master: Callable[[str], Awaitable[Master]]) -> Master:
    return await new_master("master")


@pytest.fixture
def told() -> list[set[tuple[str, int]]]:
    return []


@pytest.fixture
async def slave(
    config: Config,
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    told: list[set[tuple[str, int]]],
) -> AsyncIterator[HaSlave]:
    monkeypatch.setattr(ha_slave, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(ha_slave, "COMPARED_BYTES", 0)
    settings = config(store_path_root_dir=str(tmp_path / "slave"), **SMALL)
    store = MessageStore(tmp_path / "slave", settings.store_settings(), HOST, clock)
    store.open()
    store.follower.follow("a slave")

    def on_messages(keys: Iterable[tuple[str, int]]) -> None:
        told.append(set(keys))

    slave = HaSlave(settings, store, clock, on_messages)
    await slave.start()
    yield slave
    await slave.stop()
    store.close()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


async def test_it_says_where_its_log_ends_and_takes_what_comes(
    master: Master, slave: HaSlave, told: list[set[tuple[str, int]]]
) -> None:
    ends = [master.put(), master.put(topic="U")]
    slave.set_master(master.address)
    link = await master.link()
    assert await link.report() == 0
    assert slave.connected
    link.send(0, ends[0] + 10)  # the second one is torn
    assert await link.report() == ends[0] + 10
    assert slave.store.max_offset("T", 0) == 1
    assert slave.store.max_offset("U", 0) == 0
    link.send(ends[0] + 10, ends[1])
    assert await link.report() == ends[1]
    await until(lambda: len(told) == 2)  # it may wait for more to be derived together
    assert slave.store.max_offset("U", 0) == 1
    assert told == [{("T", 0)}, {("U", 0)}]


async def test_several_chunks_at_once_are_reported_once(master: Master, slave: HaSlave) -> None:
    end = [master.put() for _ in range(10)][-1]
    slave.set_master(master.address)
    link = await master.link()
    await link.report()
    data = b"".join(
        CHUNK_HEAD.pack(place, min(100, end - place)) + master.store.raw(place, 100)
        for place in range(0, end, 100)
    )
    assert slave._connection is not None
    slave._connection.data_received(data)  # a network might bring it in pieces
    assert await link.report() == end
    assert slave.store.max_offset("T", 0) == 10


async def test_messages_that_come_soon_after_others_become_readable_without_more(
    master: Master, slave: HaSlave
) -> None:
    ends = [master.put() for _ in range(3)]
    slave.set_master(master.address)
    link = await master.link()
    await link.report()
    for begin, end in zip([0, *ends], ends, strict=False):
        link.send(begin, end)
        assert await link.report() == end
    await until(lambda: slave.store.max_offset("T", 0) == 3)


async def test_messages_that_wait_are_derived_when_the_connection_ends(
    master: Master,
    slave: HaSlave,
    told: list[set[tuple[str, int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ha_slave, "DERIVE_SECONDS", 10 * LONG)
    ends = [master.put() for _ in range(2)]
    slave.set_master(master.address)
    link = await master.link()
    await link.report()
    for begin, end in zip([0, *ends], ends, strict=False):
        link.send(begin, end)
        assert await link.report() == end
    assert told == [{("T", 0)}]
    link.writer.close()
    await until(lambda: len(told) == 2)
    assert slave.store.max_offset("T", 0) == 2


async def test_no_more_than_a_limit_waits_to_be_derived(
    master: Master,
    slave: HaSlave,
    told: list[set[tuple[str, int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ha_slave, "DERIVE_SECONDS", 10 * LONG)
    ends = [master.put() for _ in range(3)]
    monkeypatch.setattr(ha_slave, "DERIVED_BYTES", ends[2] - ends[0])
    slave.set_master(master.address)
    link = await master.link()
    await link.report()
    for begin, end in zip([0, *ends], ends[:2], strict=False):
        link.send(begin, end)
        assert await link.report() == end
    assert slave.store.max_offset("T", 0) == 1
    link.send(ends[1], ends[2])
    assert await link.report() == ends[2]
    await until(lambda: slave.store.max_offset("T", 0) == 3)
    assert told == [{("T", 0)}] * 2


async def test_it_reports_again_every_five_seconds(
    master: Master, slave: HaSlave, clock: Clock
) -> None:
    end = master.put()
    slave.set_master(master.address)
    link = await master.link()
    await link.report()
    link.send(0, end)
    assert await link.report() == end
    clock.ms += 5_000
    slave.sweep()
    clock.ms += 1
    slave.sweep()
    assert await link.report() == end
    link.send(end, end)  # the master is alive
    link.send(end, end)


async def test_a_master_that_is_silent_for_twenty_seconds_is_left(
    master: Master, slave: HaSlave, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    slave.set_master(master.address)
    link = await master.link()
    await link.report()
    clock.ms += 20_000
    slave.sweep()
    assert slave.connected
    clock.ms += 1
    slave.sweep()
    await link.closed()
    (line,) = errors(caplog)
    assert "said nothing for 20001 ms, the limit is 20000 (haHousekeepingInterval)" in line
    assert await (await master.link()).report() == 0


async def test_after_a_break_it_asks_for_what_lies_behind_the_last_whole_message(
    master: Master, slave: HaSlave
) -> None:
    first, second = master.put(), master.put()
    slave.set_master(master.address)
    link = await master.link()
    await link.report()
    link.send(0, second - 1)
    assert await link.report() == second - 1
    link.writer.close()
    link = await master.link()
    assert await link.report() == first
    link.send(first, second)
    assert await link.report() == second
    assert slave.store.max_offset("T", 0) == 2


async def test_a_log_that_has_come_apart_is_told_once_with_both_places(
    master: Master, slave: HaSlave, caplog: pytest.LogCaptureFixture
) -> None:
    end = master.put()
    slave.set_master(master.address)
    link = await master.link()
    await link.report()
    link.send(0, end)
    await link.report_of(end)
    for _ in range(3):
        before = slave.flow.bytes
        link.writer.write(CHUNK_HEAD.pack(end - 8, 4))
        await until(lambda: slave.flow.bytes == before + CHUNK_HEAD.size)  # noqa: B023
        link.writer.write(b"diff")
        await link.closed()
        link = await master.link()
        assert await link.report() == end
    (line,) = errors(caplog)
    assert f"goes on at {end - 8} of its log, this one ends at {end}" in line
    assert "delete its store folder" in line


@pytest.mark.parametrize("head", [(0, -1), (-1, 0), (0, CHUNK_BYTES_MAX + 1)])
async def test_what_no_master_sends_closes_the_connection_with_one_line(
    master: Master, slave: HaSlave, caplog: pytest.LogCaptureFixture, head: tuple[int, int]
) -> None:
    slave.set_master(master.address)
    for _ in range(2):
        link = await master.link()
        await link.report()
        link.writer.write(CHUNK_HEAD.pack(*head) + b"and more")
        await link.closed()
    (line,) = errors(caplog)
    assert f"a chunk of {head[1]} bytes at {head[0]} of the log" in line
    assert slave.store.log_end == 0


@pytest.mark.parametrize("compared", [10, 4_096])
async def test_what_it_has_last_is_compared_before_anything_is_appended(
    master: Master, slave: HaSlave, monkeypatch: pytest.MonkeyPatch, compared: int
) -> None:
    monkeypatch.setattr(ha_slave, "COMPARED_BYTES", compared)
    end = master.put()
    slave.set_master(master.address)
    link = await master.link()
    assert await link.report() == 0
    link.send(0, end)
    assert await link.report() == end
    link.writer.close()
    more = master.put()
    link = await master.link()
    start = max(1, end - compared)
    assert await link.report() == start
    link.send(start, start + 5)
    link.send(start + 5, more)
    assert await link.report() == more
    assert slave.store.raw(0, more) == master.store.raw(0, more)
    assert slave.store.max_offset("T", 0) == 2


async def test_a_log_that_ends_in_other_messages_is_not_gone_on_with(
    master: Master,
    slave: HaSlave,
    new_master: Callable[[str], Awaitable[Master]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(ha_slave, "COMPARED_BYTES", 4_096)
    other = await new_master("other")
    end = master.put(b"one")
    assert other.put(b"two") == end
    more = other.put(b"three")
    slave.set_master(master.address)
    link = await master.link()
    await link.report()
    link.send(0, end)
    await link.report_of(end)
    slave.set_master(other.address)
    for _ in range(2):
        link = await other.link()
        assert await link.report() == 1
        link.send(1, more)
        await link.closed()
    (line,) = errors(caplog)
    assert f"has other messages than this one between 1 and {end}" in line
    assert slave.store.raw(0, more) == master.store.raw(0, end)


async def test_a_master_whose_log_ends_before_this_one_is_told(
    master: Master,
    slave: HaSlave,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(ha_slave, "COMPARED_BYTES", 4_096)
    first, end = master.put(), master.put()
    slave.set_master(master.address)
    link = await master.link()
    await link.report()
    link.send(0, end)
    await link.report_of(end)
    link.writer.close()
    link = await master.link()
    assert await link.report() == 1
    link.send(1, first)
    link.send(first, first)  # that is all it has
    await link.closed()
    (line,) = errors(caplog)
    assert f"the master's log ends at {first}, this one at {end}" in line


async def test_another_master_is_followed_from_then_on_and_none_is_none(
    master: Master, slave: HaSlave, new_master: Callable[[str], Awaitable[Master]]
) -> None:
    other = await new_master("other")
    end = master.put()
    slave.set_master(master.address)
    link = await master.link()
    await link.report()
    link.send(0, end - 1)  # the other one may have another message there
    await link.report_of(end - 1)
    slave.set_master(other.address)
    await link.closed()
    link = await other.link()
    assert await link.report() == 0
    assert slave.info().ha_client_runtime_info.master_addr == other.address
    slave.set_master(None)
    await link.closed()
    await until(lambda: not slave.connected)
    assert master.came.empty()
    assert other.came.empty()


async def test_a_master_that_is_not_there_is_tried_until_it_is(
    master: Master,
    slave: HaSlave,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = 0
    here = asyncio.Event()
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def refused(*args: Any, **kwargs: Any) -> object:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise ConnectionRefusedError(111, "refused")
        here.set()
        return await connect(*args, **kwargs)

    monkeypatch.setattr(loop, "create_connection", refused)
    slave.set_master(master.address)
    await asyncio.wait_for(here.wait(), LONG)
    assert await (await master.link()).report() == 0
    (line,) = errors(caplog)
    assert f"can't connect to the master at {master.address}" in line


async def test_an_address_that_is_none_is_told(
    slave: HaSlave, caplog: pytest.LogCaptureFixture
) -> None:
    slave.set_master("nowhere")
    await until(lambda: errors(caplog))
    assert "can't connect to the master at nowhere" in errors(caplog)[0]


async def test_what_had_no_room_in_its_queue_is_read_once_it_has(
    master: Master,
    slave: HaSlave,
    told: list[set[tuple[str, int]]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end = master.put()
    slave.set_master(master.address)
    link = await master.link()
    await link.report()

    def is_full(follower: Follower) -> None:
        raise DiskFull("no room to make a file")

    with monkeypatch.context() as full:
        full.setattr(Follower, "derive_new", is_full)
        link.send(0, end)
        assert await link.report() == end  # it is here, after all
        link.send(end, end)
        await until(lambda: errors(caplog))
    link.send(end, end)  # a sign of life
    await until(lambda: told)
    assert told == [{("T", 0)}]
    assert slave.store.max_offset("T", 0) == 1
    assert errors(caplog) == [
        "what came from the master can't be read here yet: no room to make a file; tried again "
        "every 0.01 s"
    ]


async def test_how_it_stands_is_told_as_by_a_java_slave(
    master: Master, slave: HaSlave, clock: Clock
) -> None:
    end = master.put()
    slave.set_master(master.address)
    link = await master.link()
    await link.report()
    clock.ms += 10
    link.send(0, end)
    await link.report_of(end)
    clock.ms += 990
    slave.sweep()
    found = slave.info()
    assert not found.master
    client = found.ha_client_runtime_info
    assert (client.master_addr, client.max_offset) == (master.address, end)
    assert client.last_read_timestamp == client.last_write_timestamp == clock.ms - 990
    assert client.transferred_byte_in_second == end + CHUNK_HEAD.size


async def test_a_stop_in_the_moment_of_a_change_ends(
    slave: HaSlave, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ha_slave, "RETRY_SECONDS", 3_600.0)
    slave.set_master("nowhere")
    await until(lambda: errors(caplog))
    slave.set_master(None)
    await asyncio.wait_for(slave.stop(), LONG)
