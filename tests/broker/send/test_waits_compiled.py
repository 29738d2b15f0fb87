"""The tests of access control, of SYNC_FLUSH and of slaves that are waited for once more, with the
compiled engine."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")

from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.protocol.aio import chunks, connection

from ..access.test_access import *  # noqa: F403
from ..conftest import Caller, Clock
from ..replication.test_master import *  # noqa: F403
from ..runtime.test_syncer import *  # noqa: F403
from .test_sends_compiled import start  # noqa: F401


@pytest.fixture
async def run(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """As the fixture of this name in `conftest.py`, with the compiled engine."""
    monkeypatch.setattr(chunks, "CHUNKS_MIN", 0)
    monkeypatch.setattr(connection, "READER_CONNECTIONS_MIN", 0)
    running: list[tuple[Broker, Caller]] = []

    async def make(config: BrokerConfig) -> tuple[Broker, Caller]:
        broker = Broker(config, now_ms=clock)
        await broker.start()
        running.append((broker, Caller(broker)))
        if not config.is_slave:
            await broker.engine.load()
        return running[-1]

    yield make
    for broker, caller in running:
        await caller.peers.close()
        await broker.stop()
