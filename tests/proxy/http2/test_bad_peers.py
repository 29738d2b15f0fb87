"""Peers that mean harm, by their frames: each ends its own connection, and others are served."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import Struct
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
from aerobee.proxy.http2 import connection as server_side
from aerobee.proxy.http2 import floods
from aerobee.proxy.http2.call import PREFIX
from hypothesis import given
from hypothesis import strategies as st

from ...waiting import LONG, until
from .peer import MESSAGE_MAX, Host, Peer, Service, host

pytestmark = pytest.mark.usefixtures("each_library")

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = (
    0,
    1,
    2,
    3,
    4,
    6,
    7,
    8,
    9,
)
END_HEADERS = 4
INITIAL_WINDOW_SIZE = 4
_HEAD = Struct(">BHBBI")
# POST, http, /t/echo, authority x, gRPC: literals without indexing.
REQUEST = b"\x83\x86\x04\x07/t/echo\x01\x01x\x0f\x10\x10application/grpc\x00\x02te\x08trailers"


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return _HEAD.pack(len(body) >> 16, len(body) & 0xFFFF, kind, flags, stream) + body


def literal(name: bytes, value: bytes, *, indexed: bool) -> bytes:
    """A header as HPACK writes it; an indexed one can be repeated in one byte."""
    return (b"\x40" if indexed else b"\x00") + _text(name) + _text(value)


def _text(data: bytes) -> bytes:
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest, size = b"", len(data) - 127
    while size > 127:
        rest += bytes([size & 127 | 128])
        size >>= 7
    return b"\x7f" + rest + bytes([size]) + data


def continuations() -> bytes:
    """A block of headers that never ends."""
    return frame(HEADERS, 0, 1, REQUEST) + 10_000 * frame(CONTINUATION, 0, 1)


def long_block() -> bytes:
    """A block of headers in large frames that never ends."""
    piece = literal(b"x-more", bytes(b"v" * 16_000), indexed=False)
    return frame(HEADERS, 0, 1, REQUEST) + 1_000 * frame(CONTINUATION, 0, 1, piece)


def hpack_bomb() -> bytes:
    """One header of 4,000 bytes, repeated 12,000 times in one byte each: 48 MB of headers."""
    bomb = literal(b"x-bomb", b"v" * 4_000, indexed=True) + 12_000 * b"\xbe"
    block = REQUEST + bomb
    return frame(HEADERS, END_HEADERS, 1, block[:16_384])


def long_headers() -> bytes:
    """Headers of 200 KB, each of which is small."""
    found = b""
    for number in range(50):
        kind = CONTINUATION if number else HEADERS
        block = (b"" if number else REQUEST) + literal(
            b"x-%d" % number, b"v" * 4_000, indexed=False
        )
        found += frame(kind, END_HEADERS if number == 49 else 0, 1, block)
    return found


def window_too_large() -> bytes:
    """An increment with which the window would be over 2^31 - 1."""
    return frame(WINDOW, 0, 0, (0x7FFFFFFF).to_bytes(4))


def frame_too_large() -> bytes:
    """A frame of 64 KB; the limit is 16 KB."""
    return frame(DATA, 0, 1, bytes(65_535))


def even_stream() -> bytes:
    return frame(HEADERS, END_HEADERS, 2, REQUEST)


def data_of_nobody() -> bytes:
    return frame(DATA, 0, 7, b"x")


def odd_indexes() -> bytes:
    """An index that HPACK's tables don't have."""
    return frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\x0f")


ATTACKS = [
    continuations,
    long_block,
    hpack_bomb,
    long_headers,
    window_too_large,
    frame_too_large,
    even_stream,
    data_of_nobody,
    odd_indexes,
]


@asynccontextmanager
async def attacked() -> AsyncIterator[tuple[Host, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A listener, and a raw connection that has said hello; afterwards others are served."""
    async with host() as server:
        reader, writer = await server.socket()
        writer.write(PREFACE + frame(SETTINGS, 0, 0))
        yield server, reader, writer
        await echo(await server.peer())
        assert server.shared.arriving_bytes == 0


async def echo(peer: Peer) -> None:
    stream = peer.begin()
    peer.say(stream, b"hello")
    assert await peer.answer(stream) == (PREFIX.pack(0, 5) + b"hello", 0, "")


async def end_of(reader: asyncio.StreamReader) -> bytes:
    """All that the server says until it closes."""
    found = b""
    async with asyncio.timeout(LONG):
        while True:
            try:
                data = await reader.read(1 << 16)
            except ConnectionError:
                return found
            if not data:
                return found
            found += data


async def test_the_headers_of_the_attacks_are_those_of_a_call() -> None:
    async with attacked() as (server, reader, writer):
        message = PREFIX.pack(0, 5) + b"hello"
        writer.write(frame(HEADERS, END_HEADERS, 1, REQUEST) + frame(DATA, 1, 1, message))
        said = b""
        while message not in said:
            said += await asyncio.wait_for(reader.read(1 << 16), LONG)
        assert server.shared.ended == {(b"/t/echo", 0): 1}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_frames_against_the_rules_end_the_connection(attack: Any) -> None:
    async with attacked() as (server, reader, writer):
        writer.write(attack())
        said = await end_of(reader)
        assert frame(GOAWAY, 0, 0)[3:5] in said or not said
        assert not server.shared.connections


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("PRIORITY", frame(PRIORITY, 0, 1, b"\0\0\0\0\x10")),
        ("WINDOW_UPDATE", frame(WINDOW, 0, 0, (1).to_bytes(4))),
        ("unknown", frame(0x99, 0, 0, b"x")),
        ("PING", frame(PING, 0, 0, b"12345678")),
        ("SETTINGS", frame(SETTINGS, 0, 0)),
        ("GOAWAY", frame(GOAWAY, 0, 0, bytes(8))),
    ],
)
async def test_a_flood_of_small_frames_ends_the_connection_with_the_limit(
    kind: str, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(floods.LIMITS, kind, 100)
    async with attacked() as (_, reader, writer):
        writer.write(data * 103)
        said = await end_of(reader)
        assert b"frames " + kind.encode() in said
        assert b"the limit is 100" in said


async def test_a_ping_for_each_answer_is_no_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's clients measure bandwidth so."""
    monkeypatch.setitem(floods.LIMITS, "PING", 3)
    async with host() as server:
        peer = await server.peer()
        for _ in range(10):
            await echo(peer)
            peer.h2.ping(b"how wide")
            peer.flush()
        await echo(peer)
        assert len(server.shared.connections) == 1


async def test_a_window_of_zero_holds_back_answers_and_costs_little() -> None:
    async with host() as server:
        peer = await server.peer()
        await peer.until(h2.events.RemoteSettingsChanged)
        peer.h2.update_settings({INITIAL_WINDOW_SIZE: 0})
        peer.flush()
        await peer.until(h2.events.SettingsAcknowledged)
        stream = peer.begin("/t/flow")
        peer.say(stream, b"20")
        await peer.until(h2.events.ResponseReceived, stream)
        for _ in range(50):
            await echo(await server.peer())
            if server.service.written:
                break
        assert server.service.written <= 2  # of 20 MiB
        late = peer.begin(grpc_timeout="50m")
        peer.say(late, b"hello")
        await peer.until(h2.events.StreamReset, late)  # it never took the answer
        peer.h2.update_settings({INITIAL_WINDOW_SIZE: 65_535})
        peer.flush()
        event = await peer.until(h2.events.DataReceived, stream)
        assert len(event.data) > 1_000


async def test_calls_beyond_a_thousand_are_refused_and_others_are_served() -> None:
    async with attacked() as (server, reader, writer):
        for number in range(1_200):
            writer.write(frame(HEADERS, END_HEADERS, 2 * number + 1, REQUEST))
        await end_of(reader)
        assert not server.shared.connections


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x01\x00\x05garbage", bytes([22]) + bytes(99)]
)
async def test_half_a_handshake_and_garbage_in_tls_harm_nobody(data: bytes) -> None:
    async with host() as server:
        _, writer = await server.socket()
        writer.write(data)
        await echo(await server.peer())


class Wire:
    """The transport of a connection in memory."""

    def __init__(self) -> None:
        self.said = bytearray()

    def write(self, data: bytes) -> None:
        self.said += data

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return "127.0.0.1", 1

    def set_write_buffer_limits(self, high: int) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


def dialogue() -> tuple[bytes, dict[int, bytes]]:
    """What a client says in three calls at once, among other frames, and the answers to them."""
    client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    client.initiate_connection()

    def begin(path: str) -> int:
        stream: int = client.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "x"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("x-long", "v" * 300),
        ]
        client.send_headers(stream, headers)
        return stream

    echoed, talked, dropped = begin("/t/echo"), begin("/t/talk"), begin("/t/hang")
    message = PREFIX.pack(0, 300) + b"e" * 300
    client.send_data(echoed, message[:3])
    client.send_data(talked, PREFIX.pack(0, 2) + b"ab" + PREFIX.pack(0, 1))
    client.ping(b"12345678")
    client.send_data(echoed, message[3:100], pad_length=7)
    client.reset_stream(dropped, 8)
    client.send_data(talked, b"c", end_stream=True)
    client.update_settings({INITIAL_WINDOW_SIZE: 70_000})
    client.send_data(echoed, message[100:], end_stream=True)
    talk = PREFIX.pack(0, 2) + b"ab" + PREFIX.pack(0, 1) + b"c"
    return client.data_to_send(), {echoed: message, talked: talk}


async def answers(pieces: list[bytes]) -> tuple[dict[int, bytes], set[int], bool]:
    """Data by stream, the streams that ended, and whether the ping was answered."""
    shared = server_side.Shared(Service().methods(), MESSAGE_MAX)
    served, wire = server_side.Http2Connection(shared), Wire()
    transport: Any = wire
    served.connection_made(transport)
    for piece in pieces:
        served.data_received(piece)
        await asyncio.sleep(0)
    await until(lambda: not (shared.tasks or served._is_flushing), "answers are written", pause=0)
    data: dict[int, bytes] = {}
    ended: set[int] = set()
    ponged, at, said = False, 0, bytes(wire.said)
    while at < len(said):
        high, low, kind, flags, stream = _HEAD.unpack_from(said, at)
        body = said[at + 9 : at + 9 + (high << 16 | low)]
        at += 9 + len(body)
        if kind == DATA:
            data[stream] = data.get(stream, b"") + body
        ponged |= kind == PING and flags == 1 and body == b"12345678"
        if kind == HEADERS and flags & 1:
            ended.add(stream)
    served.connection_lost(None)
    return data, ended, ponged


@given(cuts=st.lists(st.integers(0, 2_000), max_size=40))
def test_any_split_of_a_dialogue_is_the_same_dialogue(cuts: list[int]) -> None:
    said, wanted = dialogue()
    edges = [0, *sorted(min(cut, len(said)) for cut in cuts), len(said)]
    pieces = [said[a:b] for a, b in itertools.pairwise(edges) if b > a]
    data, ended, ponged = asyncio.run(answers(pieces))
    assert data == wanted
    assert ended >= set(wanted)
    assert ponged


def test_a_dialogue_byte_by_byte_is_the_same_dialogue() -> None:
    said, wanted = dialogue()
    data, _, ponged = asyncio.run(answers([said[at : at + 1] for at in range(len(said))]))
    assert (data, ponged) == (wanted, True)


@given(data=st.binary(max_size=400))
def test_any_bytes_after_the_preface_end_in_an_answer_or_the_end(data: bytes) -> None:
    asyncio.run(answers([PREFACE + frame(SETTINGS, 0, 0), data]))
