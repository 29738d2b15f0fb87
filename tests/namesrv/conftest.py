"""A small client that shows answers as they are on the wire, and ways to start name servers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.protocol.codec.frame import FrameDecoder, encode_request
from aerobee.protocol.command import FLAG_RESPONSE

from ..waiting import LONG


@dataclass(frozen=True)
class Answer:
    """One answer; `ext` is None when the header has no custom fields at all."""

    code: int
    remark: str | None
    ext: dict[str, str] | None
    body: bytes


class Asker:
    """One connection to a name server, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder()

    async def ask(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        version: int = 479,
        codec: int = 0,
    ) -> Answer:
        self._writer.write(encode_request(code, 7, ext, body, version=version, codec=codec))
        while True:
            data = await asyncio.wait_for(self._reader.read(1 << 16), LONG)
            assert data, "the name server closed the connection"
            for command in self._decoder.feed(data):
                assert command.opaque == 7
                assert command.flag & FLAG_RESPONSE
                found: Any = command.ext
                if isinstance(found, msgspec.Raw):
                    found = msgspec.json.decode(found)
                return Answer(command.code, command.remark, found, command.body or b"")

    async def is_closed_by_peer(self) -> bool:
        return await asyncio.wait_for(self._reader.read(1), LONG) == b""

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


Connect = Callable[[NameServer], Awaitable[Asker]]
Start = Callable[..., Awaitable[NameServer]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connects to a name server; the connection closes after the test."""
    askers: list[Asker] = []

    async def to(server: NameServer) -> Asker:
        asker = Asker(*await asyncio.open_connection("127.0.0.1", server.port))
        askers.append(asker)
        return asker

    yield to
    for asker in askers:
        await asker.close()


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts a name server with these settings and clock; stopped after the test."""
    servers: list[NameServer] = []

    async def with_settings(clock: Callable[[], int] | None = None, **settings: Any) -> NameServer:
        config = NamesrvConfig(listen_port=0, **settings)
        server = NameServer(config) if clock is None else NameServer(config, clock)
        await server.start()
        servers.append(server)
        return server

    yield with_settings
    for server in servers:
        await server.stop()


@pytest.fixture
async def asker(namesrv: NameServer, connect: Connect) -> Asker:
    """A connection to a name server with default settings."""
    return await connect(namesrv)
