"""The port: TLS and plain together, idle connections, the end in two steps."""

import asyncio
import gc
import socket
import ssl
import time
from pathlib import Path

import h2.events
import pytest
from aerobee.protocol.security import self_signed
from aerobee.proxy.http2.call import PREFIX
from aerobee.proxy.http2.listener import GrpcTls

from ...secret_files import write_secret
from ...waiting import LONG, until
from .peer import Host, host


def trusting() -> ssl.SSLContext:
    """A client that checks no certificate and speaks HTTP/2."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


async def test_tls_and_plain_share_the_port() -> None:
    async with host() as server:
        for more in ({}, {"ssl": trusting()}):
            peer = await server.peer(**more)
            if more:
                found = peer.writer.get_extra_info("ssl_object")
                assert found.selected_alpn_protocol() == "h2"
            stream = peer.begin()
            peer.say(stream, b"hello")
            assert (await peer.answer(stream))[1] == 0


async def test_enforcing_closes_plain_connections() -> None:
    async with host("enforcing") as server:
        reader, writer = await server.socket()
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        async with asyncio.timeout(LONG):
            assert await reader.read(-1) == b""


async def test_a_connection_without_a_word_is_closed_after_thirty_seconds() -> None:
    async with host() as server:
        reader, _ = await server.socket()
        await until(lambda: server.shared.connections, "the other end is not there")
        (connection,) = server.shared.connections
        server.listener.sweep(connection.heard_at + 29)
        assert len(server.shared.connections) == 1
        server.listener.sweep(connection.heard_at + 31)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), LONG)


async def test_an_idle_connection_is_asked_to_go_but_not_with_a_call() -> None:
    async with host() as server:
        idle, busy = await server.peer(), await server.peer()
        for peer in (idle, busy):
            await peer.until(h2.events.RemoteSettingsChanged)
        busy.begin("/t/talk")
        busy.h2.ping(b"12345678")
        busy.flush()
        await busy.until(h2.events.PingAckReceived)
        for connection in server.shared.connections:
            connection.heard_at -= 0 if connection.calls else 121
        server.listener.sweep(time.monotonic())
        await idle.until(h2.events.ConnectionTerminated)
        stream = busy.begin()
        busy.say(stream, b"x")
        assert (await busy.answer(stream))[1] == 0


async def test_the_end_comes_in_two_steps_and_calls_under_way_are_finished() -> None:
    async with host(grace_seconds=5) as server:
        peer = await server.peer()
        stream = peer.begin("/t/talk")
        peer.say(stream, b"x", end=False)
        await peer.until(h2.events.DataReceived, stream)
        stopping = asyncio.create_task(server.listener.stop())
        data = b""
        while data.count(b"\x00\x00\x08\x07\x00") < 2:  # two GOAWAY frames
            data += await peer.reader.read(1 << 16)
        first, second = (part[4:8] for part in data.split(b"\x00\x00\x08\x07\x00")[1:])
        assert first == b"\x7f\xff\xff\xff"
        assert second == stream.to_bytes(4, "big")
        peer.h2.end_stream(stream)
        peer.flush()
        await peer.ended()
        await stopping
        assert server.shared.ended == {(b"/t/talk", 0): 1}


@pytest.mark.usefixtures("each_library")
async def test_calls_under_way_go_on_after_a_goaway_of_the_client() -> None:
    async with host() as server:
        peer = await server.peer()
        stream = peer.begin("/t/talk")
        peer.say(stream, b"one", end=False)
        await peer.until(h2.events.DataReceived, stream)
        goaway = b"\x00\x00\x08\x07" + bytes(5) + bytes(8)
        peer.h2.send_data(stream, PREFIX.pack(0, 3) + b"two", end_stream=True)
        peer.writer.write(goaway + peer.h2.data_to_send())  # in one segment, as Node.js's client
        assert (await peer.answer(stream))[1] == 0
        await peer.ended()
        assert server.shared.ended == {(b"/t/talk", 0): 1}


@pytest.mark.usefixtures("each_library")
async def test_an_error_of_the_client_ends_its_calls() -> None:
    async with host() as server:
        peer = await server.peer()
        peer.say(peer.begin("/t/hang"), b"x")
        await server.service.called.wait()
        peer.h2.close_connection(error_code=2)
        peer.flush()
        await asyncio.wait_for(server.service.cancelled.wait(), LONG)
        await peer.ended()


async def test_at_the_end_receives_that_wait_are_told_to_call_again() -> None:
    async with host(grace_seconds=30) as server:
        peer = await server.peer()
        stream = peer.begin("/t/wait")
        peer.say(stream, b"x")
        await server.service.called.wait()
        await asyncio.wait_for(server.listener.stop(), LONG)
        assert server.shared.ended == {(b"/t/wait", 14): 1}  # UNAVAILABLE


async def test_a_dead_connection_with_a_call_is_closed_after_a_ping() -> None:
    async with host() as server:
        alive, dead = await server.peer(), await server.peer()
        for peer in (alive, dead):
            stream = peer.begin("/t/talk")
            peer.say(stream, b"x", end=False)
            await peer.until(h2.events.DataReceived, stream)
        for connection in server.shared.connections:
            connection.heard_at -= 41
        now = time.monotonic()
        server.listener.sweep(now)
        await alive.until(h2.events.PingReceived)  # the library answers
        stream = alive.begin()
        alive.say(stream, b"x")
        await alive.answer(stream)
        server.listener.sweep(now + 20)
        assert len(server.shared.connections) == 2
        server.listener.sweep(now + 35)
        with pytest.raises(ConnectionError):
            await dead.until(h2.events.StreamEnded)
        assert len(server.shared.connections) == 1


async def test_a_connection_that_stays_after_it_was_asked_to_go_is_cut() -> None:
    async with host() as server:
        peer = await server.peer()
        await peer.until(h2.events.RemoteSettingsChanged)
        server.listener.sweep(time.monotonic() + 131)
        async with asyncio.timeout(LONG):
            with pytest.raises(ConnectionError):
                await peer.until(h2.events.StreamEnded)


def write_certificate(cert: Path, key: Path) -> bytes:
    """A new certificate with its key in two files; the certificate as clients see it."""
    text = self_signed.make(time.time()).decode()
    cut = text.index("-----BEGIN CERTIFICATE-----")
    parts = text[:cut], text[cut:]
    pem, secret = sorted(parts, key=lambda part: "CERTIFICATE" not in part)
    cert.write_text(pem)
    write_secret(key, secret.encode())
    return ssl.PEM_cert_to_DER_cert(pem)


async def seen(server: Host) -> bytes:
    """The certificate that a client sees, and it can call."""
    peer = await server.peer(ssl=trusting())
    stream = peer.begin()
    peer.say(stream, b"hello")
    assert (await peer.answer(stream))[1] == 0
    found: bytes = peer.writer.get_extra_info("ssl_object").getpeercert(True)
    return found


async def test_a_changed_certificate_is_in_use_from_the_next_connection_on(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    first = write_certificate(cert, key)
    async with host(tls=GrpcTls("permissive", str(cert), str(key))) as server:
        assert await seen(server) == first
        cert.write_text("half a certificate")
        assert await seen(server) == first  # what can't be read is not used
        second = write_certificate(cert, key)
        assert await seen(server) == second != first
        cert.unlink()
        assert await seen(server) == second


@pytest.mark.parametrize("iterations", range(6))
async def test_a_connection_that_is_accepted_as_the_proxy_stops_is_closed(iterations: int) -> None:
    async with host() as server:
        with socket.create_connection(("127.0.0.1", server.listener.port)):
            for _ in range(iterations):  # of the loop, in one of which the connection is accepted
                await asyncio.sleep(0)
            await server.listener.stop()
            gc.collect()  # an open transport would be a warning, which fails this test
            assert not server.shared.connections
