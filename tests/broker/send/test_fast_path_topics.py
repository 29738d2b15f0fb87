"""The fast path notices changed topics, parked pulls, and timers."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")

from aerobee.broker.scheduled import wheel_intake
from aerobee.broker.scheduled.timer_delivery import waiting_message
from aerobee.broker.server import Broker
from aerobee.broker.topics.topics import MULTI_TAG
from aerobee.protocol import codes
from aerobee.protocol.command import Command
from aerobee.protocol.headers.topics import TopicName, UpdateTopic
from aerobee.protocol.message.record import MULTI_TAGS
from aerobee.store.engine.store import MessageStore
from aerobee.store.files import disk

from ...waiting import LONG
from ..conftest import Caller, parked, records
from .test_fast_path import Client, fast, known, send, stored, unique

__all__ = ["fast"]  # a fixture

COUNT = 8


class Compiled:
    """A client that has sent to each queue of "orders", so that the fast path knows them all."""

    def __init__(self, broker: Broker, client: Client, taken: list[int]) -> None:
        self.broker = broker
        self._client = client
        self.taken = taken  # messages stored by the fast path, per call

    async def send(self, **changes: Any) -> list[Command]:
        """The responses to COUNT simultaneous sends, two to each queue."""
        frames = [send(number, **changes) for number in range(COUNT)]
        self._client.writer.write(b"".join(frames))
        return await self._client.answers(COUNT)


@pytest.fixture
async def compiled(fast: Broker, monkeypatch: pytest.MonkeyPatch) -> Any:
    taken: list[int] = []
    put_table = fast.store.put_table

    def counting(table: Any, *rest: Any) -> bool:
        is_put = put_table(table, *rest)
        taken.append(table.count if is_put else 0)
        return is_put

    monkeypatch.setattr(fast.store, "put_table", counting)
    client = await known(fast)
    found = Compiled(fast, client, taken)
    assert {answer.code for answer in await found.send()} == {codes.SUCCESS}
    assert sum(taken[-COUNT:]) >= COUNT, "these sends did not take the compiled way"
    taken.clear()
    yield found
    client.close()


@pytest.fixture
async def caller(fast: Broker) -> Any:
    caller = Caller(fast)
    yield caller
    await caller.peers.close()


async def test_a_queue_removed_from_the_topic_takes_no_messages(
    compiled: Compiled, caller: Caller
) -> None:
    before = [compiled.broker.store.max_offset("orders", queue_id) for queue_id in range(4)]
    update = UpdateTopic("orders", 2, 2, 6)
    assert (await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, update)).code == codes.SUCCESS
    answers = await compiled.send()
    lost = [answer.code for answer in answers if answer.opaque % 4 >= 2]
    kept = [answer.code for answer in answers if answer.opaque % 4 < 2]
    assert codes.SUCCESS not in lost
    assert set(kept) == {codes.SUCCESS}
    after = [compiled.broker.store.max_offset("orders", queue_id) for queue_id in range(4)]
    assert after == [before[0] + 2, before[1] + 2, before[2], before[3]]


async def test_a_deleted_topic_takes_no_messages(compiled: Compiled, caller: Caller) -> None:
    deleted = await caller.ask(codes.DELETE_TOPIC_IN_BROKER, TopicName("orders"))
    assert deleted.code == codes.SUCCESS
    answers = await compiled.send(c="no-such-topic")  # a template would recreate it
    assert {answer.code for answer in answers} == {codes.TOPIC_NOT_EXIST}
    assert sum(compiled.taken) == 0
    assert stored(compiled.broker) == 0


async def test_after_an_incomplete_deletion_acknowledged_messages_can_be_read(
    compiled: Compiled, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[Path] = []

    def fail_once(path: Path) -> None:
        if failed:
            os.unlink(path)
        else:
            failed.append(path)
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk.current, "unlink", fail_once)
    deleted = await caller.ask(codes.DELETE_TOPIC_IN_BROKER, TopicName("orders"))
    assert deleted.code == codes.SYSTEM_ERROR
    assert len(failed) == 1
    acknowledged = [one for one in await compiled.send() if one.code == codes.SUCCESS]
    assert acknowledged
    for answer in acknowledged:
        offset = int(answer.fields()["queueOffset"])
        found = records(await caller.pull("orders", offset, queue_id=answer.opaque % 4))
        assert found[0].body == b"body %d" % answer.opaque


async def test_a_recreated_topic_starts_at_offset_0(compiled: Compiled, caller: Caller) -> None:
    await caller.ask(codes.DELETE_TOPIC_IN_BROKER, TopicName("orders"))
    await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic("orders", 4, 4, 6))
    answers = await compiled.send()
    assert [answer.code for answer in answers] == [codes.SUCCESS] * COUNT
    assert [answer.fields()["queueOffset"] for answer in answers] == ["0"] * 4 + ["1"] * 4


async def test_a_topic_changed_to_multiple_tags_marks_its_messages(
    compiled: Compiled, caller: Caller
) -> None:
    end = compiled.broker.store.max_offset("orders", 1)
    update = UpdateTopic("orders", 4, 4, 6, filter_type=MULTI_TAG)
    assert (await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, update)).code == codes.SUCCESS
    assert {answer.code for answer in await compiled.send()} == {codes.SUCCESS}
    found = records(await caller.pull("orders", end, queue_id=1))
    assert [record.sys_flag & MULTI_TAGS for record in found] == [MULTI_TAGS] * 2


async def test_an_ordered_topic_takes_no_messages_on_a_read_only_broker(
    compiled: Compiled, caller: Caller
) -> None:
    update = UpdateTopic("orders", 4, 4, 6, order=True)
    assert (await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, update)).code == codes.SUCCESS
    assert {answer.code for answer in await compiled.send()} == {codes.SUCCESS}
    assert sum(compiled.taken) == COUNT
    before = stored(compiled.broker)
    answer = await caller.ask(codes.UPDATE_BROKER_CONFIG, None, b"brokerPermission=4\n")
    assert answer.code == codes.SUCCESS
    assert {answer.code for answer in await compiled.send()} == {codes.NO_PERMISSION}
    assert stored(compiled.broker) == before


async def test_a_parked_pull_gets_the_messages_that_the_fast_path_stored(
    compiled: Compiled, caller: Caller
) -> None:
    end = compiled.broker.store.max_offset("orders", 1)
    waiting = asyncio.create_task(
        caller.pull("orders", end, queue_id=1, suspend_ms=600_000, group="waits")
    )
    await parked(compiled.broker, 1)
    await compiled.send()
    assert sum(compiled.taken) == COUNT
    async with asyncio.timeout(LONG):
        answer = await waiting
    assert answer.code == codes.SUCCESS
    assert [record.body for record in records(answer)] == [b"body 1", b"body 5"]


async def test_timer_messages_enter_the_wheel_without_being_read_from_the_log(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers = compiled.broker.timers
    assert timers is not None
    read: list[int] = []

    def counting(store: MessageStore, place: int, length: int) -> Any:
        read.append(place)
        return waiting_message(store, place, length)

    monkeypatch.setattr(wheel_intake, "waiting_message", counting)
    # The first messages take the slow path, one by one; then the room in their slot is known.
    for _ in range(2):
        compiled.taken.clear()
        read.clear()
        answers = await compiled.send(i=f"{unique(1)}TIMER_DELAY_SEC\x013600\x02")
        assert {answer.code for answer in answers} == {codes.SUCCESS}
        await compiled.broker.catch_up()
    assert sum(compiled.taken) == COUNT
    assert timers.state.waiting == 2 * COUNT
    assert read == []
