"""The PROXY protocol: the client's address from a load balancer, and from no other peer."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aerobee.proxy.http2.proxy_protocol import BYTES_MAX, HeaderError, Passed, read
from hypothesis import given
from hypothesis import strategies as st

from ...waiting import LONG
from .peer import Host, Peer, host
from .test_listener import trusting

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
LINE = b"PROXY TCP4 192.0.2.7 10.0.0.1 5000 8081\r\n"
ADDRESSES_4 = bytes((192, 0, 2, 7, 10, 0, 0, 1)) + (5_000).to_bytes(2) + (8_081).to_bytes(2)


def version_2(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + bytes((command, family)) + len(rest).to_bytes(2) + rest


V2 = version_2(0x21, 0x11, ADDRESSES_4 + b"\x04\x00\x01x")  # with a TLV
_6 = ipaddress.ip_address("2001:db8::7").packed
V2_6 = version_2(0x21, 0x21, _6 + _6 + ADDRESSES_4[8:])


@pytest.mark.parametrize(
    ("data", "client"),
    [
        (LINE, ("192.0.2.7", 5_000)),
        (b"PROXY TCP6 2001:db8::7 ::1 5000 8081\r\n", ("2001:db8::7", 5_000)),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ff:: ff:: 1 2\r\n", None),
        (V2, ("192.0.2.7", 5_000)),
        (V2_6, ("2001:db8::7", 5_000)),
        (version_2(0x20, 0, b""), None),  # the load balancer's own
        (version_2(0x21, 0x31, bytes(216)), None),  # a unix socket
    ],
)
def test_a_header_tells_the_client_and_its_own_size(
    data: bytes, client: tuple[str, int] | None
) -> None:
    assert read(data) == Passed(len(data), client)
    assert read(data + b"PRI * HTTP/2.0") == Passed(len(data), client)


@given(st.sampled_from((LINE, V2, V2_6)), st.data())
def test_any_part_of_a_header_waits_for_the_rest(whole: bytes, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(whole) - 1))
    assert read(whole[:end]) is None


@pytest.mark.parametrize(
    "data",
    [
        b"PRI * HTTP/2.0\r\n",
        b"\x16\x03\x01",
        b"PROXY TCP4 192.0.2.7\r\n",
        b"PROXY TCP4 2001:db8::7 ::1 1 2\r\n",
        b"PROXY TCP4 here there 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 70000 2\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 x 2\r\n",
        b"PROXY " + b"x" * 120,
        version_2(0x11, 0x11, ADDRESSES_4),
        version_2(0x21, 0x11, b"short"),
        SIGNATURE + b"\x21\x11" + BYTES_MAX.to_bytes(2),
    ],
)
def test_what_is_no_header_is_an_error(data: bytes) -> None:
    with pytest.raises(HeaderError):
        read(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_header_an_error_or_too_few(data: bytes) -> None:
    try:
        found = read(data)
    except HeaderError:
        return
    assert found is None or found.size <= len(data)


@asynccontextmanager
async def behind(network: str) -> AsyncIterator[Host]:
    """A listener that takes headers from this network."""
    async with host(balancers=(ipaddress.ip_network(network),)) as server:
        yield server


async def echo(peer: Peer) -> None:
    stream = peer.begin()
    peer.say(stream, b"hello")
    assert (await peer.answer(stream))[0][5:] == b"hello"


@pytest.mark.parametrize("header", [LINE, V2])
@pytest.mark.parametrize("step", [1, 1_000])
async def test_a_listed_address_tells_whose_connection_it_passes_on(
    header: bytes, step: int
) -> None:
    async with behind("127.0.0.0/8") as server:
        reader, writer = await server.socket()
        for at in range(0, len(header), step):
            writer.write(header[at : at + step])
            await writer.drain()
        await echo(Peer(reader, writer))
        (connection,) = server.shared.connections
        assert connection.peer == ("192.0.2.7", 5_000)


async def test_tls_comes_after_the_header() -> None:
    async with behind("127.0.0.1") as server:
        reader, writer = await server.socket()
        writer.write(V2)
        await writer.start_tls(trusting())
        await echo(Peer(reader, writer))
        (connection,) = server.shared.connections
        assert connection.peer == ("192.0.2.7", 5_000)


async def test_a_listed_address_must_send_one_and_no_other_may() -> None:
    async with behind("127.0.0.1") as server:
        peer = await server.peer()
        with pytest.raises(ConnectionError):
            await echo(peer)
    async with behind("192.0.2.0/24") as server:
        await echo(await server.peer())
        reader, writer = await server.socket()
        writer.write(LINE + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        async with asyncio.timeout(LONG):
            await reader.read(-1)
        assert not any(each.peer[0] == "192.0.2.7" for each in server.shared.connections)
