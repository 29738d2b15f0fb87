"""One TCP connection, for either end: requests are served, answers are matched, both at once.

RocketMQ uses a connection in both directions (a broker asks its clients too), so server and client
share this class. A handler is a plain function: it returns its reply, or None when the answer comes
later through `answer`, or a coroutine for the few requests that must ask somebody else first.

Nobody waits long for somebody else: a turn serves so many requests of a connection (`Turn.share`),
then come the others. Nobody fills the memory: while a peer does not read, its requests are neither
read nor served (see `backlog`).
"""

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import msgspec

from .. import codes
from ..codec.frame import HEAD, LENGTH_BYTES, FrameDecoder, encode_request, encode_response
from ..codec.header_json import AFTER_OPAQUE, NOTHING_EXPECTED, Expected
from ..command import FLAG_ONEWAY, FLAG_RESPONSE, LANGUAGE, Command, Response
from ..errors import Refusal, reason_of
from ..wire import Header
from .failures import UNANSWERED
from .memory_budget import COUNTED_BYTES_MIN, HELD_BYTES_MIN
from .rpc_latency import rpc_key
from .scheduler import COMMANDS_SHARED, LANE_BYTES_MAX, LANE_SHARE, START, Lane, Scheduler

if TYPE_CHECKING:
    from .epoll_reader import Crowd

log = logging.getLogger(__name__)

WAITING_MAX = 65_536  # requests without an answer yet, per connection
WRITE_BYTES_MAX = 256 << 10  # of large answers to one peer, in one turn
READ_BYTES = 8 << 10  # taken apart at once, so that others don't wait for the decoding either
READ_BYTES_ALONE = 64 << 10  # the same when nobody else wants anything
LANE_MUCH = 2_000  # bytes that came in one piece are several messages
TASKS_MAX = 1_024  # coroutine handlers at work, per connection
OPAQUE_MASK = 0x7FFFFFFF
CODEC_MSGPACK = 2

Answer = Response | bytes | None
Sign = Callable[[dict[str, str] | None, bytes], dict[str, str]]
Handler = Callable[[Any, Command, "Connection"], Answer | Coroutine[Any, Any, Answer]]
Inbox = list[tuple[Any, Command, "Connection"]]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a request table: code, kind of header (None when it has none), handler, access.

    `access` says what a caller must be allowed: "PUB", "SUB", "ANY" or "ADMIN". A `hot` row comes
    with every message: its header is read in one pass. The answers of a `bulk` row may be large:
    once a turn gave much (`Turn.gave_much`), its requests wait for another. With an `inbox` its
    requests are put there, and the handler is for all of them: the owner of the server has it
    called before the turn's answers go out (`Turn.before_write`).
    """

    code: int
    header: type[Header] | None
    handler: Handler | Callable[[], None]
    access: str = "ADMIN"
    hot: bool = False
    bulk: bool = False
    inbox: Inbox | None = None


class Waiter(msgspec.Struct, eq=False):
    """Who waits for the answer to a request of `code`, until `deadline` (the loop's clock).

    One of the two functions is called, once, while the connection reads: they must be quick.
    """

    deadline: float
    code: int

    def answered(self, answer: Command) -> None:
        """This came, whatever its code."""
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """Nothing came: TimeoutError, or ConnectionResetError."""
        raise NotImplementedError


class _Asked(Waiter, eq=False):
    future: asyncio.Future[Command]

    def answered(self, answer: Command) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def failed(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Connection(asyncio.Protocol):
    """A connection; `rows` is the table it serves from.

    `address` is the peer as "ip:port", `host` the same as RocketMQ stores it (4 or 16 bytes of ip
    and the port as int32), `local_address` our end. `codec` is the header codec for requests we
    send; with `upgrade` it becomes msgpack after the first answer of another aerobee, other than to
    requests with a code in `relayed`, which the peer hands on to somebody else. The end that
    connected has `asks`: it reads on while its own requests wait to be written. `sign` makes the
    custom header of a request from header and body.
    """

    __slots__ = (
        "_closing",
        "_counted",
        "_crowd",
        "_decoder",
        "_drained",
        "_fd",
        "_held",
        "_is_behind",
        "_is_odd",
        "_is_reading",
        "_lost",
        "_next_opaque",
        "_on_lost",
        "_queued",
        "_relayed",
        "_scheduler",
        "_sign",
        "_tasks",
        "_transport",
        "_unfinished",
        "_unfinished_rounds",
        "_unread",
        "_unserved",
        "_upgrade",
        "_waiting",
        "_writes_first",
        "address",
        "budget",
        "codec",
        "host",
        "idle_rounds",
        "laned",
        "local_address",
        "out",
        "owed",
        "peer_version",
        "rows",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        rows: Mapping[int, Row],
        *,
        on_lost: Callable[["Connection"], None] | None = None,
        codec: int = 0,
        upgrade: bool = False,
        relayed: frozenset[int] = frozenset(),
        asks: bool = False,
        expected: Expected = NOTHING_EXPECTED,
        sign: Sign | None = None,
    ) -> None:
        self.rows = rows
        self.codec = codec
        self.address = ""
        self.local_address = ""
        self.host = b"\0" * 8
        self.idle_rounds = 0
        self.peer_version = 0
        # Whole frames that go out when the turn ends: who takes an inbox adds his answers.
        self.out: list[bytes | memoryview] = []
        self.owed = 0  # bytes of answers since it last had read all
        self.budget = scheduler.budget
        self.laned = b""  # what waits in the lane of this turn
        self._counted = 0  # of what is owed, in the backlog
        self._held = 0  # of an unfinished request, in the backlog
        self._unfinished = 0  # the number of that one in the last idle round
        self._unfinished_rounds = 0
        self._unserved: deque[Command] = deque()
        self._unread: deque[memoryview] = deque()  # to be taken apart once those are served
        self._is_reading = True
        self._scheduler = scheduler
        self._on_lost = on_lost
        self._upgrade = upgrade
        self._relayed = relayed
        self._sign = sign
        self._writes_first = not asks
        self._drained: asyncio.Event | None = None
        self._decoder = FrameDecoder(expected)
        self._transport: asyncio.Transport | None = None
        # Where the transport's own way is long: what can be written at once goes to the socket.
        self._fd = -1
        self._queued = False
        self._is_odd = False  # what comes first of the unread can't go in the lane
        self._crowd: Crowd | None = None  # who reads for it, while its transport is paused
        self._is_behind = False  # some of what was written may still lie in the transport
        self._waiting: dict[int, Waiter] = {}
        self._next_opaque = 0
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._lost: str | None = None
        self._closing = False

    # --- asyncio's side -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        peer = transport.get_extra_info("peername")
        local = transport.get_extra_info("sockname")
        if peer is not None:
            self.address, self.host = host_text(peer), host_bytes(peer)
        if local is not None:
            self.local_address = host_text(local)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if os.name == "posix" and transport.get_extra_info("sslcontext") is None:
                self._fd = sock.fileno()

    def speak_through(self, transport: asyncio.Transport) -> None:
        """From now on its bytes go through this, which hands on what comes in."""
        self._transport = transport
        self._fd = -1

    def data_received(self, data: bytes) -> None:
        self.idle_rounds = 0
        latency = self._scheduler.latency
        if latency is not None and not latency.began:
            latency.began = perf_counter()
        lane = self._scheduler.lane
        if (
            lane is not None
            and (lane.served >= lane.few or len(data) > LANE_MUCH or self.laned)
            and self._joins(lane, data)
        ):
            return
        decoder = self._decoder
        # What comes to the end that asks is answers: whoever waits for them has had his turn.
        if not self._writes_first:
            found = self._without_responses(decoder.feed(data))
            if self._unserved or self._unread:
                found = self._this_turn(found, b"")
        elif self._unserved or self._unread or len(data) > READ_BYTES:
            found = self._this_turn([], data)
        else:
            found = decoder.feed(data)
            if len(found) > COMMANDS_SHARED:
                found = self._this_turn(found, b"")
        rows = self.rows
        out = self.out
        owed_max = self.budget.owed_max
        is_put = False
        commands = iter(found)
        for command in commands:
            if self.owed > owed_max:
                self._wait_for_reader([command, *commands])
                break
            flag = command.flag
            if flag & FLAG_RESPONSE:
                self._without_responses([command])
                continue
            row = rows.get(command.code)
            try:
                if row is None:
                    text = f" request type {command.code} not supported"
                    reply: Any = Response(codes.REQUEST_CODE_NOT_SUPPORTED, remark=text)
                else:
                    kind = row.header
                    header: Any = command.ext
                    if type(header) is not kind:
                        header = None if kind is None else command.header(kind)
                    if row.inbox is not None:
                        row.inbox.append((header, command, self))
                        is_put = True
                        continue
                    if row.bulk and self._scheduler.gave_much:
                        self._wait_for_turn([command, *commands])
                        break
                    reply = row.handler(header, command, self)  # type: ignore[call-arg]
            except Refusal as refusal:
                reply = Response(refusal.code, refusal.fields, refusal.remark)
            except Exception:
                reply = our_fault(command)
            if reply is None:
                continue
            if type(reply) is bytes:
                if not flag & FLAG_ONEWAY:
                    out.append(reply)
            elif type(reply) is Response:
                if not flag & FLAG_ONEWAY:
                    self._append(command, reply)
            else:
                self._later(command, reply)
                continue
            if latency is not None:
                self._count(command, reply)
        if (out or is_put) and not self._queued:
            self._queued = True
            self._scheduler.add(self)
        if decoder.rest or self._held:
            self._hold(len(decoder.rest))
        if decoder.fault is not None and not (self._unserved or self._unread):
            log.warning("closing %s: %s", self.address, decoder.fault)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave_crowd()
        if self.laned:
            laned, self.laned = self.laned, b""
            if self._scheduler.lane is not None:
                self._scheduler.lane.connections.remove(self)
            self.serve(laned)
        while self._unserved or self._unread:  # what had arrived is done, as if it had been in time
            self.owed = self._scheduler.given = 0
            self.data_received(b"")
            self.out.clear()  # nobody reads the answers
        self.budget.add(-self._counted - self._held)
        self.budget.held -= self._held
        self._counted = self._held = 0
        self._fd = -1
        self._lost = self._why_lost(exc)
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting.values():
            waiter.failed(ConnectionResetError(self._lost))
        for task in self._tasks:
            task.cancel()
        self._release()
        if self._on_lost is not None:
            self._on_lost(self)

    def _why_lost(self, exc: Exception | None) -> str:
        why = f"connection to {self.address} closed"
        if self._decoder.fault is not None:
            return f"{why}: {self._decoder.fault}"
        if exc is not None:
            why += f": {reason_of(exc)}"
        if self._writes_first or self._closing or self.peer_version or not self._waiting:
            return why
        transport = self._transport
        is_plain = transport is not None and transport.get_extra_info("sslcontext") is None
        return f"{why} {UNANSWERED}" if is_plain else why

    def pause_writing(self) -> None:
        # A peer that doesn't read is not read from either, so its answers can't pile up here. Only
        # one end may do so: when both did, each would wait for the other to read.
        self._drained = asyncio.Event()
        self._read_or_not()

    def resume_writing(self) -> None:
        self._release()
        self._settle()
        self._read_or_not()

    # --- for handlers and owners ----------------------------------------------------------------

    @property
    def is_lost(self) -> bool:
        return self._lost is not None or self._transport is None or self._transport.is_closing()

    @property
    def is_full(self) -> bool:
        """What is to be written has reached the high-water mark: ask again after `drained()`."""
        return self._drained is not None

    @property
    def is_behind(self) -> bool:
        """The peer must read first: what it asked for is better done later (`postpone`)."""
        return self._drained is not None or self.owed > self.budget.owed_max

    @property
    def is_to_wait(self) -> bool:
        """A request of it that waits for messages is better done later: it `is_behind`, this turn
        gave much, or all together are owed much, when one connection a turn is served."""
        return self.is_behind or self._scheduler.gave_much or not self.budget.owed_max

    def owe(self, size: int) -> None:
        """So many bytes more are owed; where it is much the backlog knows it at once, and who is
        served in the same turn has less room."""
        self.owed += size
        self._scheduler.given += size
        if self.owed > COUNTED_BYTES_MIN:
            self._count_owed()

    def postpone(self, command: Command) -> None:
        """Handle a request once more, from its beginning, when the peer has read."""
        self._unserved.append(command)
        if not self.is_behind:
            self._scheduler.queue(self)
        self._read_or_not()

    async def drained(self) -> None:
        """Wait until what is to be written is below the low-water mark, or the connection lost."""
        while self._drained is not None:
            await self._drained.wait()

    def respond(self, command: Command, reply: Response | bytes) -> None:
        """Answer a request whose handler returned None before. Does nothing when it was oneway."""
        if not command.flag & FLAG_ONEWAY and self._lost is not None:
            return
        self._count(command, reply)
        self._give(command, reply)

    def respond_late(
        self,
        command: Command,
        reply: Response | bytes,
        waited_ms: int,
        *,
        is_long_polling: bool = False,
    ) -> None:
        """`answer` for a request that came so many milliseconds ago, in an earlier turn."""
        if command.flag & FLAG_ONEWAY:
            self._count(command, reply)
            return
        if self._lost is not None:
            return
        if self._scheduler.latency is not None:
            self._scheduler.latency.late(
                command.code, code_of(reply), waited_ms, is_long_polling=is_long_polling
            )
        self._give(command, reply)

    def request(
        self, code: int, fields: dict[str, str] | None, body: bytes, timeout_s: float
    ) -> asyncio.Future[Command]:
        """Send a request; the future gives the answer, TimeoutError or ConnectionResetError."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Command] = loop.create_future()
        if self.is_lost:
            future.set_exception(ConnectionResetError(self._lost or "connection is closing"))
            return future
        if len(self._waiting) >= WAITING_MAX:
            future.set_exception(
                ConnectionError(
                    f"{len(self._waiting)} requests to {self.address} wait for an answer, the "
                    f"limit is {WAITING_MAX}; send fewer at a time"
                )
            )
            return future
        if self._sign is not None:
            fields = self._sign(fields, body)
        opaque = self._expect(_Asked(loop.time() + timeout_s, code, future))
        self.write_later(encode_request(code, opaque, fields, body, codec=self.codec))
        return future

    @property
    def is_ready(self) -> bool:
        """A request can be sent at once, by `ask_now`."""
        return (
            self._drained is None
            and self._lost is None
            and not self._closing
            and self._sign is None
            and len(self._waiting) < WAITING_MAX
        )

    def ask_now(self, waiter: Waiter, before_opaque: str, body: bytes) -> None:
        """`request` for one who has written its JSON header up to the opaque; when `is_ready`."""
        # What `_expect` and `_write` do, without calls for it: this is done for every send.
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & OPAQUE_MASK
        if not self._waiting:  # else it is watched until all are through
            self._scheduler.watch(self)
        self._waiting[opaque] = waiter
        header = f"{before_opaque}{opaque}{AFTER_OPAQUE}".encode()
        size = len(header)
        self.out.append(HEAD.pack(LENGTH_BYTES + size + len(body), size) + header + body)
        if not self._queued:
            self._queued = True
            self._scheduler.add(self)

    async def ask(
        self, code: int, fields: dict[str, str] | None, body: bytes, timeout_s: float
    ) -> Command:
        """The answer to a request, which waits its turn while too much is to be written."""
        if self.is_full:
            async with asyncio.timeout(timeout_s):
                await self.drained()
        return await self.request(code, fields, body, timeout_s)

    def oneway(self, code: int, fields: dict[str, str] | None, body: bytes = b"") -> None:
        """Send a request that gets no answer; lost silently when the connection is, or when the
        client at its other end doesn't read."""
        if self.is_lost or (self._writes_first and self._drained is not None):
            return
        if self._sign is not None:
            fields = self._sign(fields, body)
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & OPAQUE_MASK
        self.write_later(encode_request(code, opaque, fields, body, oneway=True, codec=self.codec))

    def expire(self, now: float) -> bool:
        """Fail the requests whose time is up; False when none is waiting any more."""
        late = [opaque for opaque, waiter in self._waiting.items() if waiter.deadline <= now]
        for opaque in late:
            waiter = self._waiting.pop(opaque)
            waiter.failed(TimeoutError(f"no answer from {self.address} in time"))
        return bool(self._waiting)

    def unfinished_rounds(self) -> int:
        """For how many rounds before this one it has been in the middle of the same request,
        although we read."""
        decoder = self._decoder
        if not decoder.rest or not self._is_reading or decoder.begun != self._unfinished:
            self._unfinished = decoder.begun
            self._unfinished_rounds = 0
        else:
            self._unfinished_rounds += 1
        return self._unfinished_rounds

    @property
    def held(self) -> int:
        """How many bytes of an unfinished request wait for the rest of it."""
        return self._held

    def unserved_codes(self) -> list[int]:
        """The codes of its requests that were read and wait for a later turn."""
        return [command.code for command in self._unserved]

    def write_later(self, data: bytes) -> None:
        """These go out at the end of this turn, behind what waits already."""
        self.out.append(data)
        if not self._queued:
            self._queued = True
            self._scheduler.add(self)

    def leave_crowd(self) -> None:
        """From now on its transport reads again."""
        crowd, self._crowd = self._crowd, None
        if crowd is None:
            return
        crowd.remove(self, self._fd)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def flush(self) -> None:
        """Hand what is to be written to the transport, in one write; of large answers a part, and
        the rest in the next turns."""
        self._queued = False
        out, self.out = self.out, []
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if out:  # what waits for the disk is answered later
            if self.owed > WRITE_BYTES_MAX:
                out, self.out = _split(out, WRITE_BYTES_MAX)
                if self.out:  # the others' answers first
                    self._queued = True
                    self._scheduler.add(self)
            data = out[0] if len(out) == 1 else b"".join(out)
            if self._is_behind:
                self._is_behind = transport.get_write_buffer_size() > 0
            if self._fd < 0 or self._is_behind:
                transport.write(data)
            else:
                try:
                    written = os.write(self._fd, data)
                except OSError:
                    written = 0  # the transport finds out what is wrong
                if written < len(data):
                    self._is_behind = True
                    transport.write(memoryview(data)[written:])
        if self._queued:
            return
        if self.owed:
            self._settle()
        if self._closing:
            transport.close()

    def close(self) -> None:
        """Close once what is written has gone out."""
        self._closing = True
        self.leave_crowd()
        if not self._queued and self._transport is not None:  # else the end of this turn does it
            self._transport.close()

    def abort(self) -> None:
        """Close at once; what is not written yet is dropped."""
        self.out = []
        self._queued = False
        if self._transport is not None:
            self._transport.abort()
            self.leave_crowd()

    # --- inside ---------------------------------------------------------------------------------

    def serve(self, data: bytes, *, is_odd: bool = False) -> None:
        """Read this the common way, which was in the lane; `is_odd` when it can't go there."""
        scheduler = self._scheduler
        self.leave_crowd()
        if self._unread:  # it comes before that
            self._unread.appendleft(memoryview(data))
            self._is_odd = is_odd
            return
        lane, scheduler.lane = scheduler.lane, None
        try:
            self.data_received(data)
        finally:
            scheduler.lane = lane

    def serve_more(self) -> None:
        """Serve what waits; called by `Turn` when it is this connection's turn."""
        if self._lost is not None:
            return
        lane = self._scheduler.lane
        if lane is not None and self._lane_share(lane):
            if self._unread:
                self._scheduler.queue(self)
            self._read_or_not()
            return
        self.data_received(b"")

    def _joins(self, lane: Lane, data: bytes) -> bool:
        """Put what came into the lane, if it begins with a message that may go there."""
        if self.laned:
            self.laned += data
            lane.bytes += len(data)
            return True
        if (
            self._queued  # what it sent before in this turn is done behind the lane
            or self._unserved
            or self._unread
            or self.owed
            or self._drained is not None
            or lane.bytes > LANE_BYTES_MAX
        ):
            return False
        decoder = self._decoder
        if decoder.rest:
            if decoder.missing > len(data):
                return False
            whole = b"".join((decoder.rest, data))
        else:
            whole = data
        if whole[START] not in lane.starts:
            return False
        scheduler, size = self._scheduler, len(whole)
        if size > READ_BYTES or (
            scheduler.is_shared and size > LANE_MUCH and lane.bytes + size > LANE_SHARE
        ):
            scheduler.asked_much(self)
            if scheduler.is_shared:
                self._unread.append(memoryview(data))
                scheduler.queue(self)
                self._read_or_not()
                return True
        self._lane_now(lane, whole)
        if lane.served >= lane.many and len(whole) <= LANE_MUCH and lane.crowd is not None:
            self._join_crowd(lane.crowd)
        return True

    def _join_crowd(self, crowd: "Crowd") -> None:
        """Have this one read, as long as only plain messages come."""
        transport = self._transport
        if transport is None or transport.is_closing() or not self._is_reading or self._fd < 0:
            return
        if crowd.add(self, self._fd):
            self._crowd = crowd
            transport.pause_reading()

    def _lane_now(self, lane: Lane, data: bytes) -> None:
        """This goes into the lane; the unfinished request that was kept is its beginning."""
        if self._decoder.rest:
            self._decoder.rest.clear()
            self._hold(0)
        if not lane.bytes:
            self._scheduler.wake()
        self.laned = data
        lane.bytes += len(data)
        lane.connections.append(self)

    def _lane_share(self, lane: Lane) -> bool:
        """Put the next share of what is unread into the lane, if that is where it belongs."""
        unread = self._unread
        if self._is_odd or not unread or self._unserved or self.is_behind:
            self._is_odd = False
            return False
        if self.laned or self._queued:
            return True  # it had its share of this turn
        share: list[memoryview] = []
        data = bytes(self._decoder.rest)
        size = LANE_SHARE if self._scheduler.is_shared else READ_BYTES_ALONE
        while unread and len(data) < size:
            first, room = unread.popleft(), size - len(data)
            if len(first) > room:
                unread.appendleft(first[room:])
                first = first[:room]
            share.append(first)
            data += first
            frame_bytes = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big")
            size = max(size, min(frame_bytes, READ_BYTES))  # a batch goes as a whole
        if data[START] not in lane.starts or not lane.is_worth(data):
            unread.extendleft(reversed(share))
            return False
        self._lane_now(lane, data)
        return True

    def _this_turn(self, found: list[Command], data: bytes) -> list[Command]:
        """What is to be served now; the rest waits, and nothing more is read until it is served.

        `found` came from what was read just now, and `data` is what is yet to be taken apart of it.
        """
        self._scheduler.asked_much(self)
        is_new = bool(found or data)
        scheduler = self._scheduler
        has_to_wait = is_new and (
            self._unserved or self._unread or scheduler.is_busy or scheduler.gave_much
        )
        self._unserved += found
        if data:
            self._unread.append(memoryview(data))
        if not has_to_wait:
            return self._next_ones()
        if self.owed <= self.budget.owed_max:
            self._scheduler.queue(self)
        self._read_or_not()
        return []

    def _next_ones(self) -> list[Command]:
        unserved, unread, decoder = self._unserved, self._unread, self._decoder
        share = self._scheduler.share
        if self.owed > self.budget.owed_max:
            return []  # the peer has to read first
        most = READ_BYTES if share <= COMMANDS_SHARED else READ_BYTES_ALONE
        while unread and not unserved:
            # The rest of a large request is one piece: there is nothing to be served before it.
            size = max(most, decoder.missing)
            data = unread.popleft()
            if len(data) > size:
                unread.appendleft(data[size:])
            unserved += decoder.feed(bytes(data[:size]))
            if decoder.fault is not None:
                unread.clear()
        now = [unserved.popleft() for _ in range(min(len(unserved), share))]
        if unserved or unread:
            self._scheduler.queue(self)
        self._read_or_not()
        return now

    def _wait_for_reader(self, commands: list[Command]) -> None:
        """These have to wait until the peer has read its answers."""
        self._unserved.extendleft(reversed(commands))
        self._read_or_not()

    def _wait_for_turn(self, commands: list[Command]) -> None:
        """These are for another turn, after what others wait for already."""
        self._unserved.extendleft(reversed(commands))
        self._scheduler.queue(self)
        self._read_or_not()

    def _settle(self) -> None:
        """What is owed is in the backlog while it can't be written, and forgotten once it is."""
        if self._drained is None:
            self.owed = 0
            if self._unserved or self._unread:
                self._scheduler.queue(self)
        self._count_owed()

    def _count_owed(self) -> None:
        if self.owed != self._counted:
            self.budget.add(self.owed - self._counted)
            self._counted = self.owed

    def _hold(self, count: int) -> None:
        """So many bytes of an unfinished request wait for the rest of it."""
        budget, more = self.budget, count - self._held
        self._held = count
        budget.held += more
        budget.add(more)
        if budget.is_full and (
            count > HELD_BYTES_MIN or (more > 0 and budget.held > budget.bytes_max)
        ):
            budget.refused += 1
            log.warning(
                "closing %s in the middle of a request: %d bytes wait for clients in memory, the "
                "limit is twice %d; fewer clients at a time, or smaller messages",
                self.address,
                self.budget.bytes,
                self.budget.bytes_max,
            )
            self.abort()

    def _read_or_not(self) -> None:
        """Read when all that was read is served, and the peer reads."""
        transport = self._transport
        wanted = not (self._unserved or self._unread)
        wanted = wanted and not (self._writes_first and self._drained is not None)
        if wanted is self._is_reading or transport is None or transport.is_closing():
            return
        self._is_reading = wanted
        if wanted:
            transport.resume_reading()
        else:
            self.leave_crowd()
            transport.pause_reading()

    def _count(self, command: Command, reply: Response | bytes) -> None:
        """A request is done in the turn in which it came."""
        latency = self._scheduler.latency
        if latency is None:
            return
        if command.flag & FLAG_ONEWAY:
            latency.oneway(command.code, code_of(reply))
        else:
            latency.answered[rpc_key(command.code, code_of(reply))] += 1

    def _give(self, command: Command, reply: Response | bytes) -> None:
        """The answer goes out at the end of this turn, if the request wants one."""
        if command.flag & FLAG_ONEWAY:
            return
        if type(reply) is bytes:
            self.out.append(reply)
        else:
            self._append(command, reply)  # type: ignore[arg-type]
        if not self._queued:
            self._queued = True
            self._scheduler.add(self)

    def _append(self, command: Command, reply: Response) -> None:
        pieces = encode_response(command, reply)
        self.out += pieces
        if reply.body:
            self.owe(sum(map(len, pieces)))

    def _release(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    def _expect(self, waiter: Waiter) -> int:
        """The opaque of a new request, whose answer `waiter` gets."""
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & OPAQUE_MASK
        if not self._waiting:  # else it is watched until all are through
            self._scheduler.watch(self)
        self._waiting[opaque] = waiter
        return opaque

    def _without_responses(self, found: list[Command]) -> list[Command]:
        """Hand the answers among these to those who wait for them; gives the others."""
        waiting = self._waiting
        others = []
        for command in found:
            if not command.flag & FLAG_RESPONSE:
                others.append(command)
                continue
            self.peer_version = command.version
            waiter = waiting.pop(command.opaque, None)
            if self._upgrade and command.language == LANGUAGE:
                self._upgrade_unless(waiter)
            if waiter is not None:
                waiter.answered(command)
        return others

    def _upgrade_unless(self, waiter: Waiter | None) -> None:
        """The peer is aerobee, unless it passed on what this one asked somebody else."""
        if waiter is None or waiter.code not in self._relayed:
            self.codec = CODEC_MSGPACK
            self._upgrade = False

    def _later(self, command: Command, reply: Coroutine[Any, Any, Answer]) -> None:
        if len(self._tasks) >= TASKS_MAX:
            reply.close()
            self.respond(command, _overload(len(self._tasks)))
            return
        size = len(command.body or b"")
        if size > HELD_BYTES_MIN and self.budget.is_full:
            reply.close()
            busy = self.budget.busy()
            self.respond(command, Response(busy.code, busy.fields, busy.remark))
            return
        self.budget.add(size)
        task = asyncio.get_running_loop().create_task(
            self._finish(command, reply, perf_counter()),
            name=f"request-{command.code}-{self.address}",
        )
        self._tasks[task] = None

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.pop(task, None)
            self.budget.add(-size)

        task.add_done_callback(done)

    async def _finish(
        self, command: Command, reply: Coroutine[Any, Any, Answer], began: float
    ) -> None:
        try:
            answer = await reply
        except Refusal as refusal:
            answer = Response(refusal.code, refusal.fields, refusal.remark)
        except Exception:
            answer = our_fault(command)
        if answer is not None:
            self.respond_late(command, answer, int((perf_counter() - began) * 1_000))


def code_of(reply: Response | bytes) -> int:
    """The response code of a reply; one that is bytes already says that all is well."""
    return reply.code if isinstance(reply, Response) else codes.SUCCESS


def _split(
    out: list[bytes | memoryview], most: int
) -> tuple[list[bytes | memoryview], list[bytes | memoryview]]:
    """The first `most` bytes of these, and the others."""
    for number, piece in enumerate(out):
        if len(piece) > most:
            first, rest = out[:number], out[number:]
            view = memoryview(piece)
            return [*first, view[:most]], [view[most:], *rest[1:]]
        most -= len(piece)
    return out, []


def writable_fds(connections: Sequence[Connection]) -> list[int]:
    """For each what takes bytes right now that are to go out next; -1 where nothing does."""
    return [
        connection._fd
        if not connection.out
        and not connection._is_behind
        and (
            connection._crowd is not None  # it leaves before it closes
            or ((transport := connection._transport) is not None and not transport.is_closing())
        )
        else -1
        for connection in connections
    ]


def our_fault(command: Command) -> Response:
    """The answer to a request whose handler raises something that it should not have."""
    name = codes.REQUEST_NAMES.get(command.code, str(command.code))
    log.exception("request %s failed", name)
    return Response(
        codes.SYSTEM_ERROR, remark=f"request {name} failed inside the server; its log says why"
    )


def _overload(tasks: int) -> Response:
    return Response(
        codes.SYSTEM_BUSY,
        remark=f"[OVERLOAD]{tasks} requests of this connection are at work, the limit is "
        f"{TASKS_MAX}; try again later",
    )


def host_text(name: tuple[Any, ...]) -> str:
    """A socket name as "ip:port", IPv6 in brackets."""
    ip, port = name[0], name[1]
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def host_bytes(name: tuple[Any, ...]) -> bytes:
    """A socket name as RocketMQ stores it: ip (4 or 16 bytes), then the port as int32."""
    ip, port = str(name[0]).partition("%")[0], int(name[1])
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    packed = socket.inet_pton(family, ip)
    if len(packed) == 16 and packed.startswith(b"\0" * 10 + b"\xff\xff"):
        packed = packed[12:]  # an IPv4 peer on a dual-stack socket
    return packed + port.to_bytes(4, "big")
