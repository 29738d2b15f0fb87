"""A pair, for tests that run in virtual time."""

import os
from collections.abc import Iterator

import pytest
from aerobee.broker import server
from aerobee.broker.acting import escape, returning
from aerobee.broker.replication import slave as ha_slave

from ...simulation.machines import simulated
from ..conftest import Config
from .pairs import Pair

SEED = int(os.environ.get("AEROBEE_SIMULATIONS_SEED", "1"))  # of the order of events


@pytest.fixture
def pair(config: Config, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(ha_slave, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(escape, "PAUSE_SECONDS_MAX", 0.1)
    monkeypatch.setattr(returning, "RETRY_SECONDS", 0.02)
    with simulated(SEED) as machines:
        monkeypatch.setattr(server, "wall_clock_ms", machines.now_ms)
        yield Pair(config, machines)
