"""Latency fault tolerance: how long a slow or failed broker is avoided, and the fallback."""

import pytest
from aerobee.client.base.latency import BROKERS_MAX, LatencyFaults, left_alone_ms
from aerobee.client.cluster.route import MessageQueue
from aerobee.client.producer.select_queue import RoundRobin

QUEUES = [MessageQueue("t", broker, at) for broker in "abc" for at in range(2)]


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def chosen(faults: LatencyFaults, avoid: str | None = None) -> set[str]:
    """The brokers that are chosen in many turns."""
    turn = RoundRobin()
    return {turn.next(QUEUES, avoid, faults).broker_name for _ in range(60)}


@pytest.mark.requirement("Sending: Least latency: the table, ties in turn, all left alone")
@pytest.mark.parametrize(
    ("latency_ms", "alone_ms"),
    [
        (0, 0), (49, 0), (50, 0), (100, 0), (549, 0), (550, 2_000), (1_799, 2_000),
        (1_800, 5_000), (3_000, 6_000), (4_999, 6_000), (5_000, 10_000), (10_000, 10_000),
        (15_000, 30_000), (60_000, 30_000),
    ],
)  # fmt: skip
def test_the_table_is_that_of_java(latency_ms: int, alone_ms: int) -> None:
    assert left_alone_ms(latency_ms) == alone_ms


@pytest.mark.requirement("Sending: Least latency: the table, ties in turn, all left alone")
def test_a_slow_broker_is_left_alone_until_its_time_is_over() -> None:
    clock = Clock()
    faults = LatencyFaults(clock)
    faults.done("a", 2_000)
    assert chosen(faults) == {"b", "c"}
    clock.now_s += 4.999
    assert chosen(faults) == {"b", "c"}
    clock.now_s += 0.001
    assert chosen(faults) == {"a", "b", "c"}


def test_a_quick_answer_does_not_shorten_the_time() -> None:
    faults = LatencyFaults(Clock())
    faults.done("a", 16_000)
    faults.done("a", 1)
    assert chosen(faults) == {"b", "c"}


def test_a_failed_send_counts_as_ten_seconds() -> None:
    clock = Clock()
    faults = LatencyFaults(clock)
    faults.failed("a", answered=False)
    clock.now_s += 9.999
    assert chosen(faults) == {"b", "c"}
    clock.now_s += 0.001
    assert chosen(faults) == {"a", "b", "c"}


@pytest.mark.requirement("Sending: Least latency: the table, ties in turn, all left alone")
def test_when_all_are_left_alone_the_one_that_refused_comes_last() -> None:
    faults = LatencyFaults(Clock())
    faults.failed("a", answered=True)
    faults.failed("b", answered=False)
    faults.failed("c", answered=False)
    assert chosen(faults) == {"b", "c"}
    assert chosen(faults, avoid="b") == {"c"}


def test_when_nothing_fits_there_is_a_queue_all_the_same() -> None:
    faults = LatencyFaults(Clock())
    for broker in "abc":
        faults.failed(broker, answered=True)
    assert chosen(faults, avoid="a") == {"b", "c"}
    faults.done("b", 1)
    assert chosen(faults) == {"b"}


def test_the_remembered_brokers_have_a_limit() -> None:
    faults = LatencyFaults(Clock())
    faults.failed("first", answered=True)
    for number in range(BROKERS_MAX):
        faults.failed(f"b{number}", answered=False)
    assert faults.is_available("first")
    assert not faults.is_available(f"b{BROKERS_MAX - 1}")
