"""One TCP connection, for either end: requests are served, responses are matched, both at once.

RocketMQ uses a connection in both directions (a broker asks its clients too), so server and client
share this class. A handler is a plain function: it returns its reply, or None when the response
comes later through `respond`, or a coroutine for the few requests that must ask another peer first.

Bytes that come wait in `ingress` until the scheduler serves the connection, for a quantum at a time
(`scheduler.py`). While a peer does not read, its requests are neither read nor served (see
`memory_budget`).
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

from .. import codes
from ..codec.frame import encode_response
from ..codec.header_json import NOTHING_EXPECTED, Expected
from ..command import FLAG_ONEWAY, FLAG_RESPONSE, Command, Response
from ..errors import Refusal, reason_of
from ..security.needs import CLUSTER_UPDATE, Needs
from ..wire import Header
from .chunks import ChunkBatch, SocketReader
from .failures import UNANSWERED
from .ingress import Ingress
from .memory_budget import COUNTED_BYTES_MIN, HELD_BYTES_MIN
from .requests import WAITING_MAX, Requests, Sign, Waiter
from .rpc_latency import RESPONSE_BITS, rpc_key
from .scheduler import QUANTUM_BYTES, QUANTUM_BYTES_ALONE, REQUEST_BYTES, Scheduler

log = logging.getLogger(__name__)

WRITE_BYTES_MAX = 256 << 10  # of large responses to one peer, in one tick
READER_CONNECTIONS_MIN = 16  # served in a tick, from which on their sockets are read together
READER_BYTES_MAX = 2_000  # of a chunk: a connection that sends more has its transport read
FEW_BYTES = 1_000  # of a chunk that is served at once: it has few requests
AHEAD_BYTES_MAX = 64 << 10  # that wait for their turn: with more it is not read any further
TASKS_MAX = 1_024  # coroutine handlers at work, per connection

Answer = Response | bytes | None
Handler = Callable[[Any, Command, "Connection"], Answer | Coroutine[Any, Any, Answer]]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a request table: code, kind of header (None when it has none), handler, access.

    `access` is what access control asks for, where a server has it. `gates` are what else a request
    passes before its handler, by name; the server that has the row knows them. A `hot` row comes
    with every message: its header is read in one pass. The responses of a `bulk` row may be large:
    once a tick gave many bytes (`Scheduler.has_given`), its requests wait for another.
    """

    code: int
    header: type[Header] | None
    handler: Handler
    access: Needs = CLUSTER_UPDATE
    gates: tuple[object, ...] = ()
    hot: bool = False
    bulk: bool = False


class Connection(asyncio.Protocol):
    """A connection; `rows` is the table it serves from.

    `address` is the peer as "ip:port", `host` the same as RocketMQ stores it (4 or 16 bytes of ip
    and the port as int32), `local_address` this end. The end that connected has `asks`: it reads on
    while its own requests wait to be written. The other arguments are those of `Requests` and of
    the decoder. `deficit`, `is_queued` and `has_more` are the scheduler's (`scheduler.Scheduled`).
    """

    __slots__ = (
        "_closing",
        "_counted",
        "_drained",
        "_fd",
        "_is_behind",
        "_is_reading",
        "_lost",
        "_on_lost",
        "_queued",
        "_reader",
        "_scheduler",
        "_tasks",
        "_transport",
        "_writes_first",
        "address",
        "budget",
        "deficit",
        "has_more",
        "host",
        "idle_rounds",
        "ingress",
        "is_queued",
        "local_address",
        "out",
        "requests",
        "rows",
        "unsent",
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
        self.address = ""
        self.local_address = ""
        self.host = b"\0" * 8
        self.idle_rounds = 0
        self.deficit = 0
        self.is_queued = False
        self.has_more = False
        # Whole frames that go out when the tick ends: some handlers add responses themselves.
        self.out: list[bytes | memoryview] = []
        self.unsent = 0  # bytes of large responses since the peer had read all
        self.budget = scheduler.budget
        self._counted = 0  # of the unsent bytes, in the budget
        self.ingress = Ingress(scheduler.budget, expected)
        self.requests = Requests(
            scheduler, codec=codec, upgrade=upgrade, relayed=relayed, sign=sign
        )
        self._is_reading = True
        self._scheduler = scheduler
        self._on_lost = on_lost
        self._writes_first = not asks
        self._drained: asyncio.Event | None = None
        self._transport: asyncio.Transport | None = None
        # What can be written at once goes to the socket: a transport takes longer.
        self._fd = -1
        self._queued = False  # it is flushed when the tick ends
        self._reader: SocketReader[Connection] | None = None  # reads in place of its transport
        self._is_behind = False  # some of what was written may still lie in the transport
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
            self.requests.address = self.address
        if local is not None:
            self.local_address = host_text(local)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if os.name == "posix" and transport.get_extra_info("sslcontext") is None:
                self._fd = sock.fileno()

    def speak_through(self, transport: asyncio.Transport) -> None:
        """From now on this transport writes its bytes, and passes on the bytes that come."""
        self._transport = transport
        self._fd = -1

    def data_received(self, data: bytes) -> None:
        self.idle_rounds = 0
        scheduler = self._scheduler
        latency = scheduler.latency
        if latency is not None and not latency.began:
            latency.began = perf_counter()
        if self._writes_first:
            self.ingress.chunks.append(data)
        elif not self._take_responses(data):
            return
        if not self.is_queued:
            self.is_queued = True
            scheduler.arrived.append(self)
            if not scheduler.is_planned:
                scheduler.is_planned = True
                scheduler.loop.call_soon(scheduler.tick)
        else:
            self.limit_ahead()

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave_reader()
        batch, self._scheduler.batch = self._scheduler.batch, None
        if self.ingress.is_waiting:
            self._scheduler.plan_tick()
        try:
            while self.ingress.is_waiting:  # what had arrived is served, as if it had been in time
                self.unsent = self._scheduler.given = 0
                self.serve(QUANTUM_BYTES_ALONE)
                self.out.clear()  # the peer doesn't read the responses
        except Exception:
            log.exception("what a closed connection had sent can't be served")
        self._scheduler.batch = batch
        self.has_more = False
        self.ingress.release()
        self.budget.add(-self._counted)
        self._counted = 0
        self._fd = -1
        self._lost = self._why_lost(exc)
        self.requests.fail(self._lost)
        for task in self._tasks:
            task.cancel()
        self._release()
        if self._on_lost is not None:
            self._on_lost(self)

    def _why_lost(self, exc: Exception | None) -> str:
        why = f"connection to {self.address} closed"
        fault = self.ingress.decoder.fault
        if fault is not None:
            return f"{why}: {fault}"
        if exc is not None:
            why += f": {reason_of(exc)}"
        requests = self.requests
        if self._writes_first or self._closing or requests.peer_version or not requests:
            return why
        transport = self._transport
        is_plain = transport is not None and transport.get_extra_info("sslcontext") is None
        return f"{why} {UNANSWERED}" if is_plain else why

    def pause_writing(self) -> None:
        # A peer that doesn't read is not read from either, so its responses don't accumulate. Only
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
        """The peer must read first: what it asked for is better served later (`postpone`)."""
        return self._drained is not None or self.unsent > self.budget.unsent_max

    @property
    def is_to_wait(self) -> bool:
        """A request of it that waits for messages is better served later: it `is_behind`, this tick
        gave many bytes, or the memory budget is spent."""
        return self.is_behind or self._scheduler.has_given or not self.budget.unsent_max

    def add_unsent(self, size: int) -> None:
        """Count bytes of a large response that the peer has to read. Many are in the budget at
        once, so that connections served in the same tick have less room."""
        self.unsent += size
        self._scheduler.given += size
        if self.unsent > COUNTED_BYTES_MIN:
            self._count_unsent()

    def postpone(self, command: Command) -> None:
        """Handle a request once more, from its beginning, when the peer has read."""
        self.ingress.commands.append(command)
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
        """`respond` to a request that came `waited_ms` ago, in an earlier tick."""
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
        """Send a request; the future gives the response, TimeoutError or ConnectionResetError."""
        if self.is_lost:
            future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
            future.set_exception(ConnectionResetError(self._lost or "connection is closing"))
            return future
        future, frame = self.requests.future(code, fields, body, timeout_s)
        if frame:
            self.write_later(frame)
        return future

    @property
    def is_ready(self) -> bool:
        """A request can be sent at once, by `ask_now`."""
        return (
            self._drained is None
            and self._lost is None
            and not self._closing
            and self.requests.sign is None
            and len(self.requests) < WAITING_MAX
        )

    def ask_now(self, waiter: Waiter, before_opaque: str, body: bytes) -> None:
        """`request` with a JSON header that is written up to the opaque; when `is_ready`."""
        self.out.append(self.requests.frame(waiter, before_opaque, body))
        if not self._queued:
            self._queued = True
            self._scheduler.add(self)

    async def ask(
        self, code: int, fields: dict[str, str] | None, body: bytes, timeout_s: float
    ) -> Command:
        """The response to a request, which waits while too much is to be written."""
        if self.is_full:
            async with asyncio.timeout(timeout_s):
                await self.drained()
        return await self.request(code, fields, body, timeout_s)

    def oneway(self, code: int, fields: dict[str, str] | None, body: bytes = b"") -> None:
        """Send a request that gets no answer; lost silently when the connection is, or when the
        client at its other end doesn't read."""
        if self.is_lost or (self._writes_first and self._drained is not None):
            return
        self.write_later(self.requests.oneway(code, fields, body))

    def partial_rounds(self) -> int:
        """For how many rounds before this one the same request has been incomplete, although this
        end reads."""
        return self.ingress.partial_rounds(is_reading=self._is_reading)

    def unserved_codes(self) -> list[int]:
        """The codes of its requests that were read and wait for a later turn."""
        return [command.code for command in self.ingress.commands]

    def write_later(self, data: bytes) -> None:
        """These go out at the end of this tick, behind what waits already."""
        self.out.append(data)
        if not self._queued:
            self._queued = True
            self._scheduler.add(self)

    def leave_reader(self) -> None:
        """From now on its transport reads again."""
        reader, self._reader = self._reader, None
        if reader is None:
            return
        reader.remove(self, self._fd)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def flush(self) -> None:
        """Hand what is to be written to the transport, in one write; of large responses a
        part, and the rest in the next ticks."""
        self._queued = False
        out, self.out = self.out, []
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if out:  # what waits for the disk is answered later
            if self.unsent > WRITE_BYTES_MAX:
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
        if self.unsent:
            self._settle()
        if self._closing:
            transport.close()

    def close(self) -> None:
        """Close once what is written has gone out."""
        self._closing = True
        self.leave_reader()
        if not self._queued and self._transport is not None:  # else `flush` does it
            self._transport.close()

    def abort(self) -> None:
        """Close at once; what is not written yet is dropped."""
        self.out = []
        self._queued = False
        if self._transport is not None:
            self._transport.abort()
            self.leave_reader()

    # --- inside ---------------------------------------------------------------------------------

    def serve(self, allowed: int) -> int:  # noqa: PLR0915 - each call would cost
        """Serve what waits, up to this many bytes; returns how many. For the scheduler."""
        ingress, scheduler = self.ingress, self._scheduler
        chunks, decoder = ingress.chunks, ingress.decoder
        self.has_more = False
        if (
            len(chunks) == 1
            and len(chunks[0]) <= FEW_BYTES
            and not (scheduler.is_batching or ingress.commands)
        ):
            found, served = decoder.feed(bytes(chunks.popleft())), 0
        else:
            found, served = self._next_commands(allowed)
        rows, out, latency = self.rows, self.out, scheduler.latency
        unsent_max = self.budget.unsent_max
        commands = iter(found)
        for command in commands:
            flag = command.flag
            if flag & FLAG_RESPONSE:
                self.requests.without_responses([command])
                continue
            row = rows.get(command.code)
            if self.unsent > unsent_max or (row is not None and row.bulk and scheduler.has_given):
                ingress.put_back([command, *commands])
                break
            try:
                if row is None:
                    text = f" request type {command.code} not supported"
                    reply: Any = Response(codes.REQUEST_CODE_NOT_SUPPORTED, remark=text)
                else:
                    kind = row.header
                    header: Any = command.ext
                    if type(header) is not kind:
                        header = None if kind is None else command.header(kind)
                    reply = row.handler(header, command, self)
            except Refusal as refusal:
                reply = Response(refusal.code, refusal.fields, refusal.remark)
            except Exception:
                reply = our_fault(command)
            if type(reply) is bytes:
                if not flag & FLAG_ONEWAY:
                    out.append(reply)
                    if latency is not None:  # here, since a call costs more
                        latency.answered[command.code << RESPONSE_BITS] += 1
                    continue
            elif type(reply) is Response:
                if not flag & FLAG_ONEWAY:
                    self._append(command, reply)
            else:
                if reply is not None:
                    self._later(command, reply)
                continue
            if latency is not None:
                self._count(command, reply)
        if found and not self._queued:
            self._queued = True
            scheduler.unflushed.append(self)
        if (chunks or ingress.commands or not self._is_reading) or (
            decoder.rest or ingress.partial_bytes or decoder.fault is not None
        ):
            self._note_rest(allowed - served)
        return served

    def limit_ahead(self) -> None:
        """Read no more before its turn comes, if enough waits or the memory budget is spent."""
        if self.ingress.ahead() > AHEAD_BYTES_MAX or not self.budget.unsent_max:
            self._read_or_not()

    def serve_rest(self, chunk: bytes) -> None:
        """Serve this request by request: it was in a batch, which could not take it."""
        ingress = self.ingress
        self.leave_reader()
        ingress.commands.extend(ingress.decoder.feed(chunk))
        if ingress.commands:
            self.serve(max(len(chunk), QUANTUM_BYTES))
        else:
            self._note_rest(len(chunk))
        if self.has_more:
            self._scheduler.queue(self)

    def _next_commands(self, allowed: int) -> tuple[list[Command], int]:
        """The commands to be served now, and how many bytes they cost."""
        ingress, scheduler = self.ingress, self._scheduler
        if self.unsent > self.budget.unsent_max:
            return [], 0  # the peer has to read first
        if ingress.commands:
            if scheduler.has_given:
                return [], 0
            found = ingress.take_commands(max(1, allowed // REQUEST_BYTES))
            return found, REQUEST_BYTES * len(found)
        if not ingress.chunks or allowed <= 0:
            return [], 0
        data = ingress.cut(ingress.chunks.popleft(), allowed)
        if scheduler.batch is not None and self._is_in_batch(scheduler.batch, data):
            return [], len(data)
        found = ingress.decoder.feed(data)
        most = max(1, (allowed - len(data)) // REQUEST_BYTES)
        if scheduler.has_given and len(found) > 1:
            most = 0  # several wait once the tick gave many bytes
        if len(found) > most:
            found = ingress.keep_commands(found, most)
        return found, len(data) + REQUEST_BYTES * len(found)

    def _note_rest(self, left: int) -> None:
        """Something waits, is incomplete, or no longer waits."""
        ingress = self.ingress
        decoder = ingress.decoder
        if decoder.rest or ingress.partial_bytes:
            self._count_partial()
        if decoder.fault is not None and not ingress.commands:
            log.warning("closing %s: %s", self.address, decoder.fault)
            ingress.chunks.clear()
            self.close()
        is_waiting = ingress.is_waiting
        if is_waiting is self._is_reading:
            self._read_or_not()
        if is_waiting and left <= 0:
            self._scheduler.mark_heavy(self)
        self.has_more = is_waiting and self.unsent <= self.budget.unsent_max

    def _is_in_batch(self, batch: "ChunkBatch[Connection]", data: bytes) -> bool:
        """Leave a chunk to the batch, if it begins with a request that may be there."""
        scheduler, ingress = self._scheduler, self.ingress
        decoder = ingress.decoder
        if (
            self._queued  # a request of this tick comes before it
            or self.unsent
            or self._drained is not None
            or decoder.missing > len(data)
        ):
            return False
        if decoder.rest:
            data = bytes(decoder.rest) + data
        if not batch.add(self, data, is_alone=not scheduler.is_batching):
            return False
        decoder.rest.clear()
        reader = batch.reader
        if (
            reader is not None
            and len(batch.senders) >= READER_CONNECTIONS_MIN
            and len(data) <= READER_BYTES_MAX
            and self._reader is None
        ):
            self._join(reader)
        return True

    def _join(self, reader: "SocketReader[Connection]") -> None:
        """Have this one read, as long as only chunks for the batch come."""
        transport = self._transport
        if (
            transport is not None
            and not transport.is_closing()
            and self._is_reading
            and self._fd >= 0
            and not self.ingress.chunks
            and reader.add(self, self._fd)
        ):
            self._reader = reader
            transport.pause_reading()

    def _take_responses(self, data: bytes) -> bool:
        """Take what came to the end that asks: responses first. Whether requests are among it."""
        ingress = self.ingress
        ingress.commands.extend(self.requests.without_responses(ingress.decoder.feed(data)))
        if ingress.decoder.rest or ingress.partial_bytes:
            self._count_partial()
        return bool(ingress.commands) or ingress.decoder.fault is not None

    def _settle(self) -> None:
        """Unsent bytes are in the budget while they can't be written, and forgotten once they are;
        then the requests that wait are served."""
        if self._drained is None:
            self.unsent = 0
            if self.ingress.is_waiting:
                self._scheduler.queue(self)
        if self.unsent != self._counted:
            self._count_unsent()

    def _count_unsent(self) -> None:
        self.budget.add(self.unsent - self._counted)
        self._counted = self.unsent

    def _count_partial(self) -> None:
        """Count the bytes of an incomplete request; the connection closes if they are too many."""
        if self.ingress.count_partial():
            return
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
        wanted = not self.ingress.is_waiting
        wanted = wanted and not (self._writes_first and self._drained is not None)
        if wanted is self._is_reading or transport is None or transport.is_closing():
            return
        self._is_reading = wanted
        self.ingress.count_ahead()
        if wanted:
            transport.resume_reading()
        else:
            self.leave_reader()
            transport.pause_reading()

    def _count(self, command: Command, reply: Response | bytes) -> None:
        """A request is done in the tick in which it came."""
        latency = self._scheduler.latency
        if latency is None:
            return
        if command.flag & FLAG_ONEWAY:
            latency.oneway(command.code, code_of(reply))
        else:
            latency.answered[rpc_key(command.code, code_of(reply))] += 1

    def _give(self, command: Command, reply: Response | bytes) -> None:
        """The response goes out at the end of this tick, if the request wants one."""
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
            self.add_unsent(sum(map(len, pieces)))

    def _release(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None

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
            reply.close()  # it has not begun when the task was cancelled at once
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
            connection._reader is not None  # it leaves before it closes
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
