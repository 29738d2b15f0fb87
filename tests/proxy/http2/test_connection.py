"""gRPC over HTTP/2 by its bytes: calls, deadlines, flow control, floods."""

import asyncio
import gzip
from collections.abc import Callable
from typing import Any

import h2.events
import pytest
from aerobee.proxy.http2 import connection as server_side
from aerobee.proxy.http2 import floods
from aerobee.proxy.http2.call import PREFIX
from hypothesis import given
from hypothesis import strategies as st

from ...client.clock import Clock
from ...waiting import LONG
from .peer import MESSAGE_MAX, Peer, host

pytestmark = pytest.mark.usefixtures("each_library")

ENHANCE_YOUR_CALM = 11
NO_ERROR, CANCEL = 0, 8


async def test_a_call_is_answered_with_its_message_and_status() -> None:
    async with host() as server:
        peer = await server.peer()
        stream = peer.begin()
        peer.say(stream, b"hello")
        assert await peer.answer(stream) == (PREFIX.pack(0, 5) + b"hello", 0, "")
        assert server.shared.ended == {(b"/t/echo", 0): 1}


async def test_a_stream_goes_both_ways() -> None:
    async with host() as server:
        peer = await server.peer()
        stream = peer.begin("/t/talk")
        for word in (b"a", b"b"):
            peer.say(stream, word, end=False)
            event = await peer.until(h2.events.DataReceived, stream)
            assert event.data == PREFIX.pack(0, 1) + word
        peer.h2.end_stream(stream)
        peer.flush()
        assert (await peer.answer(stream))[1] == 0


@pytest.mark.parametrize(
    ("path", "data", "more", "status", "said"),
    [
        ("/t/none", b"x", {}, 12, "Method not found: t/none"),
        ("/t/fail", b"x", {}, 13, "the proxy failed"),
        ("/t/echo", b"unparsable", {}, 13, "the request can't be parsed"),
        ("/t/echo", b"x", {"grpc_timeout": "soon"}, 13, "grpc-timeout is b'soon'"),
        ("/t/echo", bytes(MESSAGE_MAX + 1), {}, 8, f"the limit is {MESSAGE_MAX}"),
    ],
)
async def test_what_is_wrong_with_a_call_is_its_status(
    path: str, data: bytes, more: dict[str, Any], status: int, said: str
) -> None:
    async with host() as server:
        peer = await server.peer()
        stream = peer.begin(path, **more)
        if len(data) > MESSAGE_MAX:
            peer.raw(stream, PREFIX.pack(0, len(data)))  # its length alone is enough
        else:
            peer.say(stream, data)
        _, found, message = await peer.answer(stream)
        assert (found, said in message) == (status, True), message


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "without a request"),
        (b"\0\0\0", "inside a message"),
        (PREFIX.pack(0, 5) + b"1234", "inside a message"),
        (PREFIX.pack(7, 1) + b"1", "compressed flag is 7"),
        (2 * (PREFIX.pack(0, 1) + b"1"), "more than one request"),
        (PREFIX.pack(1, 3) + b"odd", "grpc-encoding is ''"),
    ],
)
async def test_lengths_that_lie_are_refused(data: bytes, said: str) -> None:
    async with host() as server:
        peer = await server.peer()
        stream = peer.begin()
        peer.raw(stream, data, end=True)
        _, status, message = await peer.answer(stream)
        assert status in (12, 13)
        assert said in message
        assert server.shared.arriving_bytes == 0


async def test_gzip_is_unpacked_and_a_bomb_is_refused() -> None:
    async with host() as server:
        peer = await server.peer()
        stream = peer.begin(grpc_encoding="gzip")
        peer.say(stream, gzip.compress(b"hello"), flag=1)
        assert await peer.answer(stream) == (PREFIX.pack(0, 5) + b"hello", 0, "")
        for data, wanted in ((gzip.compress(bytes(8 * MESSAGE_MAX)), 8), (b"no gzip", 13)):
            stream = peer.begin(grpc_encoding="gzip")
            peer.say(stream, data, flag=1)
            assert (await peer.answer(stream))[1] == wanted


async def test_what_is_no_grpc_gets_a_status_of_http() -> None:
    async with host() as server:
        peer = await server.peer()
        stream = peer.begin(end=True, content_type="text/html")
        event = await peer.until(h2.events.ResponseReceived, stream)
        assert dict(event.headers)[":status"] == "415"


async def test_a_deadline_ends_a_call() -> None:
    async with host() as server:
        peer = await server.peer()
        stream = peer.begin("/t/hang", grpc_timeout="50m")
        peer.say(stream, b"x")
        assert (await peer.answer(stream))[1] == 4
        async with asyncio.timeout(LONG):
            await server.service.cancelled.wait()


async def test_a_reset_cancels_the_handler() -> None:
    async with host() as server:
        peer = await server.peer()
        stream = peer.begin("/t/hang")
        peer.say(stream, b"x")
        await server.service.called.wait()
        peer.h2.reset_stream(stream, CANCEL)
        peer.flush()
        async with asyncio.timeout(LONG):
            await server.service.cancelled.wait()


async def test_a_lost_connection_cancels_its_calls() -> None:
    async with host() as server:
        peer = await server.peer()
        peer.say(peer.begin("/t/hang"), b"x")
        await server.service.called.wait()
        peer.writer.transport.abort()
        async with asyncio.timeout(LONG):
            await server.service.cancelled.wait()


async def test_a_peer_that_takes_nothing_is_waited_for_and_others_are_served() -> None:
    async with host() as server:
        peer = await server.peer()  # its window is 64 KiB and nothing is acknowledged
        stream = peer.begin("/t/flow")
        peer.say(stream, b"20")
        await peer.until(h2.events.DataReceived, stream)
        other = await server.peer()
        stream = other.begin()
        other.say(stream, b"hello")
        assert (await other.answer(stream))[1] == 0
        assert server.service.written < 3  # of 20 MiB


async def test_a_long_answer_comes_whole_as_the_peer_takes_it() -> None:
    async with host() as server:
        peer = await server.peer()
        stream = peer.begin("/t/flow")
        peer.say(stream, b"3")
        count = 0
        while count < 3 * ((1 << 20) + PREFIX.size):
            event = await peer.until(h2.events.DataReceived, stream)
            count += len(event.data)
            peer.h2.acknowledge_received_data(event.flow_controlled_length, stream)
            peer.flush()
        assert count == 3 * ((1 << 20) + PREFIX.size)
        await peer.until(h2.events.StreamEnded, stream)


async def test_a_large_request_fits_through_the_windows() -> None:
    async with host() as server:
        peer = await server.peer()
        await peer.until(h2.events.WindowUpdated)
        for _ in range(3):
            stream = peer.begin()
            data = bytes(MESSAGE_MAX - 10)
            peer.say(stream, data)
            count = 0
            while count < len(data):
                event = await peer.until(h2.events.DataReceived, stream)
                count += len(event.data)
                peer.h2.acknowledge_received_data(event.flow_controlled_length, stream)
                peer.flush()
            await peer.until(h2.events.StreamEnded, stream)
        assert server.shared.arriving_bytes == 0


def resets(peer: Peer) -> None:
    for _ in range(floods.LIMITS["RST_STREAM"] + 1):
        stream = peer.begin("/t/hang")
        peer.h2.reset_stream(stream, CANCEL)


def pings(peer: Peer) -> None:
    for _ in range(floods.LIMITS["PING"] + 1):
        peer.h2.ping(b"12345678")


def settings(peer: Peer) -> None:
    for _ in range(floods.LIMITS["SETTINGS"] + 2):
        peer.h2.update_settings({4: 65_535})


def empty_data(peer: Peer) -> None:
    stream = peer.begin()
    for _ in range(floods.LIMITS["empty DATA"] + 1):
        peer.h2.send_data(stream, b"")


@pytest.mark.parametrize("flood", [resets, pings, settings, empty_data])
async def test_a_flood_of_cheap_frames_ends_the_connection(flood: Callable[[Peer], None]) -> None:
    async with host() as server:
        peer = await server.peer()
        await peer.until(h2.events.RemoteSettingsChanged)
        flood(peer)
        peer.flush()
        gone = await peer.until(h2.events.ConnectionTerminated)
        assert gone.error_code == ENHANCE_YOUR_CALM
        assert b"the limit is" in gone.additional_data
        other = await server.peer()
        stream = other.begin()
        other.say(stream, b"hello")
        assert (await other.answer(stream))[1] == 0


async def test_pings_every_ten_seconds_are_answered_without_calls() -> None:
    async with host() as server:
        peer = await server.peer()
        for _ in range(20):
            peer.h2.ping(b"12345678")
            peer.flush()
            await peer.until(h2.events.PingAckReceived)


async def test_more_calls_at_once_than_the_limit_end_the_connection() -> None:
    async with host() as server:
        peer = await server.peer()
        settings_of_server = await peer.until(h2.events.RemoteSettingsChanged)
        assert settings_of_server.changed_settings[3].new_value == 1_000
        peer.h2.remote_settings[3] = 100_000  # a client that doesn't mind
        peer.h2.remote_settings.acknowledge()
        for _ in range(1_001):
            peer.begin("/t/hang")
        gone = await peer.until((h2.events.ConnectionTerminated, h2.events.StreamReset))
        assert gone is not None


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100),
        bytes(range(23, 256)),
    ],
)
async def test_bytes_that_are_no_http2_close_the_connection(data: bytes) -> None:
    async with host() as server:
        reader, writer = await server.socket()
        writer.write(data)
        async with asyncio.timeout(LONG):
            await reader.read(-1)
        assert not server.shared.connections


@given(cuts=st.lists(st.integers(1, 200), max_size=20))
def test_any_split_of_the_bytes_is_the_same_call(cuts: list[int]) -> None:
    async def run() -> None:
        async with host() as server:
            peer = await server.peer()
            sent: list[bytes] = []
            writer, peer.writer = peer.writer, Sink(sent)  # type: ignore[assignment]
            stream = peer.begin()
            peer.say(stream, b"hello" * 20)
            peer.writer = writer
            data = b"".join(sent)
            for cut in cuts:
                writer.write(data[:cut])
                data = data[cut:]
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(data)
            assert (await peer.answer(stream))[0] == PREFIX.pack(0, 100) + b"hello" * 20

    asyncio.run(run())


class Sink:
    """Takes bytes instead of a socket."""

    def __init__(self, sent: list[bytes]) -> None:
        self.sent = sent

    def write(self, data: bytes) -> None:
        self.sent.append(data)


async def test_a_message_of_a_stream_of_requests_has_a_smaller_limit() -> None:
    async with host() as server:
        server.shared.message_bytes_max = 100 << 20
        peer = await server.peer()
        stream = peer.begin("/t/talk")
        peer.raw(stream, PREFIX.pack(0, (1 << 20) + 1))
        _, status, message = await peer.answer(stream)
        assert (status, "the limit is 1048576" in message) == (8, True)


async def test_a_handler_learns_that_its_answer_was_received() -> None:
    async with host() as server:
        peer = await server.peer()
        stream = peer.begin("/t/ask")
        peer.say(stream, b"x")
        await peer.answer(stream)
        await peer.until(h2.events.PingReceived)
        assert await server.service.received.get() is True


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [("shared", "answer_margin_s", 30.0), ("module", "TICK_SECONDS", -30.0)],
    ids=["shortly before its deadline", "after the process stood still"],
)
async def test_a_client_that_may_have_given_up_may_not_have_its_answer(
    owner: str, name: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_side, "ANSWER_MARGIN_PART", 1.0)
    async with host() as server:
        server.shared.answer_margin_s = 0.0
        peer = await server.peer()
        for wanted in (True, False):
            stream = peer.begin("/t/ask", grpc_timeout="30S")
            peer.say(stream, b"x")
            await peer.answer(stream)
            await peer.until(h2.events.PingReceived)
            assert await server.service.received.get() is wanted
            monkeypatch.setattr(server.shared if owner == "shared" else server_side, name, value)


@pytest.mark.parametrize("how", ["lost", "reset", "late"])
async def test_a_handler_learns_that_its_answer_may_be_lost(how: str) -> None:
    async with host() as server:
        peer, clock = await server.peer(), Clock()
        await peer.until(h2.events.RemoteSettingsChanged)
        if how == "reset":  # before the answer could leave
            peer.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
        more: dict[str, Any] = {"grpc_timeout": "50m"} if how == "late" else {}
        stream = peer.begin("/t/ask", **more)
        peer.say(stream, b"x")
        if how == "lost":
            await peer.reader.read(1)  # it has answered; the ping stays unanswered
            peer.writer.transport.abort()
        elif how == "reset":
            await peer.until(h2.events.ResponseReceived, stream)
            peer.h2.reset_stream(stream, 8)
            peer.flush()
        else:
            data = await peer.reader.read(1 << 16)  # the answer, which waits
            await clock.advance(0.06)
            peer.events += peer.h2.receive_data(data)
            peer.flush()
        assert await server.service.received.get() is False
