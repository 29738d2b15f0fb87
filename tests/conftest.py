"""Daemons for tests: each listens on a free port of the loopback and is stopped afterwards."""

from collections.abc import AsyncIterator

import pytest
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer


@pytest.fixture
async def namesrv() -> AsyncIterator[NameServer]:
    """A running name server with default settings."""
    server = NameServer(NamesrvConfig(listen_port=0))
    await server.start()
    yield server
    await server.stop()
