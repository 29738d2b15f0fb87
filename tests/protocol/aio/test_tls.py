"""Servers that accept TLS and plain connections on one port."""

import asyncio
import contextlib
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from aerobee.protocol import security
from aerobee.protocol.aio.connection import Connection, Row
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.aio.server import Server, table
from aerobee.protocol.aio.tls import (
    KEPT_MAX,
    WAITING_BYTES_MAX,
    Mode,
    Tls,
    client_context,
    server_context,
)
from aerobee.protocol.codec.frame import encode_request
from aerobee.protocol.command import Command, Response
from aerobee.protocol.security import self_signed

from ...secret_files import write_secret
from ...waiting import LONG

ECHO, TELL = 9001, 9002
BIG = bytes(range(256)) * 8_192  # 2 MiB: many TLS records, more than a socket takes at once


class Desk:
    """What a server responds, and which connections it lost."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def rows(self) -> dict[int, Row]:
        return table([Row(ECHO, None, self.echo), Row(TELL, None, self.tell)])

    def echo(self, header: None, command: Command, connection: Connection) -> Response:
        return Response(0, {"from": connection.address}, body=command.body)

    def tell(self, header: None, command: Command, connection: Connection) -> Response:
        asyncio.get_running_loop().call_soon(connection.close)  # the response is on its way
        return Response(0, remark="bye")


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate in one file."""
    path = tmp_path_factory.mktemp("tls") / "own.pem"
    write_secret(path, self_signed.make(time.time()))
    return path


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Tls], Awaitable[tuple[str, Desk]]]]:
    """Starts a server; returns its address and its desk."""
    servers: list[Server] = []

    async def start(tls: Tls) -> tuple[str, Desk]:
        desk = Desk()
        server = Server(on_lost=lambda _: desk.lost.set(), tls=tls)
        servers.append(server)
        return f"127.0.0.1:{await server.listen('127.0.0.1', 0, desk.rows())}", desk

    yield start
    for server in servers:
        await server.stop()


def trusting(pem: Path | None) -> ssl.SSLContext:
    """A client's context that trusts this certificate, or any without one."""
    context = ssl.create_default_context(cafile=str(pem) if pem else None)
    context.check_hostname = False
    if pem is None:
        context.verify_mode = ssl.CERT_NONE
    return context


def without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a machine without `cryptography`."""
    monkeypatch.delattr(security, "self_signed")
    monkeypatch.setitem(sys.modules, "aerobee.protocol.security.self_signed", None)


async def echo(address: str, tls: ssl.SSLContext | None, body: bytes = b"hello") -> bytes | None:
    peers = Peers(tls=tls)
    try:
        answers = [await peers.request(address, ECHO, None, body, 20) for _ in range(3)]
    finally:
        await peers.close()
    assert len({answer.fields()["from"] for answer in answers}) == 1
    return answers[-1].body


@pytest.mark.parametrize("body", [b"hello", BIG])
async def test_one_port_accepts_tls_and_plain_connections(
    serve: Callable[[Tls], Awaitable[tuple[str, Desk]]], pem: Path, body: bytes
) -> None:
    address, _ = await serve(Tls("permissive", str(pem)))
    contexts = (trusting(pem), None, None)
    found = await asyncio.gather(*(echo(address, each, body) for each in contexts))
    assert found == [body] * 3


async def test_a_server_without_a_certificate_makes_one_for_all_connections(
    serve: Callable[[Tls], Awaitable[tuple[str, Desk]]],
) -> None:
    tls = Tls("permissive")
    address, _ = await serve(tls)
    anyone = trusting(None)
    assert await asyncio.gather(*(echo(address, anyone) for _ in range(3))) == [b"hello"] * 3
    assert await tls.context() is await tls.context()
    with pytest.raises(ConnectionError, match="certificate verify failed"):
        await echo(address, ssl.create_default_context())


async def test_enforcing_mode_closes_plain_connections(
    serve: Callable[[Tls], Awaitable[tuple[str, Desk]]], pem: Path
) -> None:
    address, desk = await serve(Tls("enforcing", str(pem)))
    with pytest.raises(ConnectionError, match="before it answered anything; does it want TLS"):
        await echo(address, None)
    assert desk.lost.is_set()
    assert await echo(address, trusting(pem)) == b"hello"


@pytest.mark.parametrize("mode", ["disabled", "permissive"])
async def test_a_malformed_client_hello_closes_the_connection(
    serve: Callable[[Tls], Awaitable[tuple[str, Desk]]], pem: Path, mode: Mode
) -> None:
    address, desk = await serve(Tls(mode, str(pem)))
    reader, writer = await asyncio.open_connection(*address.split(":"))
    writer.write(b"\x16\x03\x01" + bytes(2_000))
    async with asyncio.timeout(LONG):
        await reader.read()
        await desk.lost.wait()
    writer.close()
    await writer.wait_closed()


async def test_after_a_response_a_lost_connection_is_not_reported_as_needing_tls(
    serve: Callable[[Tls], Awaitable[tuple[str, Desk]]],
) -> None:
    address, _ = await serve(Tls("disabled"))
    peers = Peers()
    await peers.request(address, TELL, timeout_s=20)
    connection = await peers.connect(address)
    connection.request(ECHO, None, b"", 20)
    asked = connection.request(TELL, None, b"", 20)
    with contextlib.suppress(ConnectionError):
        await asked
    with pytest.raises(ConnectionError) as raised:
        await connection.request(ECHO, None, b"", 20)
    assert "TLS" not in str(raised.value)
    await peers.close()


async def test_the_error_distinguishes_a_server_without_tls_from_one_without_a_certificate(
    serve: Callable[[Tls], Awaitable[tuple[str, Desk]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, _ = await serve(Tls("disabled"))
    with pytest.raises(ConnectionError, match="it may have tlsServerMode=disabled"):
        await echo(address, trusting(None))
    without_the_package(monkeypatch)
    address, _ = await serve(Tls("permissive"))
    with pytest.raises(ConnectionError, match=r"\d: \w.*: it cut the TLS handshake off") as raised:
        await echo(address, trusting(None))
    assert "cryptography: pip install 'aerobee[tls]'" in str(raised.value)


async def test_an_answer_that_is_not_tls_is_reported() -> None:
    async def speak_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(speak_plainly, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(ConnectionError, match="does not speak TLS there; switch TLS off"):
        await echo(address, trusting(None))
    with pytest.raises(ConnectionError, match=r"closed: a frame of .* which is HTTP"):
        await echo(address, None)
    server.close()
    await server.wait_closed()


def test_enforcing_mode_without_any_certificate_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, pem: Path
) -> None:
    without_the_package(monkeypatch)
    with pytest.raises(OSError, match=r"cryptography.*is not installed: run pip install 'aerobee"):
        Tls("enforcing")
    Tls("enforcing", str(pem))
    Tls("permissive")


async def test_a_client_that_sends_too_much_before_the_certificate_is_ready_is_disconnected(
    serve: Callable[[Tls], Awaitable[tuple[str, Desk]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, never = Tls("permissive"), asyncio.Event()
    monkeypatch.setattr(tls, "context", never.wait)
    address, desk = await serve(tls)
    _, writer = await asyncio.open_connection(*address.split(":"))
    writer.write(b"\x16")
    await writer.drain()
    writer.write(bytes(WAITING_BYTES_MAX + 1))
    async with asyncio.timeout(LONG):
        await desk.lost.wait()
    never.set()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_a_close_sends_close_notify_after_the_last_response(
    serve: Callable[[Tls], Awaitable[tuple[str, Desk]]], pem: Path
) -> None:
    address, desk = await serve(Tls("permissive", str(pem)))
    reader, writer = await asyncio.open_connection(*address.split(":"), ssl=trusting(pem))
    writer.write(encode_request(TELL, 1, None))
    async with asyncio.timeout(LONG):
        assert b"bye" in await reader.read()  # without close_notify the read raises an error
        await desk.lost.wait()
    writer.close()
    await writer.wait_closed()


def test_a_file_without_a_certificate_is_named(tmp_path: Path, pem: Path) -> None:
    with pytest.raises(OSError, match="give a certificate and its key in PEM"):
        Tls("permissive", str(tmp_path / "missing.pem"))
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    with pytest.raises(OSError, match=r"broken\.pem"):
        Tls("permissive", str(pem), str(broken))
    assert Tls("disabled", str(broken)).mode == "disabled"


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_key_that_its_owner_and_group_can_read_is_used(
    tmp_path: Path, pem: Path, mode: int
) -> None:
    key = tmp_path / "own.key"
    write_secret(key, pem.read_bytes())
    key.chmod(mode)
    link = tmp_path / "tls.key"  # as Kubernetes mounts a Secret
    link.symlink_to(key)
    Tls("enforcing", str(pem), str(link))


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o620, 0o601])
@pytest.mark.parametrize("is_apart", [True, False])
def test_a_key_that_others_can_read_or_change_is_refused(
    tmp_path: Path, pem: Path, mode: int, *, is_apart: bool
) -> None:
    key = tmp_path / "own.key"
    write_secret(key, pem.read_bytes())
    key.chmod(mode)
    paths = (str(pem), str(key)) if is_apart else (str(key),)
    with pytest.raises(OSError, match=f"tlsServerKeyPath.*mode {mode:04o}.*0640.*chmod 600"):
        Tls("enforcing", *paths)
    key.chmod(0o600)
    Tls("enforcing", *paths)


async def certificate_of(host: str, port: int) -> bytes:
    """What a client sees that asks for no name."""
    context = trusting(None)
    _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="")
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return found


def der(path: Path) -> bytes:
    text = path.read_text()
    return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE-----") :])


@pytest.mark.parametrize("kind", ["remoting", "replication"])
async def test_a_changed_certificate_is_in_use_from_the_next_connection_on(
    serve: Callable[[Tls], Awaitable[tuple[str, Desk]]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    path = tmp_path / "own.pem"
    write_secret(path, self_signed.make(time.time()))
    first = der(path)
    async with AsyncExitStack() as stack:
        if kind == "remoting":
            address, _ = await serve(Tls("enforcing", str(path), str(path)))
            port = int(address.rpartition(":")[2])
        else:
            context = server_context(str(path), str(path))
            served = await asyncio.start_server(lambda _, w: w.close(), "127.0.0.1", 0, ssl=context)
            await stack.enter_async_context(served)
            port = served.sockets[0].getsockname()[1]
        assert await certificate_of("127.0.0.1", port) == first
        path.write_text("half a certificate")
        for _ in range(2):
            assert await certificate_of("127.0.0.1", port) == first
        assert caplog.text.count("the changed certificate is not used") == 1
        path.unlink()
        path.write_bytes(self_signed.make(time.time()))
        path.chmod(0o644)
        assert await certificate_of("127.0.0.1", port) == first
        assert "mode 0644" in caplog.text
        path.chmod(0o600)
        assert await certificate_of("127.0.0.1", port) == der(path) != first
        path.unlink()
        assert await certificate_of("127.0.0.1", port) != first


async def test_a_server_that_is_made_again_goes_on_with_the_last_usable_certificate(
    serve: Callable[[Tls], Awaitable[tuple[str, Desk]]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "own.pem"
    write_secret(path, self_signed.make(time.time()))
    first = der(path)
    Tls("enforcing", str(path))
    path.write_text("half a certificate")
    address, _ = await serve(Tls("enforcing", str(path)))
    port = int(address.rpartition(":")[2])
    assert await certificate_of("127.0.0.1", port) == first
    assert "the changed certificate is not used" in caplog.text
    write_secret(path, self_signed.make(time.time()))
    assert await certificate_of("127.0.0.1", port) == der(path) != first


def test_authorities_that_cannot_be_read_again_stay_trusted(
    tmp_path: Path, pem: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trust.pem"
    path.write_text("no certificate")
    with pytest.raises(OSError, match="tlsClientTrustCertPath"):
        client_context(auth_server=True, trust_cert_path=str(path))
    path.write_bytes(pem.read_bytes())
    trusted = client_context(auth_server=True, trust_cert_path=str(path))
    path.write_text("no certificate")
    kept = client_context(auth_server=True, trust_cert_path=str(path))
    assert kept.get_ca_certs() == trusted.get_ca_certs() != []
    assert "stay trusted" in caplog.text


def test_a_process_keeps_a_limited_number_of_certificates(tmp_path: Path, pem: Path) -> None:
    path = tmp_path / "own.pem"
    write_secret(path, pem.read_bytes())
    kept = server_context(str(path))
    assert server_context(str(path)) is kept
    for number in range(KEPT_MAX):
        other = tmp_path / f"{number}.pem"
        write_secret(other, pem.read_bytes())
        server_context(str(other))
    path.write_text("no certificate")
    with pytest.raises(OSError, match="give a certificate and its key in PEM"):
        server_context(str(path))
