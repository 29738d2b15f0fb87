"""Queues that one consumer of a group holds alone."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aerobee.broker.groups.queue_locks import CLIENT_LOCK_MS, LOCK_MS, LeftLocks, QueueLocks
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from aerobee.protocol.headers.send import SendMessage

from ..conftest import Caller, records

if TYPE_CHECKING:
    from _collections_abc import dict_items

Q0, Q1 = ("T", "broker-a", 0), ("T", "broker-a", 1)


def test_a_queue_is_held_by_one_client_of_a_group_and_by_each_group() -> None:
    locks = QueueLocks()
    assert locks.lock("g", "c1", [Q0], 0) == [Q0]
    assert locks.lock("g", "c2", [Q0, Q1], 1) == [Q1]
    assert locks.lock("h", "c2", [Q0], 1) == [Q0]


def test_a_lock_that_is_renewed_lasts_and_one_that_is_not_expires() -> None:
    locks = QueueLocks()
    locks.lock("g", "c1", [Q0], 0)
    assert locks.lock("g", "c1", [Q0], 20_000) == [Q0]
    assert locks.lock("g", "c2", [Q0], 20_000 + LOCK_MS) == []
    assert locks.is_orderly("g", 20_000 + LOCK_MS)
    assert not locks.is_orderly("g", 20_001 + LOCK_MS)
    assert locks.lock("g", "c2", [Q0], 20_001 + LOCK_MS) == [Q0]


def test_only_the_holder_gives_a_queue_back() -> None:
    locks = QueueLocks()
    locks.lock("g", "c1", [Q0], 0)
    locks.unlock("g", "c2", [Q0])
    assert locks.lock("g", "c2", [Q0], 1) == []
    locks.unlock("g", "c1", [Q0])
    assert not locks.is_orderly("g", 1)
    assert locks.lock("g", "c2", [Q0], 1) == [Q0]


def test_a_full_table_gives_no_new_locks_until_some_expire() -> None:
    locks = QueueLocks(1)
    assert locks.lock("g", "c1", [Q0, Q1], 0) == [Q0]
    assert locks.lock("g", "c1", [Q0], 1) == [Q0]
    assert locks.lock("h", "c2", [Q1], 2 + LOCK_MS) == [Q1]


def test_a_full_table_is_not_looked_through_before_something_can_expire(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scans: list[int] = []

    class Groups(dict[str, object]):
        def items(self) -> "dict_items[str, object]":
            scans.append(len(self))
            return super().items()

    locks = QueueLocks(2)
    monkeypatch.setattr(locks, "_groups", Groups())
    assert locks.lock("g", "c1", [Q0, Q1], 1_000) == [Q0, Q1]
    for now_ms in range(2_000, 2_100):
        assert locks.lock("h", "c2", [Q0, Q1], now_ms) == []
    assert len(scans) == 1
    assert "2 queues are locked, which is the limit" in caplog.text
    locks.unlock("g", "c1", [Q0])
    assert locks.lock("h", "c2", [Q0, Q1], 3_000) == [Q0]
    assert locks.lock("h", "c2", [Q1], 1_001 + LOCK_MS) == [Q1]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"group": "g" * 256}, "a name of 256 characters can't be locked"),
        ({"topic": "t" * 300}, "a name of 300 characters can't be locked"),
        ({"client": "c" * 513}, "the client's id has 513 characters, the limit is 512"),
    ],
)
async def test_names_that_nobody_has_are_not_kept(
    broker: Broker, caller: Caller, wanted: dict[str, str], reason: str
) -> None:
    names = {"group": "g", "client": "c", "topic": "T"} | wanted
    queue = MessageQueue(names["topic"], "broker-a", 0)
    body = LockBatchRequestBody(names["group"], names["client"], False, [queue]).encode()
    answer = await caller.ask(codes.LOCK_BATCH_MQ, None, body)
    assert (answer.code, answer.remark) != (codes.SUCCESS, None)
    assert reason in (answer.remark or "")
    assert not broker.locks.is_orderly(names["group"], broker.now_ms())


async def test_clients_lock_and_unlock(caller: Caller) -> None:
    queue = MessageQueue("T", "broker-a", 0)

    async def lock(client: str) -> list[MessageQueue]:
        body = LockBatchRequestBody("g", client, False, [queue, queue]).encode()  # one, a set's way
        answer = await caller.ask(codes.LOCK_BATCH_MQ, None, body)
        assert answer.code == codes.SUCCESS
        return LockBatchResponseBody.decode(answer.body or b"").lock_ok_mq_set

    assert await lock("c1") == [queue]
    assert await lock("c2") == []
    body = UnlockBatchRequestBody("g", "c1", False, [queue]).encode()
    assert (await caller.ask(codes.UNLOCK_BATCH_MQ, None, body)).code == codes.SUCCESS
    assert await lock("c2") == [queue]


async def test_a_lock_without_a_client_is_refused(caller: Caller) -> None:
    body = LockBatchRequestBody("g", "", False, []).encode()
    answer = await caller.ask(codes.LOCK_BATCH_MQ, None, body)
    assert answer.code == codes.SYSTEM_ERROR
    assert "clientId is ''" in (answer.remark or "")


async def test_an_orderly_groups_retry_is_a_dead_letter_at_once(
    broker: Broker, caller: Caller
) -> None:
    broker.locks.lock("cg", "c1", [Q0], broker.now_ms())
    sent = await caller.send("%RETRY%cg", b"enough", DELAY="3")
    assert sent.code == codes.SUCCESS
    (dead,) = records(await caller.pull("%DLQ%cg"))
    assert dead.body == b"enough"
    assert dead.properties["DELAY"] == "-1"


def test_locks_that_are_left_are_taken_once(tmp_path: Path) -> None:
    left, locks = LeftLocks(tmp_path / "config" / "queueLocks.json"), QueueLocks()
    assert left.take() is None
    locks.lock("g", "c1", [Q0, Q1], 5)
    left.leave(locks.table(8, "broker-a", 3))
    table = left.take()
    assert table is not None
    assert (table.broker_name, table.epoch, table.at_ms) == ("broker-a", 3, 8)
    found = QueueLocks()
    found.restore(table, 9)
    assert found.lock("g", "c2", [Q0, Q1], 5 + CLIENT_LOCK_MS) == []
    assert found.lock("g", "c2", [Q0], 6 + CLIENT_LOCK_MS) == [Q0]
    assert left.take() is None


def test_restored_locks_count_on_from_when_they_were_noted() -> None:
    locks, found = QueueLocks(), QueueLocks()
    locks.lock("g", "c1", [Q0], 1_000)
    table = locks.table(5_000, "broker-a")
    found.restore(table, 2_000)  # a clock that went back ends no lock early
    assert found.lock("g", "c2", [Q0], 2_000 + CLIENT_LOCK_MS - 4_000) == []
    assert found.lock("g", "c2", [Q0], 2_001 + CLIENT_LOCK_MS - 4_000) == [Q0]


def test_locks_that_are_restored_twice_last_as_long() -> None:
    first, second, third = QueueLocks(), QueueLocks(), QueueLocks()
    first.lock("g", "c1", [Q0], 1_000)
    second.restore(first.table(2_000, "broker-a"), 2_000)
    third.restore(second.table(3_000, "broker-a"), 3_000)
    assert third.lock("g", "c2", [Q0], 1_000 + CLIENT_LOCK_MS) == []
    assert third.lock("g", "c2", [Q0], 1_001 + CLIENT_LOCK_MS) == [Q0]


def test_locks_that_are_damaged_count_as_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "queueLocks.json"
    path.write_bytes(b'[["g","T"')
    assert LeftLocks(path).take() is None
    assert "queueLocks.json is damaged" in caplog.text
    assert not path.exists()


class Again:
    """A broker that is started again and again on one store, with a clock of the test."""

    def __init__(self, folder: Path) -> None:
        self.ms = 1_000_000
        self._config = BrokerConfig(
            listen_port=0,
            http_port=0,
            store_path_root_dir=str(folder),
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_timer_log=1 << 20,
            max_hash_slot_num=1_000,
            max_index_num=4_000,
        )

    async def run(self, *clients: str, first: Callable[[], None] = lambda: None) -> list[bool]:
        """Which of these clients get the queue, one after the other; then a clean stop."""
        broker, peers = Broker(self._config, alive_ms=lambda: self.ms), Peers()
        await broker.start()
        first()
        try:
            header = SendMessage("pg", "T", "TBW102", 4, 0, 0, 1, 0, "", 0)
            sent = await peers.request(broker.address, codes.SEND_MESSAGE_V2, header, b"x")
            assert sent.code == codes.SUCCESS, sent.remark
            found = []
            for client in clients:
                body = LockBatchRequestBody("g", client, mq_set=[MessageQueue(*Q0)]).encode()
                answer = await peers.request(broker.address, codes.LOCK_BATCH_MQ, None, body)
                found.append(
                    answer.code == codes.SUCCESS
                    and bool(LockBatchResponseBody.decode(answer.body).lock_ok_mq_set)
                )
            return found
        finally:
            await peers.close()
            await broker.stop()


async def test_a_clean_stop_leaves_the_locks_to_the_next_start(tmp_path: Path) -> None:
    again = Again(tmp_path)
    assert await again.run("c1", "c2") == [True, False]
    assert await again.run("c2", "c1") == [False, True]


async def test_after_a_crash_no_queue_is_locked_while_consumers_may_have_locks(
    tmp_path: Path,
) -> None:
    again, left = Again(tmp_path), tmp_path / "config" / "queueLocks.json"

    def pass_by(ms: int) -> Callable[[], None]:
        def change() -> None:
            again.ms += ms

        return change

    assert await again.run("c1") == [True]
    left.unlink()  # as after a crash
    assert await again.run("c1", first=pass_by(CLIENT_LOCK_MS - 1)) == [False]
    assert not left.exists()  # a stop in this time is no better than a crash
    assert await again.run("c2", first=pass_by(CLIENT_LOCK_MS)) == [True]
