"""One call of gRPC: its metadata, its deadline, the messages in both directions.

A handler gets the `Call`. It reads what the client said about itself from it, and a streaming
handler writes its answers with `write` and reads further requests with `read`.
"""

import asyncio
import gzip
import io
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Any, Protocol

from .status import INTERNAL, RESOURCE_EXHAUSTED, UNIMPLEMENTED, GrpcError

UNARY, SERVER_STREAM, BIDIRECTIONAL = range(3)
PREFIX = Struct(">BI")  # compressed or not, bytes of the message
OUT_BYTES_MAX = 1 << 20  # of one call, written and not yet taken by the peer
STREAMED_BYTES_MAX = 1 << 20  # of one message of a stream of requests
READ_MESSAGES_MAX = 1_000  # of one call, come in and not yet read by the handler


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a service: its kind, how a request is parsed, and its handler.

    The handler of a UNARY method takes the call and the request and returns the answer; that of a
    SERVER_STREAM method takes the same and writes; that of a BIDIRECTIONAL method takes the call.
    `parse` raises any exception for bytes that are no request. Answers have SerializeToString.
    """

    kind: int
    parse: Callable[[bytes], Any]
    handle: Callable[..., Awaitable[Any]]


class CallConnection(Protocol):
    """The connection of a call: as much of an `Http2Connection` as calls and handlers use."""

    loop: asyncio.AbstractEventLoop
    message_bytes_max: int
    peer: tuple[str, int]
    local: tuple[str, int]

    def consumed(self, call: "Call", count: int) -> None:
        """`count` bytes of a call were taken; the client may send as many again."""

    def over_unsent_limit(self, call: "Call") -> bool:
        """True if a handler has to wait before it writes more."""
        ...

    def send(self, call: "Call", data: bytes) -> None:
        """Append bytes to the answer of a call."""


class Call:
    """A call that is being served."""

    __slots__ = (
        "_arrived",
        "_ended",
        "_messages",
        "_method",
        "_unread_bytes",
        "_writable",
        "answer_by",
        "arriving",
        "connection",
        "deadline",
        "has_headers",
        "is_done",
        "is_remote_open",
        "metadata",
        "on_received",
        "out",
        "path",
        "stream_id",
        "task",
        "timer",
        "trailers",
    )

    def __init__(
        self,
        connection: CallConnection,
        stream_id: int,
        method: Method,
        metadata: dict[bytes, bytes],
    ) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.metadata = metadata
        self.path = b""  # of its method
        self.deadline: float | None = None
        # The client surely waits until then; it may give up between this time and the deadline.
        self.answer_by: float | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.arriving = bytearray()
        self.out = bytearray()
        self.trailers: list[tuple[bytes, bytes]] | None = None
        self.has_headers = False
        self.is_done = False
        self.is_remote_open = True
        self.on_received: Callable[[bool], None] | None = None
        self._method = method
        self._messages: deque[Any] = deque()
        self._unread_bytes: deque[int] = deque()
        self._arrived: asyncio.Event | None = None
        self._ended = False
        self._writable: asyncio.Event | None = None

    # --- for handlers ---------------------------------------------------------------------------

    def text(self, name: bytes) -> str:
        """A header as text, "" without it; bytes that are no UTF-8 are replaced."""
        return self.metadata.get(name, b"").decode(errors="replace")

    @property
    def peer(self) -> tuple[str, int]:
        """Host and port of the client."""
        return self.connection.peer

    @property
    def authority(self) -> str:
        """The address that the client dialled, "host:port" or "host"; "" if it is not given."""
        return self.text(b":authority") or self.text(b"host")

    def remaining_s(self) -> float | None:
        """The seconds until the deadline, at least 0; None without a deadline."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - self.connection.loop.time())

    def answer_in_s(self) -> float | None:
        """The seconds in which the client surely waits for an answer; None without a deadline."""
        if self.answer_by is None:
            return None
        return max(0.0, self.answer_by - self.connection.loop.time())

    async def read(self) -> Any:
        """The next request of the client, None after its last one."""
        while not self._messages:
            if self._ended:
                return None
            self._arrived = self._arrived or asyncio.Event()
            self._arrived.clear()
            await self._arrived.wait()
        self.connection.consumed(self, self._unread_bytes.popleft())
        return self._messages.popleft()

    async def write(self, answer: Any) -> None:
        """Send an answer; waits while the peer has not taken the earlier ones."""
        self.put(answer)
        await self.drained()

    def put(self, answer: Any) -> None:
        """Send an answer without waiting. A call that has ended drops it."""
        self.put_all((answer,))

    def put_all(self, answers: Iterable[Any]) -> None:
        """Send several answers without waiting; they leave in as few frames as they fit into."""
        if self.is_done or self.trailers is not None:
            return
        parts: list[bytes] = []
        for answer in answers:
            data = answer.SerializeToString()
            parts += (PREFIX.pack(0, len(data)), data)
        self.connection.send(self, b"".join(parts))

    async def drained(self) -> None:
        """Wait until the peer has taken enough of what was written."""
        while not self.is_done and self.connection.over_unsent_limit(self):
            self._writable = self._writable or asyncio.Event()
            self._writable.clear()
            await self._writable.wait()

    def when_received(self, told: Callable[[bool], None]) -> None:
        """Learn once whether the client got the whole answer.

        True when it answers a ping behind the answer by `answer_by`; False when it answers later,
        or the call or the connection ends before that.
        """
        if self.is_done:
            told(False)
        else:
            self.on_received = told

    # --- for the connection ---------------------------------------------------------------------

    @property
    def kind(self) -> int:
        return self._method.kind

    @property
    def handle(self) -> Callable[..., Awaitable[Any]]:
        return self._method.handle

    def take(self, count: int) -> None:
        """Parse whole messages out of `arriving`; `count` bytes of flow control came with them."""
        for data in self._split():
            try:
                message = self._method.parse(data)
            except Exception as wrong:
                raise GrpcError(INTERNAL, f"the request can't be parsed: {wrong}") from None
            if self.kind != BIDIRECTIONAL and self._messages:
                raise GrpcError(INTERNAL, "the call has more than one request; it takes one")
            if len(self._messages) >= READ_MESSAGES_MAX:
                raise GrpcError(
                    RESOURCE_EXHAUSTED,
                    f"{len(self._messages)} requests of this call wait, the limit is "
                    f"{READ_MESSAGES_MAX}; send them more slowly",
                )
            self._messages.append(message)
            self._unread_bytes.append(0)
        if self.kind == BIDIRECTIONAL and self._unread_bytes:
            self._unread_bytes[-1] += count
        else:
            self.connection.consumed(self, count)
        if self._arrived is not None:
            self._arrived.set()

    def end(self) -> None:
        """The client has sent all; GrpcError if that is not a whole request."""
        self.is_remote_open = False
        self._ended = True
        if self.arriving:
            raise GrpcError(
                INTERNAL, f"the call ended inside a message, {len(self.arriving)} bytes of it came"
            )
        if self.kind != BIDIRECTIONAL and not self._messages:
            raise GrpcError(INTERNAL, "the call ended without a request")
        if self._arrived is not None:
            self._arrived.set()

    def stop_reading(self) -> None:
        """`read` gives None from now on: the proxy stops."""
        self._ended = True
        if self._arrived is not None:
            self._arrived.set()

    def only_request(self) -> Any:
        """The request of a call that has one."""
        return self._messages.popleft()

    def wake(self) -> None:
        """The peer took something, or the call is over."""
        if self._writable is not None:
            self._writable.set()

    def _split(self) -> list[bytes]:
        arriving, found = self.arriving, []
        limit = self.connection.message_bytes_max
        if self.kind == BIDIRECTIONAL:  # of these several wait
            limit = min(limit, STREAMED_BYTES_MAX)
        while len(arriving) >= PREFIX.size:
            compressed, size = PREFIX.unpack_from(arriving)
            if compressed > 1:
                raise GrpcError(INTERNAL, f"the compressed flag is {compressed}, it must be 0 or 1")
            if size > limit:
                raise GrpcError(
                    RESOURCE_EXHAUSTED,
                    f"the message has {size} bytes, the limit is {limit}; send smaller ones, or "
                    "raise grpcMaxInboundMessageSize",
                )
            end = PREFIX.size + size
            if len(arriving) < end:
                break
            data = bytes(arriving[PREFIX.size : end])
            del arriving[:end]
            found.append(self._unpacked(data, limit) if compressed else data)
        return found

    def _unpacked(self, data: bytes, limit: int) -> bytes:
        encoding = self.text(b"grpc-encoding")
        if encoding not in ("gzip", "deflate"):
            raise GrpcError(
                UNIMPLEMENTED, f"grpc-encoding is {encoding[:40]!r}; use gzip or identity"
            )
        try:
            if encoding == "deflate":
                found = zlib.decompressobj().decompress(data, limit + 1)
            else:
                found = gzip.GzipFile(fileobj=io.BytesIO(data)).read(limit + 1)
        except (OSError, EOFError, zlib.error) as wrong:
            raise GrpcError(INTERNAL, f"the message can't be unpacked: {wrong}") from None
        if len(found) > limit:
            raise GrpcError(
                RESOURCE_EXHAUSTED,
                f"the message unpacks to more than {limit} bytes, which is the limit "
                "(grpcMaxInboundMessageSize); send smaller ones",
            )
        return found
