"""Which locks of the master before a new master takes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.broker.controlled import lock_handover
from aerobee.broker.controlled.election import Election
from aerobee.broker.controlled.lock_handover import LockHandover
from aerobee.broker.groups import queue_locks
from aerobee.broker.groups.queue_locks import CLIENT_LOCK_MS, LeftLocks, LockTable
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.aio.server import Server

IN_VIRTUAL_TIME = True

NAME = "broker-a"
MS = 1_000_000


class Next:
    """A member that is elected, with the locks that it has taken."""

    def __init__(self, folder: Path, peers: Peers) -> None:
        self.ms = MS
        self.left = LeftLocks(folder / "queueLocks.json")
        self.taken: list[LockTable] = []
        self.handover = LockHandover(NAME, self.left, peers, lambda: self.ms)

    def become(self, before: int, now: int) -> None:
        """Become the master of epoch `now`, after a role in epoch `before`."""
        self.handover.switch(Election(2, before, 1, "a:1"), Election(2, now, 2, "b:1"))
        self.handover.ask(self.taken.append)

    @property
    def epochs(self) -> list[int]:
        return [one.epoch for one in self.taken]


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    made = Peers()
    yield made
    await made.close()


@pytest.fixture
def member(tmp_path: Path, peers: Peers) -> Next:
    return Next(tmp_path, peers)


def locks(epoch: int, name: str = NAME, at_ms: int = 5) -> LockTable:
    return LockTable(name, epoch, at_ms, [("g", "T", NAME, 0, "c1", 100)])


async def test_locks_are_taken_whether_they_come_before_the_role_or_after(member: Next) -> None:
    member.become(3, 4)
    member.handover.come(locks(3))
    member.handover.come(locks(4))
    member.become(4, 5)
    assert member.epochs == [3, 4]
    assert {one.at_ms for one in member.taken} == {MS}  # not by the clock of another broker


async def test_locks_are_taken_once(member: Next) -> None:
    member.handover.come(locks(3))
    member.become(3, 4)
    member.become(3, 4)  # the broker of this role is made again
    assert member.epochs == [3]


@pytest.mark.parametrize(
    ("before", "now", "epoch", "name"),
    [
        (3, 5, 3, NAME),  # there may have been a master of epoch 4
        (4, 5, 3, NAME),  # these are older than what that one gave
        (0, 4, 3, NAME),  # before its start this member may have given locks in epoch 4
        (3, 4, 3, "broker-b"),
    ],
)
async def test_other_locks_are_not_taken(
    member: Next, before: int, now: int, epoch: int, name: str
) -> None:
    member.handover.come(locks(epoch, name))
    member.become(before, now)
    member.handover.come(locks(epoch, name))
    assert member.taken == []


@pytest.mark.parametrize(
    ("now", "age_ms", "is_taken"),
    [
        (3, 10 * CLIENT_LOCK_MS, True),  # no master was elected since
        (4, 10 * CLIENT_LOCK_MS, True),  # this member was elected next
        (5, CLIENT_LOCK_MS - 1, True),  # another new master would wait longer than that
        (5, CLIENT_LOCK_MS, False),
        (5, -1, False),  # by a clock that went back
        (2, 0, True),
    ],
)
async def test_locks_of_the_last_run_are_taken_while_no_other_can_have_given_any(
    member: Next, now: int, age_ms: int, *, is_taken: bool
) -> None:
    member.left.leave(locks(3, at_ms=MS - age_ms))
    member.handover.load()
    member.become(0, now)
    assert bool(member.taken) == is_taken
    assert member.left.take() is None


async def test_locks_of_the_last_run_are_not_for_a_later_role(member: Next) -> None:
    member.left.leave(locks(3, at_ms=MS))
    member.handover.load()
    member.handover.switch(Election(2), Election(2, 4, 1, "a:1"))
    member.become(4, 5)
    assert member.taken == []


async def test_locks_are_sent_until_the_next_master_takes_them(
    member: Next, peers: Peers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    port = await server.listen("127.0.0.1", 0, {})
    await member.handover.send(f"127.0.0.1:{port}", locks(3))
    assert "has not taken the locks of queues (it answers 3" in caplog.text
    await server.stop()
    monkeypatch.setattr(lock_handover, "SEND_SECONDS", 0.0)
    await member.handover.send(f"127.0.0.1:{port}", locks(3))
    assert caplog.text.count("has not taken the locks of queues") == 2


async def test_too_many_locks_are_not_sent(
    member: Next, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(queue_locks, "BODY_BYTES_MAX", 10)
    await member.handover.send("127.0.0.1:1", locks(3))
    assert "1 locks are not handed over" in caplog.text
    assert "the limit is 10" in caplog.text
