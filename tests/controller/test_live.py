"""Which brokers are alive, by a clock that the test moves."""

import pytest
from aerobee.controller import live as module
from aerobee.controller.live import CLOSED_MS, TIMEOUT_MS, LiveBrokers, Position

from ..clocks import Clock

KEY = ("c", "a", 1)
AT_START = Position(1, 100, 0)


def beat(live: LiveBrokers, position: Position = AT_START, timeout_ms: int | None = None) -> bool:
    return live.heard(KEY, "h:1", "connection", position, timeout_ms)


def test_a_broker_is_alive_for_its_own_timeout() -> None:
    clock = Clock()
    live = LiveBrokers(clock)
    beat(live, timeout_ms=3_000)
    clock.ms += 3_000
    assert live.is_alive(KEY)
    clock.ms += 1
    assert live.is_dead(KEY)
    beat(live)
    assert live.is_alive(KEY)


def test_a_broker_is_dead_a_second_after_its_connection_closed_unless_it_returns() -> None:
    clock = Clock()
    live = LiveBrokers(clock)
    beat(live)
    assert live.lost("another") == []
    assert live.lost("connection") == [KEY]
    clock.ms += CLOSED_MS - 1
    assert live.is_alive(KEY)
    beat(live)
    clock.ms += CLOSED_MS
    assert live.is_alive(KEY)
    live.lost("connection")
    clock.ms += CLOSED_MS
    assert live.is_dead(KEY)


def test_a_new_leader_declares_no_silent_broker_dead_before_the_timeout() -> None:
    clock = Clock()
    live = LiveBrokers(clock)
    clock.ms += TIMEOUT_MS + 1
    assert live.is_dead(KEY)
    live.begin()
    assert not live.is_dead(KEY)
    assert not live.is_alive(KEY)


def test_a_late_heartbeat_does_not_lower_the_offset() -> None:
    live = LiveBrokers(Clock())
    beat(live, Position(2, 500, 7))
    beat(live, Position(2, 400, 3))
    assert live.position(KEY) == Position(2, 500, 3)
    beat(live, Position(1, 900, 3))
    assert live.position(KEY) == Position(2, 500, 3)
    beat(live, Position(3, 0, 3))
    assert live.position(KEY) == Position(3, 0, 3)


def test_what_a_broker_that_comes_back_has_lost_counts() -> None:
    live = LiveBrokers(Clock())
    beat(live, Position(2, 500, 0))
    live.heard(KEY, "h:1", "another connection", Position(2, 400, 0), None)
    assert live.position(KEY) == Position(2, 400, 0)


def test_the_address_is_that_of_a_living_broker() -> None:
    clock = Clock()
    live = LiveBrokers(clock)
    assert live.address(KEY) is None
    beat(live, timeout_ms=3_000)
    assert live.address(KEY) == "h:1"
    clock.ms += 3_001
    assert live.address(KEY) is None


def test_the_table_has_a_limit_and_drops_dead_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BROKERS_MAX", 1)
    clock = Clock()
    live = LiveBrokers(clock)
    assert beat(live)
    assert not live.heard(("c", "b", 1), "h:2", "other", AT_START, None)
    clock.ms += module.TIMEOUT_MS_MAX + 1
    live.forget_dead()
    assert len(live) == 0
    assert list(live.alive()) == []
