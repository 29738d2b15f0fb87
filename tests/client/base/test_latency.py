"""Latency fault tolerance: how long a slow or failed broker is avoided, and the fallback."""

import pytest
from aerobee.client.base.latency import BROKERS_MAX, LatencyFaults, left_alone_ms
from aerobee.client.cluster.route import MessageQueue
from aerobee.client.producer.select_queue import RoundRobin

from ...clocks import Seconds

QUEUES = [MessageQueue("t", broker, at) for broker in "abc" for at in range(2)]


def chosen(faults: LatencyFaults, avoid: str | None = None) -> set[str]:
    """The brokers that are chosen in many selections."""
    selector = RoundRobin()
    return {selector.next(QUEUES, avoid, faults).broker_name for _ in range(60)}


@pytest.mark.parametrize(
    ("latency_ms", "alone_ms"),
    [
        (0, 0),
        (49, 0),
        (50, 0),
        (100, 0),
        (549, 0),
        (550, 2_000),
        (1_799, 2_000),
        (1_800, 5_000),
        (3_000, 6_000),
        (4_999, 6_000),
        (5_000, 10_000),
        (10_000, 10_000),
        (15_000, 30_000),
        (60_000, 30_000),
    ],
)
def test_the_table_of_avoidance_times_equals_javas(latency_ms: int, alone_ms: int) -> None:
    assert left_alone_ms(latency_ms) == alone_ms


def test_a_slow_broker_is_avoided_for_its_time() -> None:
    clock = Seconds()
    faults = LatencyFaults(clock)
    faults.done("a", 2_000)
    assert chosen(faults) == {"b", "c"}
    clock.now += 4.999
    assert chosen(faults) == {"b", "c"}
    clock.now += 0.001
    assert chosen(faults) == {"a", "b", "c"}


def test_a_fast_response_does_not_shorten_the_time() -> None:
    faults = LatencyFaults(Seconds())
    faults.done("a", 16_000)
    faults.done("a", 1)
    assert chosen(faults) == {"b", "c"}


def test_a_failed_send_counts_as_ten_seconds() -> None:
    clock = Seconds()
    faults = LatencyFaults(clock)
    faults.failed("a", answered=False)
    clock.now += 9.999
    assert chosen(faults) == {"b", "c"}
    clock.now += 0.001
    assert chosen(faults) == {"a", "b", "c"}


def test_if_all_brokers_are_avoided_the_one_that_refused_is_the_last_choice() -> None:
    faults = LatencyFaults(Seconds())
    faults.failed("a", answered=True)
    faults.failed("b", answered=False)
    faults.failed("c", answered=False)
    assert chosen(faults) == {"b", "c"}
    assert chosen(faults, avoid="b") == {"c"}


def test_a_queue_is_chosen_even_if_no_broker_is_suitable() -> None:
    faults = LatencyFaults(Seconds())
    for broker in "abc":
        faults.failed(broker, answered=True)
    assert chosen(faults, avoid="a") == {"b", "c"}
    faults.done("b", 1)
    assert chosen(faults) == {"b"}


def test_the_number_of_remembered_brokers_is_limited() -> None:
    faults = LatencyFaults(Seconds())
    faults.failed("first", answered=True)
    for number in range(BROKERS_MAX):
        faults.failed(f"b{number}", answered=False)
    assert faults.is_available("first")
    assert not faults.is_available(f"b{BROKERS_MAX - 1}")
