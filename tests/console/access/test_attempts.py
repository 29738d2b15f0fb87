"""How often logins may fail, by a clock that the tests move."""

import pytest
from aerobee.console.access.attempts import (
    KEYS_MAX,
    PER_ADDRESS,
    PER_NAME,
    SECONDS,
    Attempts,
    TooMany,
)

from ...clocks import Seconds


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def attempts(clock: Seconds) -> Attempts:
    return Attempts(clock)


def test_an_address_may_fail_so_often_and_then_waits(clock: Seconds, attempts: Attempts) -> None:
    for n in range(PER_ADDRESS):
        attempts.begin("10.0.0.1", f"name-{n}")
    with pytest.raises(
        TooMany, match=r"10 logins .* which is the limit; wait 10 minutes"
    ) as raised:
        attempts.begin("10.0.0.1", "another")
    assert raised.value.wait_s == SECONDS
    attempts.begin("10.0.0.2", "another")
    clock.now += SECONDS + 1
    attempts.begin("10.0.0.1", "another")


def test_a_name_may_fail_so_often_from_all_addresses_together(attempts: Attempts) -> None:
    for n in range(PER_NAME):
        attempts.begin(f"10.0.0.{n}", "ann")
    with pytest.raises(TooMany, match="20 logins"):
        attempts.begin("10.0.1.1", "ann")
    attempts.begin("10.0.1.1", "bob")


def test_a_login_that_succeeds_does_not_count(attempts: Attempts) -> None:
    for _ in range(10 * PER_NAME):
        attempts.begin("10.0.0.1", "ann")
        attempts.succeeded("10.0.0.1", "ann")


def test_all_addresses_of_one_ipv6_network_count_as_one(attempts: Attempts) -> None:
    for n in range(PER_ADDRESS):
        attempts.begin(f"2001:db8::{n:x}", f"name-{n}")
    with pytest.raises(TooMany):
        attempts.begin("2001:db8::ffff:1", "another")
    attempts.begin("2001:db8:0:1::1", "another")


def test_the_table_has_a_limit(attempts: Attempts) -> None:
    for n in range(KEYS_MAX):
        attempts.begin(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", f"name-{n}")
    assert len(attempts._failed) == KEYS_MAX
