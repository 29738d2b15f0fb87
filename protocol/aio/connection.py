"""One TCP connection, for either end: requests are served, responses are matched, both at once.

RocketMQ uses a connection in both directions (a broker asks its clients too), so server and client
share this class. A `Connection` takes the bytes that come: they wait in its `Ingress` until the
scheduler serves it, for a quantum at a time (`scheduler.py`). Its `Session` calls the handlers, its
`Requests` sends what this end asks, and its `FrameTransport` writes. While a peer does not read,
its requests are neither read nor served (see `memory_budget`).
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
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
from .chunks import ChunkBatch
from .failures import UNANSWERED
from .frame_transport import BY_NOBODY, BY_READER, CLOSING, LOST, FrameTransport
from .ingress import Ingress
from .memory_budget import HELD_BYTES_MIN
from .requests import Requests, Sign
from .rpc_latency import RESPONSE_BITS, rpc_key
from .scheduler import QUANTUM_BYTES, QUANTUM_BYTES_ALONE, REQUEST_BYTES, Scheduler

log = logging.getLogger(__name__)

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
    once a tick made many bytes (`Scheduler.response_budget_spent`), its requests wait for another.
    """

    code: int
    header: type[Header] | None
    handler: Handler
    access: Needs = CLUSTER_UPDATE
    gates: tuple[object, ...] = ()
    hot: bool = False
    bulk: bool = False


class Session:
    """Serves the requests of one peer from a table, and sends the responses.

    A handler is no coroutine: it returns its response, or None when the response comes later
    through `respond`, or a coroutine for the few requests that must ask another peer first.
    """

    __slots__ = ("_requests", "_scheduler", "_tasks", "_transport", "rows")

    def __init__(
        self,
        scheduler: Scheduler,
        rows: Mapping[int, Row],
        transport: FrameTransport,
        requests: Requests,
    ) -> None:
        self.rows = rows
        self._scheduler = scheduler
        self._transport = transport
        self._requests = requests
        self._tasks: dict[asyncio.Task[None], None] = {}

    def serve(self, found: Iterable[Command], connection: "Connection") -> list[Command]:
        """Serve the requests, and match the responses, that came on `connection`; returns those
        that have to wait: the peer must read first, or this tick made many bytes."""
        scheduler, transport, rows = self._scheduler, self._transport, self.rows
        out, latency = transport.out, scheduler.latency
        unsent_max = scheduler.budget.unsent_max
        commands = iter(found)
        for command in commands:
            flag = command.flag
            if flag & FLAG_RESPONSE:
                self._requests.without_responses([command])
                continue
            row = rows.get(command.code)
            if transport.unsent > unsent_max or (
                row is not None and row.bulk and scheduler.response_budget_spent
            ):
                return [command, *commands]
            try:
                if row is None:
                    text = f" request type {command.code} not supported"
                    reply: Any = Response(codes.REQUEST_CODE_NOT_SUPPORTED, remark=text)
                else:
                    kind = row.header
                    header: Any = command.ext
                    if type(header) is not kind:
                        header = None if kind is None else command.header(kind)
                    reply = row.handler(header, command, connection)
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
                    self._start(command, reply, connection.address)
                continue
            if latency is not None:
                self._count(command, reply)
        return []

    def respond(self, command: Command, reply: Response | bytes) -> None:
        """Respond to a request of this tick; one that was oneway is only counted."""
        if not command.flag & FLAG_ONEWAY and self._transport.state is LOST:
            return
        self._count(command, reply)
        self._send(command, reply)

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
        if self._transport.state is LOST:
            return
        if self._scheduler.latency is not None:
            self._scheduler.latency.late(
                command.code, code_of(reply), waited_ms, is_long_polling=is_long_polling
            )
        self._send(command, reply)

    def cancel(self) -> None:
        """Cancel the coroutines of handlers: the connection is lost."""
        for task in self._tasks:
            task.cancel()

    def _count(self, command: Command, reply: Response | bytes) -> None:
        """Count a request that is done in the tick in which it came."""
        latency = self._scheduler.latency
        if latency is None:
            return
        if command.flag & FLAG_ONEWAY:
            latency.oneway(command.code, code_of(reply))
        else:
            latency.answered[rpc_key(command.code, code_of(reply))] += 1

    def _send(self, command: Command, reply: Response | bytes) -> None:
        """Send the response at the end of this tick, if the request wants one."""
        if command.flag & FLAG_ONEWAY:
            return
        if type(reply) is bytes:
            self._transport.out.append(reply)
        else:
            self._append(command, reply)  # type: ignore[arg-type]
        self._transport.plan_flush()

    def _append(self, command: Command, reply: Response) -> None:
        pieces = encode_response(command, reply)
        self._transport.out += pieces
        if reply.body:
            self._transport.add_unsent(sum(map(len, pieces)))

    def _start(self, command: Command, reply: Coroutine[Any, Any, Answer], address: str) -> None:
        """Run the coroutine of a handler."""
        budget = self._scheduler.budget
        if len(self._tasks) >= TASKS_MAX:
            reply.close()
            self.respond(command, _overload(len(self._tasks)))
            return
        size = len(command.body or b"")
        if size > HELD_BYTES_MIN and budget.is_full:
            reply.close()
            busy = budget.busy()
            self.respond(command, Response(busy.code, busy.fields, busy.remark))
            return
        budget.add(size)
        task = asyncio.get_running_loop().create_task(
            self._finish(command, reply, perf_counter()), name=f"request-{command.code}-{address}"
        )
        self._tasks[task] = None

        def done(task: asyncio.Task[None]) -> None:
            reply.close()  # it has not begun when the task was cancelled at once
            self._tasks.pop(task, None)
            budget.add(-size)

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


class Connection(asyncio.Protocol):
    """A connection; `rows` is the table that its peer is served from.

    `address` is the peer as "ip:port", `host` the same as RocketMQ stores it (4 or 16 bytes of ip
    and the port as int32), `local_address` this end. The end that connected has `asks`: it reads on
    while its own requests wait to be written. The other arguments are those of `Requests` and of
    the decoder. `deficit`, `in_run_queue` and `has_more` are the scheduler's (`scheduler.Flow`).
    """

    __slots__ = (
        "_on_lost",
        "_scheduler",
        "_writes_first",
        "address",
        "budget",
        "deficit",
        "has_more",
        "host",
        "idle_rounds",
        "in_run_queue",
        "ingress",
        "local_address",
        "requests",
        "session",
        "transport",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        rows: Mapping[int, Row],
        *,
        on_lost: Callable[["Connection"], None] | None = None,
        asks: bool = False,
        expected: Expected = NOTHING_EXPECTED,
        sign: Sign | None = None,
    ) -> None:
        self.address = ""
        self.local_address = ""
        self.host = b"\0" * 8
        self.idle_rounds = 0
        self.deficit = 0
        self.in_run_queue = False
        self.has_more = False
        self.budget = scheduler.budget
        self.ingress = Ingress(scheduler.budget, expected)
        self.transport = FrameTransport(scheduler, self)
        self.requests = Requests(scheduler, self.transport, sign)
        self.session = Session(scheduler, rows, self.transport, self.requests)
        self._scheduler = scheduler
        self._on_lost = on_lost
        self._writes_first = not asks

    # --- asyncio's side -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        local = transport.get_extra_info("sockname")
        if peer is not None:
            self.address, self.host = host_text(peer), host_bytes(peer)
            self.requests.address = self.address
        if local is not None:
            self.local_address = host_text(local)
        self.transport.open(cast(asyncio.Transport, transport))  # uvloop's is no subclass of it

    def set_transport(self, transport: asyncio.Transport) -> None:
        """Write through this transport from now on; it passes on the bytes that come."""
        self.transport.set_transport(transport)

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
        if not self.in_run_queue:
            self.in_run_queue = True
            scheduler.arrived.append(self)
            if not scheduler.is_planned:
                scheduler.is_planned = True
                scheduler.loop.call_soon(scheduler.tick)
        else:
            self.limit_ahead()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport.leave_reader()
        try:
            self._serve_last()
        finally:
            self.has_more = False
            self.ingress.release()
            why = self._why_lost(exc)
            self.transport.lose()
            self.requests.fail(why)
            self.session.cancel()
            if self._on_lost is not None:
                self._on_lost(self)

    def _serve_last(self) -> None:
        """Serve what had arrived before the connection was lost, as if it had been in time."""
        if not self.ingress.is_waiting:
            return
        scheduler = self._scheduler
        scheduler.plan_tick()
        batch, scheduler.batch = scheduler.batch, None
        try:
            while self.ingress.is_waiting:
                self.transport.unsent = scheduler.response_bytes = 0
                self.serve(QUANTUM_BYTES_ALONE)
                self.transport.out.clear()  # the peer doesn't read the responses
        except Exception:
            log.exception("what a closed connection had sent can't be served")
        finally:
            scheduler.batch = batch

    def _why_lost(self, exc: Exception | None) -> str:
        why = f"connection to {self.address} closed"
        fault = self.ingress.decoder.fault
        if fault is not None:
            return f"{why}: {fault}"
        if exc is not None:
            why += f": {reason_of(exc)}"
        transport, requests = self.transport, self.requests
        is_ours = self._writes_first or transport.state is CLOSING
        if is_ours or requests.peer_version or not requests:
            return why
        return f"{why} {UNANSWERED}" if transport.is_plain else why

    def pause_writing(self) -> None:
        # A peer that doesn't read is not read from either, so its responses don't accumulate. Only
        # one end may do so: when both did, each would wait for the other to read.
        self.transport.pause_writing()
        self._read_or_not()

    def resume_writing(self) -> None:
        self.transport.resume_writing()
        self._serve_waiting()
        self._read_or_not()

    # --- for handlers and owners ----------------------------------------------------------------

    @property
    def is_lost(self) -> bool:
        """True before it is open, and once either end closes it."""
        return self.transport.is_closing

    @property
    def is_full(self) -> bool:
        """True if what is to be written has reached the high-water mark: ask again after
        `drained()`."""
        return self.transport.is_full

    async def drained(self) -> None:
        """Wait until what is to be written is below the low-water mark, or the connection lost."""
        await self.transport.drained()

    @property
    def should_defer(self) -> bool:
        """True if a request of it that waits for messages should wait longer (`postpone`): the
        peer has unread bytes, or this tick's response budget or the memory budget is spent."""
        return (
            self.transport.over_unsent_limit
            or self._scheduler.response_budget_spent
            or not self.budget.unsent_max
        )

    def postpone(self, command: Command) -> None:
        """Handle a request once more, from its beginning, when the peer has read."""
        self.ingress.commands.append(command)
        if not self.transport.over_unsent_limit:
            self._scheduler.queue(self)
        self._read_or_not()

    def respond(self, command: Command, reply: Response | bytes) -> None:
        """Respond to a request whose handler returned None, in the tick in which it came."""
        self.session.respond(command, reply)

    def respond_late(
        self,
        command: Command,
        reply: Response | bytes,
        waited_ms: int,
        *,
        is_long_polling: bool = False,
    ) -> None:
        """`respond` to a request that came `waited_ms` ago, in an earlier tick."""
        self.session.respond_late(command, reply, waited_ms, is_long_polling=is_long_polling)

    def request(
        self, code: int, fields: dict[str, str] | None, body: bytes, timeout_s: float
    ) -> asyncio.Future[Command]:
        """Send a request; the future gives the response, TimeoutError or ConnectionResetError."""
        return self.requests.request(code, fields, body, timeout_s)

    async def ask(
        self, code: int, fields: dict[str, str] | None, body: bytes, timeout_s: float
    ) -> Command:
        """The response to a request, which waits while too much is to be written."""
        if self.is_full:
            async with asyncio.timeout(timeout_s):
                await self.drained()
        return await self.requests.request(code, fields, body, timeout_s)

    def oneway(self, code: int, fields: dict[str, str] | None, body: bytes = b"") -> None:
        """Send a request that gets no response; lost silently when the connection is, or when the
        client at its other end doesn't read."""
        if self.is_lost or (self._writes_first and self.transport.is_full):
            return
        self.requests.oneway(code, fields, body)

    def partial_rounds(self) -> int:
        """The number of earlier rounds in which the same request was incomplete, although this end
        reads."""
        is_reading = self.transport.reading is not BY_NOBODY
        return self.ingress.partial_rounds(is_reading=is_reading)

    def close(self) -> None:
        """Close once what is written has gone out."""
        self.transport.close()

    def abort(self) -> None:
        """Close at once; what is not written yet is dropped."""
        self.transport.abort()

    # --- for the scheduler ----------------------------------------------------------------------

    def serve(self, allowed: int) -> int:
        """Serve what waits, up to this many bytes; returns how many."""
        ingress, scheduler, transport = self.ingress, self._scheduler, self.transport
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
        if found:
            left = self.session.serve(found, self)
            if left:
                ingress.put_back(left)
            if not transport.needs_flush:
                transport.needs_flush = True
                scheduler.unflushed.append(self)
        if (chunks or ingress.commands or transport.reading is BY_NOBODY) or (
            decoder.rest or ingress.partial_bytes or decoder.fault is not None
        ):
            self._note_rest(allowed - served)
        return served

    def serve_unbatched(self, chunk: bytes) -> None:
        """Serve this request by request: it was in a batch, which could not take it."""
        ingress = self.ingress
        self.transport.leave_reader()
        ingress.commands.extend(ingress.decoder.feed(chunk))
        if ingress.commands:
            self.serve(max(len(chunk), QUANTUM_BYTES))
        else:
            self._note_rest(len(chunk))
        if self.has_more:
            self._scheduler.queue(self)

    def limit_ahead(self) -> None:
        """Read no more before its turn comes, if enough waits or the memory budget is spent."""
        if self.ingress.ahead() > AHEAD_BYTES_MAX or not self.budget.unsent_max:
            self._read_or_not()

    def unserved_codes(self) -> list[int]:
        """The codes of its requests that were read and wait for a later turn."""
        return [command.code for command in self.ingress.commands]

    def flush(self) -> None:
        """Write what waits to be written."""
        if self.transport.flush():
            self._serve_waiting()

    # --- inside ---------------------------------------------------------------------------------

    def _next_commands(self, allowed: int) -> tuple[list[Command], int]:
        """The commands to be served now, and how many bytes they cost."""
        ingress, scheduler = self.ingress, self._scheduler
        if self.transport.unsent > self.budget.unsent_max:
            return [], 0  # the peer has to read first
        if ingress.commands:
            if scheduler.response_budget_spent:
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
        if scheduler.response_budget_spent and len(found) > 1:
            most = 0  # several wait once the tick made many bytes
        if len(found) > most:
            found = ingress.keep_commands(found, most)
        return found, len(data) + REQUEST_BYTES * len(found)

    def _note_rest(self, left: int) -> None:
        """Note that requests wait, are incomplete, or no longer wait."""
        ingress, transport = self.ingress, self.transport
        decoder = ingress.decoder
        if decoder.rest or ingress.partial_bytes:
            self._count_partial()
        if decoder.fault is not None and not ingress.commands:
            log.warning("closing %s: %s", self.address, decoder.fault)
            ingress.chunks.clear()
            self.close()
        is_waiting = ingress.is_waiting
        if is_waiting is (transport.reading is not BY_NOBODY):
            self._read_or_not()
        if is_waiting and left <= 0:
            self._scheduler.mark_heavy(self)
        self.has_more = is_waiting and transport.unsent <= self.budget.unsent_max

    def _is_in_batch(self, batch: "ChunkBatch[Connection]", data: bytes) -> bool:
        """Leave a chunk to the batch, if it begins with a request that may be there."""
        scheduler, transport = self._scheduler, self.transport
        decoder = self.ingress.decoder
        if (
            transport.needs_flush  # a request of this tick comes before it
            or transport.unsent
            or transport.is_full
            or decoder.missing > len(data)
        ):
            return False
        if decoder.rest:
            data = bytes(decoder.rest) + data
        if not batch.add(self, data, is_alone=not scheduler.is_batching):
            return False
        decoder.rest.clear()
        if (
            batch.reader is not None
            and len(batch.senders) >= READER_CONNECTIONS_MIN
            and len(data) <= READER_BYTES_MAX
            and not self.ingress.chunks
        ):
            transport.join_reader(batch.reader)
        return True

    def _take_responses(self, data: bytes) -> bool:
        """Take what came to the end that asks: responses first. Whether requests are among it."""
        ingress = self.ingress
        ingress.commands.extend(self.requests.without_responses(ingress.decoder.feed(data)))
        if ingress.decoder.rest or ingress.partial_bytes:
            self._count_partial()
        return bool(ingress.commands) or ingress.decoder.fault is not None

    def _serve_waiting(self) -> None:
        """Have what waits served in its round, once the peer has read."""
        if not self.transport.is_full and self.ingress.is_waiting:
            self._scheduler.queue(self)

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
        transport = self.transport
        wanted = not self.ingress.is_waiting
        wanted = wanted and not (self._writes_first and transport.is_full)
        if wanted is (transport.reading is not BY_NOBODY) or transport.is_closing:
            return
        self.ingress.count_ahead()
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()


def code_of(reply: Response | bytes) -> int:
    """The response code of a reply; one that is bytes already says that all is well."""
    return reply.code if isinstance(reply, Response) else codes.SUCCESS


def writable_fds(connections: Sequence[Connection]) -> list[int]:
    """The socket of each connection that takes bytes right now, which go out next; else -1."""
    return [
        transport.fd
        if not transport.out
        and not transport.has_backlog
        # One with a reader leaves it before it closes.
        and (transport.reading is BY_READER or not transport.is_closing)
        else -1
        for connection in connections
        for transport in (connection.transport,)
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
