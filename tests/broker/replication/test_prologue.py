"""Replication with haSecret and haTls: which slaves get the log, and what both ends say."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker import server
from aerobee.broker.replication import prologue
from aerobee.broker.replication import slave as ha_slave
from aerobee.broker.replication.counted_acks import CountedAcks
from aerobee.broker.replication.prologue import ENDED
from aerobee.broker.server import Broker
from aerobee.conf.sources import ConfigError
from aerobee.protocol.ha import REPORT
from aerobee.protocol.ha_prologue import HELLO, SlaveSide, frame
from aerobee.protocol.security import self_signed

from ...secret_files import write_secret
from ...waiting import LONG, until
from ..conftest import Config
from ..virtual_time import in_virtual_time, threads

SECRET, OTHER = "0123456789abcdef", "fedcba9876543210"  # of a test

Start = Callable[..., Any]


@pytest.fixture
async def start(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Start]:
    """Starts a broker with these settings; with `master` its slave."""
    monkeypatch.setattr(ha_slave, "RETRY_SECONDS", 0.05)
    running: list[Broker] = []

    async def make(folder: str, master: Broker | None = None, **settings: Any) -> Broker:
        if master is not None:
            settings |= {"broker_role": "SLAVE", "broker_id": 1}
            settings["ha_master_address"] = f"127.0.0.1:{master.ha_port}"
        found = config(store_path_root_dir=str(tmp_path / folder), **settings)
        broker = Broker(found, now_ms=server.wall_clock_ms, threads=threads())
        await broker.start()
        running.append(broker)
        return broker

    yield make
    for broker in reversed(running):
        await broker.stop()


def said(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR)


def is_connected(slave: Broker) -> bool:
    return slave.ha_slave is not None and slave.ha_slave.connected


@in_virtual_time
async def test_a_slave_with_the_secret_follows(start: Start) -> None:
    master = await start("master", ha_secret=SECRET)
    slave = await start("slave", master, ha_secret=SECRET)
    await until(lambda: len(master.ha.slaves) == 1 and master.ha.slaves[0].acked >= 0)
    assert is_connected(slave)
    assert master.ha.refused == 0


@in_virtual_time
@pytest.mark.parametrize(
    ("masters", "slaves", "at_master", "at_slave"),
    [
        (SECRET, OTHER, "haSecret is another one", "it says: its haSecret is another one"),
        (SECRET, "", "no proof of the secret haSecret", "the master asks for a secret"),
        ("", SECRET, "the slave proves a secret", "it says: the slave proves a secret"),
    ],
)
async def test_both_ends_say_why_a_slave_is_refused(
    start: Start,
    caplog: pytest.LogCaptureFixture,
    masters: str,
    slaves: str,
    at_master: str,
    at_slave: str,
) -> None:
    master = await start("master", ha_secret=masters)
    await start("slave", master, ha_secret=slaves)
    await until(lambda: at_master in said(caplog) and at_slave in said(caplog))
    assert master.ha.refused > 0
    assert all(each.acked < 0 for each in master.ha.slaves)
    assert SECRET not in said(caplog)
    assert OTHER not in said(caplog)


@in_virtual_time
async def test_a_peer_that_proves_nothing_gets_nothing_and_is_closed(start: Start) -> None:
    master = await start("master", ha_secret=SECRET)
    for first in (b"", REPORT.pack(0), frame(HELLO, bytes(32)), b"GET / HTTP/1.1\r\n\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", master.ha_port)
        writer.write(first)
        got = b""
        async with asyncio.timeout(LONG):
            with suppress(ConnectionResetError):
                got = await reader.read()
        assert len(got) < 300  # a challenge and a reason, none of the log
        writer.close()
    assert master.ha.slaves == []


class Peer:
    """A connection that has got its challenge, and proves nothing."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.side = SlaveSide(SECRET.encode(), bytes(32))

    async def answer(self) -> bytes:
        """The next bytes; b"" when the connection is closed."""
        async with asyncio.timeout(LONG):
            with suppress(ConnectionResetError):
                return await self.reader.read(1_000)
        return b""

    async def all(self) -> bytes:
        """The bytes that come until the connection is closed."""
        got = b""
        while more := await self.answer():
            got += more
        return got


Come = Callable[[Broker, str], Awaitable[Peer]]


@pytest.fixture
async def come() -> AsyncIterator[Come]:
    """`come(master, address)`: a peer at this address of the loopback network, not proven."""
    made: list[Peer] = []

    async def make(master: Broker, address: str) -> Peer:
        there = await asyncio.open_connection("127.0.0.1", master.ha_port, local_addr=(address, 0))
        made.append(Peer(*there))
        made[-1].writer.write(made[-1].side.hello)
        return made[-1]

    yield make
    for peer in made:
        peer.writer.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is closed because it is late."""
    monkeypatch.setattr(prologue, "PROLOGUE_SECONDS", 10 * LONG)


@pytest.mark.usefixtures("patient")
async def test_the_oldest_connection_without_a_proof_gives_way(
    start: Start, come: Come, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prologue, "UNPROVEN_MAX", 3)
    master = await start("master", ha_secret=SECRET)
    peers = []
    for number in range(4):
        peers.append(await come(master, f"127.0.0.{number + 2}"))
        assert await peers[-1].answer()  # the challenge
    said_last = await peers[0].all()
    assert b"the limit is 3" in said_last
    assert b"try again" in said_last
    assert master.ha.refused == 1
    await start("slave", master, ha_secret=SECRET)
    assert b"the limit is 3" in await peers[1].all()
    await until(lambda: len(master.ha.slaves) == 1 and master.ha.slaves[0].acked >= 0)


@pytest.mark.usefixtures("patient")
async def test_an_address_has_few_connections_without_a_proof(
    start: Start, come: Come, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prologue, "UNPROVEN_PER_ADDRESS_MAX", 2)
    master = await start("master", ha_secret=SECRET)
    other = await come(master, "127.0.0.9")
    assert await other.answer()
    peers = []
    for _ in range(4):
        peers.append(await come(master, "127.0.0.2"))
        assert await peers[-1].answer()
    for peer in peers[:2]:
        assert b"of its address have not proven haSecret, the limit is 2" in await peer.all()
    assert master.ha.refused == 2
    slave = await start("slave", master, ha_secret=SECRET)
    await until(lambda: is_connected(slave))
    assert not other.reader.at_eof()  # older than the connections that gave way
    assert not any(peer.reader.at_eof() for peer in peers[2:])


@pytest.mark.usefixtures("patient")
async def test_an_address_that_may_not_come_takes_no_place(
    start: Start, come: Come, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set the rule of the addresses, which applies in controller mode, by the test."""
    monkeypatch.setattr(prologue, "UNPROVEN_MAX", 1)
    monkeypatch.setattr(CountedAcks, "may_come", lambda self, host: host != "127.0.0.3")
    master = await start("master", ha_secret=SECRET)
    first = await come(master, "127.0.0.2")
    assert await first.answer()
    strangers = [await come(master, "127.0.0.3") for _ in range(3)]
    for stranger in strangers:
        assert b"add it to haAllowedAddresses" in await stranger.all()
    assert master.ha.refused == 3
    assert not first.reader.at_eof()


async def test_without_a_secret_an_address_that_may_not_come_is_refused_too(
    start: Start, come: Come, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CountedAcks, "may_come", lambda self, host: host != "127.0.0.3")
    master = await start("master")
    stranger = await come(master, "127.0.0.3")
    assert await stranger.all() == b""
    assert "add it to haAllowedAddresses" in said(caplog)
    assert master.ha.slaves == []


@pytest.mark.usefixtures("patient")
async def test_a_slave_that_proves_the_secret_after_the_masters_end_was_stopped_is_closed(
    start: Start, come: Come, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    master = await start("master", ha_secret=SECRET)
    peer = await come(master, "127.0.0.2")
    proof = peer.side.feed(await peer.answer())
    await master.ha.stop()
    peer.writer.write(proof)
    await peer.all()
    assert master.ha.slaves == []
    assert "this master stops" in "\n".join(one.getMessage() for one in caplog.records)
    assert master.ha.refused == 0


@in_virtual_time
async def test_a_master_that_ends_the_prologue_is_named(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    address = f"127.0.0.1:{port}"
    settings = {"broker_role": "SLAVE", "broker_id": 1, "ha_master_address": address}
    await start("slave", ha_secret=SECRET, **settings)
    await until(lambda: address in said(caplog))
    assert ENDED in said(caplog)
    server.close()


async def test_replication_speaks_tls_with_the_secret_inside(start: Start, tmp_path: Path) -> None:
    pem = tmp_path / "own.pem"
    write_secret(pem, self_signed.make(time.time()))
    tls = {
        "ha_tls": True,
        "ha_secret": SECRET,
        "tls_server_cert_path": str(pem),
        "tls_client_auth_server": True,
        "tls_client_trust_cert_path": str(pem),
    }
    master = await start("master", **tls)
    await start("slave", master, **tls)
    await until(lambda: len(master.ha.slaves) == 1 and master.ha.slaves[0].acked >= 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", master.ha_port)
    writer.write(REPORT.pack(0))  # no TLS
    async with asyncio.timeout(LONG):
        with suppress(ConnectionResetError):
            await reader.read()
    writer.close()
    assert len(master.ha.slaves) == 1


async def test_a_slave_does_not_follow_a_master_whose_certificate_it_does_not_trust(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, other = tmp_path / "own.pem", tmp_path / "other.pem"
    write_secret(own, self_signed.make(time.time()))
    write_secret(other, self_signed.make(time.time()))
    master = await start("master", ha_tls=True, tls_server_cert_path=str(own))
    trust = {"tls_client_auth_server": True, "tls_client_trust_cert_path": str(other)}
    await start("slave", master, ha_tls=True, tls_server_cert_path=str(own), **trust)
    await until(lambda: "can't connect to the master" in said(caplog))
    assert "CERTIFICATE_VERIFY_FAILED" in said(caplog).upper().replace(" ", "_")
    assert master.ha.slaves == []


def test_tls_without_a_certificate_is_refused(config: Config) -> None:
    with pytest.raises(ConfigError, match="haTls is true and tlsServerCertPath is empty"):
        config(ha_tls=True)
