"""How much background work a turn may hold."""

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


class Served:
    """As much of a Turn as a Throttle looks at."""

    served = 0


@pytest.mark.requirement("Delays, timers, retries: Many that are due leave in short steps")
def test_steps_are_short_until_nobody_was_served_for_a_while() -> None:
    turn = Served()
    throttle = Throttle(turn)  # type: ignore[arg-type]
    assert [throttle.quota() for _ in range(QUIET_STEPS + 2)] == [FEW] * QUIET_STEPS + [MANY] * 2


def test_one_request_makes_them_short_again_for_as_long() -> None:
    turn = Served()
    throttle = Throttle(turn)  # type: ignore[arg-type]
    while throttle.quota() != MANY:
        pass
    turn.served += 1
    assert [throttle.quota() for _ in range(QUIET_STEPS + 2)] == [FEW] * (QUIET_STEPS + 1) + [MANY]


@pytest.mark.parametrize(
    ("served", "share"), [(1, FEW), (FEW, FEW), (FEW + 1, FEW + 1), (SOME, SOME), (500, SOME)]
)
def test_as_many_messages_move_as_requests_were_served_within_limits(
    served: int, share: int
) -> None:
    turn = Served()
    throttle = Throttle(turn)  # type: ignore[arg-type]
    turn.served += served
    assert [throttle.quota(), throttle.quota()] == [share, FEW]


@pytest.mark.requirement("Transactions, operation, overload: A burst does not hold up others")
def test_a_sender_that_waits_for_each_answer_never_meets_a_long_step() -> None:
    """Between its requests some turns pass in which nobody is served."""
    turn = Served()
    throttle = Throttle(turn)  # type: ignore[arg-type]
    shares = []
    for _ in range(50):
        turn.served += 1
        shares += [throttle.quota() for _ in range(QUIET_STEPS)]
    assert set(shares) == {FEW}


def test_while_somebody_is_served_every_other_turn_is_without_a_step() -> None:
    turn = Served()
    throttle = Throttle(turn)  # type: ignore[arg-type]
    turns = []
    for _ in range(QUIET_STEPS + 1):
        throttle.quota()
        turns.append(throttle.ticks)
    turn.served += 1
    throttle.quota()
    assert [*turns, throttle.ticks] == [TICKS_FEW] * QUIET_STEPS + [TICKS_MANY, TICKS_FEW]
