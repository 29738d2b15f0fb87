"""The requests that this end of a connection has sent and that wait for a response.

Each has an opaque, a number that its response repeats. A waiter learns of the response, or of the
timeout, or that the connection is lost.
"""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from ..codec.frame import HEAD, LENGTH_BYTES, encode_request
from ..codec.header_json import AFTER_OPAQUE
from ..command import FLAG_RESPONSE, Command
from .frame_transport import OPEN, FrameTransport
from .scheduler import Scheduler

WAITING_MAX = 65_536  # requests without a response yet, per connection
OPAQUE_MASK = 0x7FFFFFFF

Sign = Callable[[dict[str, str] | None, bytes], dict[str, str]]


class Waiter(msgspec.Struct, eq=False):
    """Waits for the response to a request until `deadline` (the loop's clock).

    One of the two functions is called, once, while the connection reads: they must be quick.
    """

    deadline: float

    def answered(self, answer: Command) -> None:
        """The response, whatever its code."""
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """No response came: TimeoutError, or ConnectionResetError."""
        raise NotImplementedError


class _FutureWaiter(Waiter, eq=False):
    future: asyncio.Future[Command]

    def answered(self, answer: Command) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def failed(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Requests:
    """Sends requests through `transport`, and matches their responses.

    `sign` makes the custom header of a request from header and body. `address` is the
    peer's, for errors, and `peer_version` that of its last response.
    """

    __slots__ = (
        "_next_opaque",
        "_scheduler",
        "_transport",
        "_waiting",
        "address",
        "peer_version",
        "sign",
        "why_lost",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        transport: FrameTransport,
        sign: Sign | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._transport = transport
        self.sign = sign
        self.address = ""
        self.peer_version = 0
        self.why_lost = ""
        self._waiting: dict[int, Waiter] = {}
        self._next_opaque = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def request(
        self, code: int, fields: dict[str, str] | None, body: bytes, timeout_s: float
    ) -> asyncio.Future[Command]:
        """Send a request; the future gives the response, TimeoutError or ConnectionResetError."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Command] = loop.create_future()
        if self._transport.is_closing:
            future.set_exception(ConnectionResetError(self.why_lost or "connection is closing"))
            return future
        if len(self._waiting) >= WAITING_MAX:
            future.set_exception(
                ConnectionError(
                    f"{len(self._waiting)} requests to {self.address} wait for an answer, the "
                    f"limit is {WAITING_MAX}; send fewer at a time"
                )
            )
            return future
        if self.sign is not None:
            fields = self.sign(fields, body)
        opaque = self._expect(_FutureWaiter(loop.time() + timeout_s, future))
        self._transport.write_later(encode_request(code, opaque, fields, body))
        return future

    @property
    def is_ready(self) -> bool:
        """True if a request can be sent at once, by `send_prepared`."""
        transport = self._transport
        return (
            not transport.is_full
            and transport.state is OPEN
            and self.sign is None
            and len(self._waiting) < WAITING_MAX
        )

    def send_prepared(self, waiter: Waiter, before_opaque: str, body: bytes) -> None:
        """Send a request whose JSON header is written up to the opaque, when `is_ready`."""
        # As `_expect`, without a call: a producer does this for every send.
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & OPAQUE_MASK
        if not self._waiting:
            self._scheduler.watch(self)
        self._waiting[opaque] = waiter
        header = f"{before_opaque}{opaque}{AFTER_OPAQUE}".encode()
        size = len(header)
        head = HEAD.pack(LENGTH_BYTES + size + len(body), size)
        transport = self._transport
        transport.out.append(head + header + body)
        if not transport.needs_flush:
            transport.plan_flush()

    def oneway(self, code: int, fields: dict[str, str] | None, body: bytes) -> None:
        """Send a request that gets no response."""
        if self.sign is not None:
            fields = self.sign(fields, body)
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & OPAQUE_MASK
        frame = encode_request(code, opaque, fields, body, oneway=True)
        self._transport.write_later(frame)

    def without_responses(self, found: Iterable[Command]) -> list[Command]:
        """Give the responses among these commands to their waiters; returns the others."""
        others = []
        for command in found:
            if not command.flag & FLAG_RESPONSE:
                others.append(command)
                continue
            self.peer_version = command.version
            waiter = self._waiting.pop(command.opaque, None)
            if waiter is not None:
                waiter.answered(command)
        return others

    def expire(self, now: float) -> bool:
        """Fail the requests whose deadline is over; False when none is waiting any more."""
        late = [opaque for opaque, waiter in self._waiting.items() if waiter.deadline <= now]
        for opaque in late:
            waiter = self._waiting.pop(opaque)
            waiter.failed(TimeoutError(f"no answer from {self.address} in time"))
        return bool(self._waiting)

    def fail(self, reason: str) -> None:
        """Fail all requests: the connection is lost, for this reason."""
        self.why_lost = reason
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting.values():
            waiter.failed(ConnectionResetError(reason))

    def _expect(self, waiter: Waiter) -> int:
        """The opaque of a new request, whose response `waiter` gets."""
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & OPAQUE_MASK
        if not self._waiting:  # else they are watched already
            self._scheduler.watch(self)
        self._waiting[opaque] = waiter
        return opaque
