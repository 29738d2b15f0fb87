"""A connection of a gRPC client: HTTP/2 frames to calls, answers to frames.

The library keeps the state of HTTP/2; here are gRPC's thin mapping, flow control and the limits.
Everything that is written within a tick leaves in one write.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from struct import Struct
from typing import Any, cast

from . import library, status
from .call import BIDIRECTIONAL, PREFIX, SERVER_STREAM, UNARY, Call, Method
from .call import OUT_BYTES_MAX as CALL_OUT_BYTES_MAX
from .floods import Floods
from .status import GrpcError

log = logging.getLogger(__name__)

STREAMS_MAX = 1_000  # calls of one connection at once
STREAM_WINDOW_BYTES = 4 << 20
CONNECTION_WINDOW_BYTES = 16 << 20
OUT_BYTES_MAX = 16 << 20  # of one connection, written and not yet taken by the peer
WRITE_BUFFER_BYTES = 1 << 20  # of the socket; beyond it the peer isn't read
ARRIVING_BYTES_MAX = 512 << 20  # of unfinished requests of all connections
TIMEOUT_SECONDS_MAX = 86_400.0
# A client's deadline began when it sent the request: its answer must be there earlier than the
# proxy's count says, by longPollingReserveTimeInMillis or by this part of the whole, whichever is
# less.
ANSWER_MARGIN_SECONDS, ANSWER_MARGIN_PART = 1.0, 0.25
TICK_SECONDS = 0.5  # between two signs that the loop runs
PING_DATA = b"are you?"  # eight bytes
RECEIPTS_MAX = 1_000  # pings behind answers of one connection that the peer has not answered
LAST_STREAM_ID = (1 << 31) - 1
NO_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 7, 8, 11
_GOAWAY = Struct(">BHBBIII")  # frame header in pieces, last stream, error
_GOAWAY_TYPE = 7

_HEADERS = [(b":status", b"200"), (b"content-type", b"application/grpc")]
_OK_TRAILERS = [(b"grpc-status", b"0")]


class Shared:
    """The state that the connections of one server share."""

    def __init__(
        self,
        methods: Mapping[bytes, Method],
        message_bytes_max: int,
        answer_margin_s: float = ANSWER_MARGIN_SECONDS,
    ) -> None:
        self.methods = methods
        self.message_bytes_max = message_bytes_max
        self.answer_margin_s = answer_margin_s
        self.connections: set[Http2Connection] = set()
        self.on_fewer: Callable[[], None] | None = None  # a connection has ended
        self.arriving_bytes = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.on_lost: Callable[[Http2Connection], None] | None = None
        self.ticked_at = 0.0  # the loop's time when its listener last saw it run
        # How many calls ended, by method and status.
        self.ended: dict[tuple[bytes, int], int] = {}

    def stalled_s(self, now: float) -> float:
        """The seconds that bytes read now may have waited, because the process stood still."""
        return max(0.0, now - self.ticked_at - TICK_SECONDS) if self.ticked_at else 0.0


class Http2Connection(asyncio.Protocol):
    """One connection; a protocol of asyncio."""

    def __init__(self, shared: Shared) -> None:
        self.loop = asyncio.get_running_loop()
        self.shared = shared
        self.message_bytes_max = shared.message_bytes_max
        self.peer: tuple[str, int] = ("", 0)
        self.local: tuple[str, int] = ("", 0)
        self.calls: dict[int, Call] = {}
        self.is_lost = False
        self.has_spoken = False
        self.heard_at = time.monotonic()
        self.last_stream_id = 0
        self.is_draining = False
        self._refuses = False
        self._transport: asyncio.Transport | None = None
        self._h2 = library.new_server(STREAMS_MAX, STREAM_WINDOW_BYTES)
        self._floods = Floods()
        self._is_flushing = False
        self._out_bytes = 0
        self._paused = False
        # By the data of a ping behind an answer: the function to tell, the time to answer by.
        self._receipts: dict[bytes, tuple[Callable[[bool], None], float | None]] = {}
        self._receipt = 0  # the last ping's number

    # --- the socket -----------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The client, for messages."""
        return f"{self.peer[0]}:{self.peer[1]}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.peer = _host_and_port(transport.get_extra_info("peername"))
        self.local = _host_and_port(transport.get_extra_info("sockname"))
        self.shared.connections.add(self)

    def set_transport(self, transport: asyncio.Transport) -> None:
        """Send bytes through this transport from now on, which encrypts them."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self.is_lost:
            return
        self.heard_at = time.monotonic()
        try:
            if not self.has_spoken:
                self.has_spoken = True
                self._h2.initiate_connection()
                more = CONNECTION_WINDOW_BYTES - 65_535
                self._h2.increment_flow_control_window(more)
            found = self._h2.receive_data(data)
        except library.exceptions.ProtocolError as wrong:
            self._fail(str(wrong))
            return
        except Exception as wrong:  # bytes that trip the library over
            log.info("closing %s: its bytes are no HTTP/2: %r", self.address, wrong)
            self._fail("the bytes are no HTTP/2")
            return
        for event in found:
            handler = _HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event)
            if self.is_lost:
                return
        self.flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.shared.connections.discard(self)
        if self.shared.on_fewer is not None:
            self.shared.on_fewer()
        for call in list(self.calls.values()):
            self._drop(call)
        while self._receipts:
            self._tell_oldest()
        if self.shared.on_lost is not None:
            self.shared.on_lost(self)

    def pause_writing(self) -> None:
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        if self._transport is not None and not self.is_lost:
            self._transport.resume_reading()
        for call in self.calls.values():
            call.wake()

    def flush_soon(self) -> None:
        """Write what there is at the end of this tick."""
        if not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self._flush)

    def drain(self) -> None:
        """Ask the client to open no further calls here; those under way go on."""
        if self.is_draining or self.is_lost:
            return
        self.is_draining = True
        if self.has_spoken:
            self._write_goaway(LAST_STREAM_ID, NO_ERROR, b"")

    def refuse(self) -> None:
        """The second step: calls that come now are refused."""
        self._refuses = True
        if not self.is_lost and self.has_spoken:
            self._write_goaway(self.last_stream_id, NO_ERROR, b"")
        self._close_if_drained()

    def ping(self) -> None:
        """Ask whether the client is there; it is heard when it answers."""
        if not self.is_lost:
            self._h2.ping(PING_DATA)
            self.flush_soon()

    def end_waiting(self) -> None:
        """End the streams of answers that wait: all that was written is on its way."""
        for call in [call for call in self.calls.values() if call.kind == SERVER_STREAM]:
            if not call.out and not self._paused:
                self._reject(call, GrpcError(status.UNAVAILABLE, "the proxy stops; call again"))

    def close(self) -> None:
        """Close the connection after what is written."""
        if self.is_lost or self._transport is None:
            return
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- for calls ------------------------------------------------------------------------------

    def consumed(self, call: Call, count: int) -> None:
        """`count` bytes of a call were taken; the client may send as many again."""
        if count and not self.is_lost:
            self._h2.acknowledge_received_data(count, call.stream_id)
            self.flush_soon()

    def over_unsent_limit(self, call: Call) -> bool:
        """True if a handler has to wait before it writes more."""
        return len(call.out) > CALL_OUT_BYTES_MAX or self._out_bytes > OUT_BYTES_MAX or self._paused

    def send(self, call: Call, data: bytes) -> None:
        """Append bytes to the answer of a call."""
        if self.is_lost or call.is_done:
            return
        if not call.has_headers:
            call.has_headers = True
            try:
                self._h2.send_headers(call.stream_id, _HEADERS)
            except library.exceptions.ProtocolError:  # reset by bytes that came with the request
                self._drop(call)
                return
        call.out += data
        self._out_bytes += len(data)
        self._push(call)

    def finish(self, call: Call, code: int, message: str = "") -> None:
        """End a call with a status."""
        if call.is_done or call.trailers is not None or self.is_lost:
            return
        trailers = _OK_TRAILERS
        if code != status.OK or message:
            trailers = [(b"grpc-status", b"%d" % code), (b"grpc-message", status.encoded(message))]
        if not call.has_headers:
            trailers = _HEADERS + trailers
        call.trailers = trailers
        key = (call.path, code)
        ended = self.shared.ended
        ended[key] = ended.get(key, 0) + 1
        self._push(call)

    # --- inside ---------------------------------------------------------------------------------

    def _push(self, call: Call) -> None:
        try:
            self._push_now(call)
        except library.exceptions.ProtocolError:  # reset by bytes that came with the request
            self._drop(call)

    def _push_now(self, call: Call) -> None:
        machine, out = self._h2, call.out
        self.flush_soon()
        while out:
            room = min(
                machine.local_flow_control_window(call.stream_id), machine.max_outbound_frame_size
            )
            if room <= 0:
                return
            chunk = bytes(out[:room])
            machine.send_data(call.stream_id, chunk)
            self._floods.sent_data()
            del out[:room]
            self._out_bytes -= len(chunk)
        if call.trailers is not None:
            machine.send_headers(call.stream_id, call.trailers, end_stream=True)
            if call.is_remote_open:  # the client need not send the rest
                self._reset(call.stream_id, NO_ERROR)
            self._over(call)
            self._ask_receipt(call)
        else:
            call.wake()

    def _ask_receipt(self, call: Call) -> None:
        """Ask the peer for a sign that it got the answer, if the handler wants to know."""
        if call.on_received is None:
            return
        if len(self._receipts) >= RECEIPTS_MAX:
            self._tell_oldest()
        self._receipt += 1
        data = self._receipt.to_bytes(8, "big")
        self._receipts[data] = call.on_received, call.answer_by
        self._h2.ping(data)

    def _tell_oldest(self) -> None:
        """Tell that an answer has no sign of receipt."""
        told, _ = self._receipts.pop(next(iter(self._receipts)))
        told(False)

    def _reset(self, stream_id: int, code: int) -> None:
        with suppress(library.exceptions.ProtocolError):  # closed by both already
            self._h2.reset_stream(stream_id, code)

    def _answer(self, stream_id: int, code: bytes) -> None:
        """Answer what is no call of gRPC with a status of HTTP."""
        with suppress(library.exceptions.ProtocolError):
            self._h2.send_headers(stream_id, [(b":status", code)], end_stream=True)

    def _over(self, call: Call) -> None:
        """Forget a call that has ended."""
        call.is_done = True
        if call.timer is not None:
            call.timer.cancel()
        self.calls.pop(call.stream_id, None)
        self.shared.arriving_bytes -= len(call.arriving)
        call.arriving.clear()
        self._out_bytes -= len(call.out)
        call.out.clear()
        call.wake()
        if self.is_draining:
            self._close_if_drained()

    def _drop(self, call: Call) -> None:
        """The client doesn't want the answer any more, or is gone."""
        if call.is_done:
            return
        self._over(call)
        if call.on_received is not None:
            call.on_received(False)
        if call.task is not None:
            call.task.cancel()

    def _flush(self) -> None:
        self._is_flushing = False
        if self.is_lost or self._transport is None:
            return
        data = self._h2.data_to_send()
        if data:
            self._transport.write(data)

    def _write_goaway(self, last_stream_id: int, code: int, text: bytes) -> None:
        # The library's own GOAWAY ends the connection for it, and calls under way must go on.
        if self._transport is None:
            return
        self._flush()
        size = 8 + len(text)
        head = _GOAWAY.pack(size >> 16, size & 0xFFFF, _GOAWAY_TYPE, 0, 0, last_stream_id, code)
        self._transport.write(head + text)

    def _close_if_drained(self) -> None:
        if self._refuses and not self.calls:
            self.loop.call_soon(self.close)

    def _fail(self, why: str) -> None:
        """The peer breaks the rules: say so and close."""
        log.info("closing %s: %s", self.address, why)
        self._flush()  # the library's GOAWAY
        self.is_lost = True
        if self._transport is not None:
            self._transport.close()

    def _calm(self, why: str) -> None:
        log.warning("closing %s: %s", self.address, why)
        self._write_goaway(self.last_stream_id, ENHANCE_YOUR_CALM, why.encode())
        self.is_lost = True
        if self._transport is not None:
            self._transport.close()

    def _count(self, kind: str) -> bool:
        """Count a cheap frame; whether that were too many."""
        why = self._floods.add(kind, self.heard_at)
        if why is not None:
            self._calm(why)
        return why is not None

    # --- events ---------------------------------------------------------------------------------

    def _on_request(self, event: Any) -> None:
        stream_id = event.stream_id
        self.last_stream_id = max(self.last_stream_id, stream_id)
        metadata = dict(event.headers)
        if self._refuses:
            self._reset(stream_id, REFUSED_STREAM)
            return
        content_type = metadata.get(b"content-type", b"")
        if not content_type.startswith(b"application/grpc"):
            self._answer(stream_id, b"415")
            return
        if metadata.get(b":method") != b"POST":
            self._answer(stream_id, b"405")
            return
        path = metadata.get(b":path", b"")
        method = self.shared.methods.get(path)
        call = Call(self, stream_id, method or _UNKNOWN, metadata)
        call.path = path if method is not None else b""
        call.is_remote_open = event.stream_ended is None
        self.calls[stream_id] = call
        try:
            if method is None:
                raise GrpcError(
                    status.UNIMPLEMENTED,
                    f"Method not found: {path[:200].decode(errors='replace').lstrip('/')}",
                )
            if self._out_bytes > OUT_BYTES_MAX:
                raise GrpcError(
                    status.RESOURCE_EXHAUSTED,
                    f"{self._out_bytes} bytes of answers wait for this client, the limit is "
                    f"{OUT_BYTES_MAX}; read them",
                )
            self._set_deadline(call)
        except GrpcError as wrong:
            self.finish(call, wrong.code, wrong.message)
            return
        if method.kind == BIDIRECTIONAL:
            self._begin(call)

    def _set_deadline(self, call: Call) -> None:
        text = call.metadata.get(b"grpc-timeout")
        if text is None:
            return
        try:
            seconds = min(status.seconds_of(text), TIMEOUT_SECONDS_MAX)
        except ValueError as wrong:
            raise GrpcError(status.INTERNAL, str(wrong)) from None
        now = self.loop.time()
        margin = min(self.shared.answer_margin_s, seconds * ANSWER_MARGIN_PART)
        call.deadline = now + seconds
        call.answer_by = call.deadline - margin - self.shared.stalled_s(now)
        call.timer = self.loop.call_at(call.deadline, self._expire, call)

    def _expire(self, call: Call) -> None:
        if call.is_done:
            return
        task = call.task
        self.finish(call, status.DEADLINE_EXCEEDED, "the deadline of the call has passed")
        if not call.is_done:  # the client doesn't take what is written
            self._reset(call.stream_id, CANCEL)
            self._drop(call)
            self.flush_soon()
        if task is not None:
            task.cancel()

    def _on_data(self, event: Any) -> None:
        if not event.data and event.stream_ended is None and self._count("empty DATA"):
            return
        call = self.calls.get(event.stream_id)
        count = event.flow_controlled_length
        if call is None or call.trailers is not None:
            if count:
                self._h2.acknowledge_received_data(count, event.stream_id)
            return
        shared, before = self.shared, len(call.arriving)
        call.arriving += event.data
        try:
            call.take(count)
            if shared.arriving_bytes + len(call.arriving) - before > ARRIVING_BYTES_MAX:
                raise GrpcError(
                    status.RESOURCE_EXHAUSTED,
                    f"{shared.arriving_bytes} bytes of unfinished requests wait in this proxy, the "
                    f"limit is {ARRIVING_BYTES_MAX}; try again later",
                )
        except GrpcError as wrong:
            call.arriving.clear()
            shared.arriving_bytes -= before
            self._reject(call, wrong)
            return
        shared.arriving_bytes += len(call.arriving) - before

    def _on_end(self, event: Any) -> None:
        call = self.calls.get(event.stream_id)
        if call is None:
            return
        try:
            call.end()
        except GrpcError as wrong:
            self._reject(call, wrong)
            return
        if call.kind != BIDIRECTIONAL and call.trailers is None:
            self._begin(call)

    def _reject(self, call: Call, wrong: GrpcError) -> None:
        task = call.task
        self.finish(call, wrong.code, wrong.message)
        if task is not None:
            task.cancel()

    def _on_reset(self, event: Any) -> None:
        call = self.calls.get(event.stream_id)
        if call is not None:
            self._drop(call)
        self._count("RST_STREAM")

    def _on_window(self, event: Any) -> None:
        if self._count("WINDOW_UPDATE"):
            return
        if event.stream_id:
            call = self.calls.get(event.stream_id)
            if call is not None and call.out:
                self._push(call)
        else:
            self._push_all()

    def _on_settings(self, event: Any) -> None:
        if not self._count("SETTINGS"):
            self._push_all()  # a larger window

    def _push_all(self) -> None:
        for call in [call for call in self.calls.values() if call.out]:
            self._push(call)

    def _on_ping(self, event: Any) -> None:
        self._count("PING")  # the library answers

    def _on_ping_answered(self, event: Any) -> None:
        told, answer_by = self._receipts.pop(event.ping_data, (None, None))
        if told is not None:
            told(answer_by is None or self.loop.time() < answer_by)

    def _on_priority(self, event: Any) -> None:
        self._count("PRIORITY")

    def _on_unknown(self, event: Any) -> None:
        self._count("unknown")

    def _on_terminated(self, event: Any) -> None:
        if self._count("GOAWAY"):
            return
        if event.error_code:  # the peer closes the connection
            for call in list(self.calls.values()):
                self._drop(call)
            self.close()
            self.is_lost = True
            return
        self.is_draining = self._refuses = True
        self._close_if_drained()

    # --- serving --------------------------------------------------------------------------------

    def _begin(self, call: Call) -> None:
        task = self.loop.create_task(self._serve(call))
        call.task = task
        tasks = self.shared.tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _serve(self, call: Call) -> None:
        try:
            if call.kind == UNARY:
                answer = (await call.handle(call, call.only_request())).SerializeToString()
                if not call.is_done:
                    self.send(call, PREFIX.pack(0, len(answer)) + answer)
            elif call.kind == SERVER_STREAM:
                await call.handle(call, call.only_request())
            else:
                await call.handle(call)
        except GrpcError as wrong:
            self.finish(call, wrong.code, wrong.message)
        except asyncio.CancelledError:
            self.finish(call, status.CANCELLED, "the call was cancelled")
            raise
        except Exception:
            log.exception("a call of %s failed", call.text(b":path"))
            self.finish(call, status.INTERNAL, "the proxy failed; its log says why")
        else:
            self.finish(call, status.OK)


async def _nothing(*_: Any) -> None:
    return None


_UNKNOWN = Method(UNARY, bytes, _nothing)  # of a call that is refused before it begins
_events = library.events
_HANDLERS: dict[type, Callable[[Http2Connection, Any], None]] = {
    _events.RequestReceived: Http2Connection._on_request,
    _events.DataReceived: Http2Connection._on_data,
    _events.StreamEnded: Http2Connection._on_end,
    _events.StreamReset: Http2Connection._on_reset,
    _events.WindowUpdated: Http2Connection._on_window,
    _events.RemoteSettingsChanged: Http2Connection._on_settings,
    _events.PingReceived: Http2Connection._on_ping,
    _events.PingAckReceived: Http2Connection._on_ping_answered,
    _events.PriorityUpdated: Http2Connection._on_priority,
    _events.UnknownFrameReceived: Http2Connection._on_unknown,
    _events.ConnectionTerminated: Http2Connection._on_terminated,
}


def _host_and_port(name: Any) -> tuple[str, int]:
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else ("", 0)
