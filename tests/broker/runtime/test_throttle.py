"""The quota of background work per loop iteration."""

from typing import cast

import pytest
from aerobee.broker.runtime.throttle import (
    FEW,
    MANY,
    QUIET_STEPS,
    SOME,
    TICKS_FEW,
    TICKS_MANY,
    Throttle,
)
from aerobee.protocol.aio.scheduler import Scheduler


class Served:
    """Stands in for the scheduler: the counter that a Throttle reads."""

    served = 0


def test_steps_are_short_until_the_broker_has_been_idle_for_a_while() -> None:
    scheduler = Served()
    throttle = Throttle(cast(Scheduler, scheduler))
    assert [throttle.quota() for _ in range(QUIET_STEPS + 2)] == [FEW] * QUIET_STEPS + [MANY] * 2


def test_one_request_makes_steps_short_again_for_the_same_time() -> None:
    scheduler = Served()
    throttle = Throttle(cast(Scheduler, scheduler))
    while throttle.quota() != MANY:
        pass
    scheduler.served += 1
    assert [throttle.quota() for _ in range(QUIET_STEPS + 2)] == [FEW] * (QUIET_STEPS + 1) + [MANY]


@pytest.mark.parametrize(
    ("served", "share"), [(1, FEW), (FEW, FEW), (FEW + 1, FEW + 1), (SOME, SOME), (500, SOME)]
)
def test_the_quota_equals_the_requests_served_within_limits(served: int, share: int) -> None:
    scheduler = Served()
    throttle = Throttle(cast(Scheduler, scheduler))
    scheduler.served += served
    assert [throttle.quota(), throttle.quota()] == [share, FEW]


def test_a_sender_that_waits_for_each_response_never_meets_a_long_step() -> None:
    """Between its requests some loop iterations pass without a request."""
    scheduler = Served()
    throttle = Throttle(cast(Scheduler, scheduler))
    shares = []
    for _ in range(50):
        scheduler.served += 1
        shares += [throttle.quota() for _ in range(QUIET_STEPS)]
    assert set(shares) == {FEW}


def test_under_load_every_other_tick_has_no_background_step() -> None:
    scheduler = Served()
    throttle = Throttle(cast(Scheduler, scheduler))
    ticks = []
    for _ in range(QUIET_STEPS + 1):
        throttle.quota()
        ticks.append(throttle.ticks)
    scheduler.served += 1
    throttle.quota()
    assert [*ticks, throttle.ticks] == [TICKS_FEW] * QUIET_STEPS + [TICKS_MANY, TICKS_FEW]
