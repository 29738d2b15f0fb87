"""The timers of a slave: nothing is delivered there, and a promoted one goes on where it was."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from aerobee.broker.replication.following_timers import FollowingWork
from aerobee.broker.scheduled.timer_parts import open_timer_parts
from aerobee.broker.scheduled.timers import Timers
from aerobee.store.engine.store import MessageStore

from ..parts import HOST
from ..scheduled.test_timer_state import START_MS, Rig, damage

SECOND = 1_000


class Slave:
    """A store that follows that of a rig, and its timers."""

    def __init__(self, root: Path, master: Rig) -> None:
        self.master = master
        config = type(master.config)(
            store_path_root_dir=str(root),
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_timer_log=4_096,
            max_hash_slot_num=100,
            max_index_num=400,
        )
        self.store = MessageStore(root, config.store_settings(), HOST, master.clock)
        self.store.open()
        self.store.follower.follow("a slave")
        parts = open_timer_parts(config, self.store, master.clock, keeps_counts=False)
        assert parts is not None
        self.following = FollowingWork(parts)
        self.timers = Timers(parts, self.following)

    def take_log(self) -> None:
        """Everything that the master has in its log."""
        store = self.master.store
        while self.store.log_end < store.log_end:
            self.store.follower.append_raw(
                self.store.log_end, bytes(store.raw(self.store.log_end, 1_000))
            )
            self.store.follower.derive_new()

    def take_progress(self) -> None:
        """Take over the progress of the master's timers, as the master would answer now."""
        self.master.sync()
        check = self.master.timers.state.check
        self.following.follow(check.read_ms, check.queue_offset)
        self.work()

    def work(self) -> None:
        while self.timers.step(self.master.now_ms):
            pass

    def close(self) -> None:
        self.timers.state.close()
        self.store.close()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "master")
    yield rig
    rig.close()


@pytest.fixture
def slave(tmp_path: Path, master: Rig) -> Slave:
    return Slave(tmp_path / "slave", master)


def promoted(slave: Slave) -> Rig:
    """The slave's folder as a master's."""
    root = slave.store.root
    slave.close()
    assert damage(root) == []
    return Rig(root, slave.master.now_ms)


def test_a_promoted_slave_delivers_what_the_old_master_had_not(master: Rig, slave: Slave) -> None:
    for number, wait_s in enumerate((1, 5, 60)):
        master.send(b"%d" % number, wait_s * SECOND)
    master.at(START_MS + 2 * SECOND + 500)
    assert master.bodies() == [b"0"]
    slave.take_log()
    slave.take_progress()
    assert slave.timers.state.waiting == master.timers.state.waiting == 2
    now = promoted(slave)
    try:
        assert now.bodies() == [b"0"]  # the delivery that came with the log
        assert now.at(START_MS + 61 * SECOND).bodies() == [b"0", b"1", b"2"]
    finally:
        now.close()


def test_a_slave_puts_nothing_into_its_wheel_that_is_not_in_the_masters(
    master: Rig, slave: Slave
) -> None:
    master.send(b"a", 5 * SECOND)
    master.at(START_MS + SECOND)
    slave.take_log()
    slave.take_progress()
    master.send(b"b", 5 * SECOND)
    slave.take_log()
    slave.work()
    assert (slave.timers.state.queue_offset, slave.timers.state.waiting) == (1, 1)
    now = promoted(slave)
    try:
        assert now.at(START_MS + 10 * SECOND).bodies() == [b"a", b"b"]
    finally:
        now.close()


def test_before_it_knows_of_its_master_a_slave_does_nothing(master: Rig, slave: Slave) -> None:
    master.send(b"a", SECOND)
    slave.take_log()
    slave.work()
    assert slave.timers.state.queue_offset == 0
    slave.close()


def test_a_master_that_is_behind_sets_its_slave_back(master: Rig, slave: Slave) -> None:
    master.send(b"late", SECOND)
    master.at(START_MS)
    master.sync()
    master.now_ms += 10 * SECOND  # and it delivers nothing meanwhile
    slave.timers.state.read_ms = master.now_ms  # as a new one begins
    slave.take_log()
    slave.take_progress()
    assert slave.timers.state.read_ms <= START_MS + SECOND
    now = promoted(slave)
    try:
        assert now.at(master.now_ms).bodies() == [b"late"]
    finally:
        now.close()


def test_what_a_master_delivers_goes_out_of_the_wheel_of_its_slave(
    master: Rig, slave: Slave
) -> None:
    for number in range(200):
        master.send(b"%d" % number, (1 + number) * SECOND)
    master.at(START_MS + SECOND)
    slave.take_log()
    slave.take_progress()
    assert slave.timers.state.waiting == master.timers.state.waiting > 190
    master.at(START_MS + 190 * SECOND)
    slave.take_log()
    slave.take_progress()
    assert slave.timers.state.waiting == master.timers.state.waiting < 20
    slave.close()
