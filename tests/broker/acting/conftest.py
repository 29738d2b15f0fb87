"""A pair, for tests that run in virtual time."""

from collections.abc import AsyncIterator

import pytest
from aerobee.broker.acting import remote_delivery, returning
from aerobee.broker.replication import slave as ha_slave

from ..conftest import Config
from .pairs import Pair


@pytest.fixture
async def pair(config: Config, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    monkeypatch.setattr(ha_slave, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(remote_delivery, "PAUSE_SECONDS_MAX", 0.1)
    monkeypatch.setattr(returning, "RETRY_SECONDS", 0.02)
    made = Pair(config)
    await made.start()
    yield made
    await made.stop()
