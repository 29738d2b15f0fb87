"""The tests of sends on the fast path, which single messages take here as well."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")

from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.protocol.aio import chunks, connection

from ..pull.test_query_handlers import *  # noqa: F403
from ..scheduled.test_delays_and_retries import *  # noqa: F403
from ..scheduled.test_timers import *  # noqa: F403
from ..test_overload import *  # noqa: F403
from .test_handlers import *  # noqa: F403


@pytest.fixture
async def start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[[BrokerConfig], Awaitable[Broker]]]:
    """The fixture of this name in `conftest.py`, with the fast path."""
    monkeypatch.setattr(chunks, "CHUNKS_MIN", 0)
    monkeypatch.setattr(connection, "READER_CONNECTIONS_MIN", 0)
    running: list[Broker] = []

    async def make(config: BrokerConfig) -> Broker:
        broker = Broker(config)
        await broker.start()
        running.append(broker)
        if not config.is_slave:
            await broker.engine.load()
        return broker

    yield make
    for broker in running:
        await broker.stop()
