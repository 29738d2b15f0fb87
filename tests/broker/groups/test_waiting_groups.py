"""A broker keeps its log until the groups of retainUntilConsumedBy have read it."""

import json
import logging

import pytest
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.headers.offsets import UpdateConsumerOffset

from ...clocks import Clock
from ..conftest import Caller, Config, Run
from ..runtime.test_cleaner import AT_ONCE, BODY, FILE_BYTES, Disk, fill, full

__all__ = ["full"]


@pytest.fixture
async def running(full: Disk, run: Run, config: Config) -> tuple[Broker, Caller]:
    return await run(config(**AT_ONCE, retain_until_consumed_by="lake;typo"))


async def commit(caller: Caller, offset: int, *, topic: str = "T", group: str = "lake") -> None:
    await caller.heartbeat(group=group)  # which makes the group
    header = UpdateConsumerOffset(group, topic, 0, offset)
    answer = await caller.ask(codes.UPDATE_CONSUMER_OFFSET, header)
    assert answer.code == codes.SUCCESS, answer.remark


async def runtime(caller: Caller) -> dict[str, str]:
    body = (await caller.ask(codes.GET_BROKER_RUNTIME_INFO)).body or b""
    found: dict[str, str] = json.loads(body)["table"]
    return found


async def test_files_go_when_the_group_has_read_them(
    running: tuple[Broker, Caller], clock: Clock
) -> None:
    broker, caller = running
    await fill(broker, caller, 20, clock, old=3)
    await commit(caller, 0)
    for offset, gone in ((0, 0), (3, 0), (4, 1), (9, 2), (12, 3)):
        await commit(caller, offset)
        broker.cleaner.delete_expired()
        await broker.cleaner.finished()
        assert broker.store.log_start == gone * FILE_BYTES


async def test_a_group_without_an_offset_holds_nothing_and_is_told(
    running: tuple[Broker, Caller], clock: Clock
) -> None:
    broker, caller = running
    await fill(broker, caller, 20, clock, old=2)
    assert (await runtime(caller))["groupsHoldingNothing"] == "lake;typo"
    await commit(caller, 0, group="another")
    await broker.cleaner.run()
    assert broker.store.log_start == 2 * FILE_BYTES
    await commit(caller, 8)
    assert (await runtime(caller))["groupsHoldingNothing"] == "typo"


@pytest.mark.parametrize("topic", ["%RETRY%lake", "%DLQ%lake", "RMQ_SYS_TRANS_HALF_TOPIC"])
async def test_topics_of_the_system_are_not_held(
    running: tuple[Broker, Caller], clock: Clock, topic: str
) -> None:
    broker, caller = running
    await fill(broker, caller, 20, clock, old=2)
    broker.offsets.commit(topic, "lake", 0, 0)
    broker.store.state.queues.make(topic, 0).append(0, 100, 0)
    await broker.cleaner.run()
    assert broker.store.log_start == 2 * FILE_BYTES


async def test_a_queue_without_an_offset_is_held_from_its_least_one(
    running: tuple[Broker, Caller], clock: Clock
) -> None:
    broker, caller = running
    assert (await caller.send("T", BODY, queue_id=1)).code == codes.SUCCESS
    await fill(broker, caller, 20, clock, old=2)
    await commit(caller, 20)
    await broker.cleaner.run()
    assert broker.store.log_start == 0
    assert (await runtime(caller))["logHeldBy"] == "lake;T;1"


async def test_the_least_of_the_groups_offsets_decides(
    running: tuple[Broker, Caller], clock: Clock
) -> None:
    broker, caller = running
    await fill(broker, caller, 20, clock, old=3)
    await commit(caller, 8)
    await commit(caller, 5, group="typo")
    await broker.cleaner.run()
    assert broker.store.log_start == FILE_BYTES
    await commit(caller, 99, group="typo")
    await broker.cleaner.run()
    assert broker.store.log_start == 2 * FILE_BYTES


async def test_a_full_disk_keeps_what_is_held_and_refuses_sends(
    running: tuple[Broker, Caller], clock: Clock, full: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    broker, caller = running
    await fill(broker, caller, 20, clock, old=0)
    await commit(caller, 0)
    full.percent = 95
    with caplog.at_level(logging.ERROR):
        await broker.cleaner.run()
        await broker.cleaner.run()
    assert broker.store.log_start == 0
    assert (await caller.send("T", BODY)).code == codes.SERVICE_NOT_AVAILABLE
    assert len([text for text in caplog.messages if "retainUntilConsumedBy names" in text]) == 1
    assert "logHeldBytes" not in await runtime(caller)  # no file is past its time
    await commit(caller, 8)
    await broker.cleaner.run()
    assert broker.store.log_start == 2 * FILE_BYTES


async def test_held_files_are_told_until_the_group_reads_on_or_is_deleted(
    running: tuple[Broker, Caller], clock: Clock
) -> None:
    broker, caller = running
    await fill(broker, caller, 20, clock, old=2)
    await commit(caller, 0)
    assert "logHeldBytes" not in await runtime(caller)
    await broker.cleaner.run()
    found = await runtime(caller)
    assert (found["logHeldBy"], int(found["logHeldBytes"])) == ("lake;T;0", 2 * FILE_BYTES)
    assert abs(int(found["logHeldSince"]) - (clock.ms - 86_400_000)) < 1_000
    fields = {"groupName": "lake", "cleanOffset": "true"}
    assert (await caller.ask(codes.DELETE_SUBSCRIPTIONGROUP, fields)).code == codes.SUCCESS
    await broker.cleaner.run()
    assert broker.store.log_start == 2 * FILE_BYTES
    assert "logHeldBytes" not in await runtime(caller)


async def test_the_setting_changes_at_run_time(
    running: tuple[Broker, Caller], clock: Clock
) -> None:
    broker, caller = running
    await fill(broker, caller, 20, clock, old=2)
    await commit(caller, 0, group="later")
    for text, start in (("later", 0), ("", 2 * FILE_BYTES)):
        body = f"retainUntilConsumedBy={text}".encode()
        answer = await caller.ask(codes.UPDATE_BROKER_CONFIG, None, body)
        assert answer.code == codes.SUCCESS, answer.remark
        await broker.cleaner.run()
        assert broker.store.log_start == start


@pytest.mark.parametrize("text", ["a b", "a;", ";a", "a;;b", "a" * 121, ";".join(["a"] * 101)])
async def test_illegal_names_are_refused(running: tuple[Broker, Caller], text: str) -> None:
    _, caller = running
    body = f"retainUntilConsumedBy={text}".encode()
    assert (
        await caller.ask(codes.UPDATE_BROKER_CONFIG, None, body)
    ).code == codes.INVALID_PARAMETER


async def test_a_shorter_retention_of_a_topic_waits_also_after_a_restart(
    full: Disk, run: Run, config: Config, clock: Clock
) -> None:
    settings = config(mapped_file_size_commit_log=FILE_BYTES, retain_until_consumed_by="lake")
    broker, caller = await run(settings)
    await fill(broker, caller, 8, clock, old=0)
    await commit(caller, 3)
    body = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4"}
    more = {"perm": "6", "topicFilterType": "SINGLE_TAG", "attributes": "+retention.ms=3600000"}
    answer = await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, body | more)
    assert answer.code == codes.SUCCESS, answer.remark
    clock.ms += 2 * 3_600_000
    await broker.cleaner.run()
    assert broker.store.min_offset("T", 0) == 3
    await broker.stop()
    broker, caller = await run(settings)
    assert broker.store.min_offset("T", 0) == 3
    await commit(caller, 8)
    await broker.cleaner.run()
    assert broker.store.min_offset("T", 0) == 8
