"""Queue locks that one broker of a pair hands to the other."""

import pytest
from aerobee.broker.acting.pair_locks import PairLocks
from aerobee.broker.groups.queue_locks import CLIENT_LOCK_MS, LockTable, QueueLockGate, QueueLocks

NAME = "broker-a"
QUEUE = ("T", NAME, 0)
ALONE_MS = 21_000


class Broker:
    """One of the pair. `ms` is its steady clock, `wall_ms` the other one."""

    def __init__(self, wall_ms: int = 1_000_000) -> None:
        self.ms, self.wall_ms = 500, wall_ms
        self.locks = QueueLocks()
        gate = QueueLockGate(lambda: self.ms)
        self.pair = PairLocks(
            gate, self.locks, NAME, lambda: self.ms, lambda: self.wall_ms, ALONE_MS
        )

    def lock(self, client: str) -> bool:
        """True if this client gets the queue."""
        if not self.pair.gate.is_open:
            return False
        return bool(self.locks.lock("g", client, [QUEUE], self.wall_ms))

    def pass_by(self, ms: int) -> None:
        self.ms += ms
        self.wall_ms += ms


def handed_over(source: Broker) -> LockTable:
    source.pair.end()
    table = source.pair.give()
    assert table is not None
    return table


@pytest.fixture
def master() -> Broker:
    made = Broker()
    made.pair.begin(after_ms=0)
    assert made.lock("c1")
    return made


def test_locks_that_are_handed_over_last_as_long_as_their_clients_count_on_them(
    master: Broker,
) -> None:
    slave = Broker(wall_ms=7)  # its clock is behind
    master.pass_by(1_000)
    slave.pair.take(handed_over(master))
    assert not master.lock("c1")
    slave.pair.begin()
    slave.pass_by(CLIENT_LOCK_MS - 1_000)
    assert not slave.lock("c2")
    slave.pass_by(1)
    assert slave.lock("c2")


def test_locks_are_handed_over_once(master: Broker) -> None:
    handed_over(master)
    assert master.pair.give() is None


def test_locks_are_all_there_are_for_a_while_only(master: Broker) -> None:
    slave = Broker()
    slave.pair.take(handed_over(master))
    slave.pass_by(ALONE_MS)
    assert slave.pair.give() is None
    slave.pair.begin()
    assert not slave.lock("c1")
    slave.pass_by(CLIENT_LOCK_MS)
    assert slave.lock("c2")


def test_a_broker_that_gives_locks_again_does_not_rely_on_its_own(master: Broker) -> None:
    master.pair.end()
    master.pair.begin()  # a RocketMQ broker may have given others in between
    assert not master.lock("c1")


def test_locks_that_can_not_be_right_are_not_taken(master: Broker) -> None:
    with pytest.raises(ValueError, match="gives locks itself"):
        master.pair.take(LockTable(NAME, 0, 5, []))
    slave = Broker()
    with pytest.raises(ValueError, match="of broker broker-b, this is broker-a"):
        slave.pair.take(LockTable("broker-b", 0, 5, []))
    slave.pair.begin()
    assert not slave.lock("c1")
