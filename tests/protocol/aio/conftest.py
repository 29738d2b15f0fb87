"""A server whose handlers are those of a desk, and clients of it."""

from collections.abc import AsyncIterator

import pytest
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.aio.server import Server

from .support import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def server(desk: Desk) -> AsyncIterator[Server]:
    server = Server()
    server.port = await server.listen("127.0.0.1", 0, desk.rows())  # type: ignore[attr-defined]
    yield server
    await server.stop()


@pytest.fixture
async def peers(server: Server) -> AsyncIterator[Peers]:
    peers = Peers()
    yield peers
    await peers.close()
