"""A client of HTTP/2 made of h2's client side and an in-memory transport: its bytes are ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import h2.config
import h2.connection
import h2.events
from aerobee.proxy.http2 import connection as server_side
from aerobee.proxy.http2 import listener as listening
from aerobee.proxy.http2.balance import Worker
from aerobee.proxy.http2.call import BIDIRECTIONAL, PREFIX, SERVER_STREAM, UNARY, Call, Method

from ...waiting import LONG

SECONDS = LONG
MESSAGE_MAX = 1 << 20


class Echo:
    """A message that is its bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @classmethod
    def parse(cls, data: bytes) -> Echo:
        if data == b"unparsable":
            raise ValueError("no message")
        return cls(data)

    def SerializeToString(self) -> bytes:
        return self.data


class Service:
    """Methods for the tests, and what became of their calls."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.called = asyncio.Event()
        self.written = 0
        self.received: asyncio.Queue[bool] = asyncio.Queue()  # what `ask` learnt of its answers

    def methods(self) -> dict[bytes, Method]:
        return {
            b"/t/echo": Method(UNARY, Echo.parse, self.echo),
            b"/t/hang": Method(UNARY, Echo.parse, self.hang),
            b"/t/fail": Method(UNARY, Echo.parse, self.fail),
            b"/t/flow": Method(SERVER_STREAM, Echo.parse, self.flow),
            b"/t/ask": Method(SERVER_STREAM, Echo.parse, self.ask),
            b"/t/wait": Method(SERVER_STREAM, Echo.parse, self.hang),
            b"/t/talk": Method(BIDIRECTIONAL, Echo.parse, self.talk),
        }

    async def echo(self, call: Call, request: Echo) -> Echo:
        return request

    async def hang(self, call: Call, request: Echo) -> Echo:
        self.called.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return request

    async def fail(self, call: Call, request: Echo) -> Echo:
        raise RuntimeError("on purpose")

    async def flow(self, call: Call, request: Echo) -> None:
        """As many megabytes as the request says."""
        for _ in range(int(request.data)):
            await call.write(Echo(bytes(1 << 20)))
            self.written += 1

    async def ask(self, call: Call, request: Echo) -> None:
        """Echo, and learn whether the client got it."""
        call.put(request)
        call.when_received(self.received.put_nowait)

    async def talk(self, call: Call) -> None:
        while (message := await call.read()) is not None:
            await call.write(message)


class Peer:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.events: list[Any] = []
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    def begin(self, path: str = "/t/echo", end: bool = False, **more: str) -> int:
        """Headers of a call; its stream id."""
        stream: int = self.h2.get_next_available_stream_id()
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "proxy:8081",
            "te": "trailers",
            "content-type": "application/grpc",
        }
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        self.h2.send_headers(stream, list(headers.items()), end_stream=end)
        self.flush()
        return stream

    def say(self, stream: int, data: bytes, *, end: bool = True, flag: int = 0) -> None:
        """A message of a call."""
        self.raw(stream, PREFIX.pack(flag, len(data)) + data, end=end)

    def raw(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Bytes of a call."""
        step = 16_384
        for at in range(0, len(data), step):
            self.h2.send_data(stream, data[at : at + step])
        if end:
            self.h2.end_stream(stream)
        self.flush()

    async def until(self, kind: Any, stream: int | None = None) -> Any:
        """The next event of this kind; ConnectionError at the end of the connection."""
        async with asyncio.timeout(SECONDS):
            while True:
                for event in self.events:
                    if isinstance(event, kind) and stream in (None, getattr(event, "stream_id", 0)):
                        self.events.remove(event)
                        return event
                data = await self.reader.read(1 << 16)
                if not data:
                    raise ConnectionError("the server closed the connection")
                self.events += self.h2.receive_data(data)
                self.flush()

    async def answer(self, stream: int) -> tuple[bytes, int, str]:
        """Body, grpc-status and grpc-message of a call that has ended."""
        await self.until(h2.events.StreamEnded, stream)
        body, status, message = b"", -1, ""
        for event in list(self.events):
            if getattr(event, "stream_id", None) != stream:
                continue
            self.events.remove(event)
            if isinstance(event, h2.events.DataReceived):
                body += event.data
            headers = dict(getattr(event, "headers", None) or ())
            if "grpc-status" in headers:
                status, message = int(headers["grpc-status"]), headers.get("grpc-message", "")
        return body, status, message

    async def ended(self) -> bytes:
        """All bytes until the server closes."""
        async with asyncio.timeout(SECONDS):
            return await self.reader.read(-1)


class Host:
    """A listener and what connects to it."""

    def __init__(
        self, listener: listening.Listener, shared: server_side.Shared, service: Service
    ) -> None:
        self.listener, self.shared, self.service = listener, shared, service
        self._writers: list[asyncio.StreamWriter] = []

    async def socket(self, **more: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port, **more)
        self._writers.append(writer)
        return reader, writer

    async def peer(self, **more: Any) -> Peer:
        return Peer(*await self.socket(**more))

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
        await self.listener.stop()


@asynccontextmanager
async def host(
    mode: Any = "permissive",
    tls: listening.GrpcTls | None = None,
    worker: Worker | None = None,
    **more: Any,
) -> AsyncIterator[Host]:
    """A listener with the methods of `Service`."""
    service = Service()
    shared = server_side.Shared(service.methods(), MESSAGE_MAX)
    more.setdefault("grace_seconds", 0.2)
    listener = listening.Listener(shared, tls or listening.GrpcTls(mode), **more)
    await listener.start("127.0.0.1", 0, worker)
    found = Host(listener, shared, service)
    try:
        yield found
    finally:
        await found.close()
