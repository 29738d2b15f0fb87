"""Requests that read, copy and reset progress: 43, 45, 222, 223, 308, 314."""

import asyncio

import pytest
from aerobee.broker.admin.offsets import OFFSET_MAX
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.offsets import (
    GetConsumerStatusBody,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
)
from aerobee.protocol.command import Command
from aerobee.protocol.errors import Refusal
from aerobee.protocol.headers.admin import ResetOffset
from aerobee.protocol.headers.offsets import UpdateConsumerOffset
from aerobee.protocol.headers.pull import COMMIT_OFFSET

from ..conftest import Caller, parked
from ..parts import START_MS, Parts, refused

RESET = codes.INVOKE_BROKER_TO_RESET_OFFSET
STATUS = codes.INVOKE_BROKER_TO_GET_CONSUMER_STATUS


def queue(number: int) -> MessageQueue:
    return MessageQueue("T", "broker-a", number)


@pytest.fixture
def consumed(parts: Parts) -> Parts:
    """Topic T with two queues of three messages, a second apart; group G has consumed two and one
    of them."""
    parts.topic("T", 2)
    for second in range(3):
        for number in range(2):
            parts.put("T", number, at_ms=START_MS + second * 1_000)
    parts.offsets.commit("T", "G", 0, 2)
    parts.offsets.commit("T", "G", 1, 1)
    return parts


# --- 43, 45 ---------------------------------------------------------------------------------------


def test_all_offsets_come_with_bare_queue_ids(parts: Parts) -> None:
    parts.offsets.commit("T", "G", 0, 5)
    parts.offsets.commit("T", "G", 3, 7)
    assert parts.ask(codes.GET_ALL_CONSUMER_OFFSET).body == (
        b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},'
        b'"offsetTable":{"T@G":{0:5,3:7}}}'
    )


def test_the_delay_levels_come_with_bare_numbers(parts: Parts) -> None:
    parts.delays.offsets = {1: 12, 3: 4}
    body = parts.ask(codes.GET_ALL_DELAY_OFFSET).body
    assert isinstance(body, bytes)
    assert body.endswith(b'"offsetTable":{1:12,3:4}}')


# --- 314 ------------------------------------------------------------------------------------------


def test_a_groups_offsets_are_copied_to_another(parts: Parts) -> None:
    for topic in ("T", "U"):
        parts.topic(topic)
        parts.offsets.commit(topic, "G", 0, 5)
    parts.offsets.commit("Gone", "G", 0, 5)
    fields = {"srcGroup": "G", "destGroup": "H", "topic": "U", "offline": False}
    assert parts.ask(codes.CLONE_GROUP_OFFSET, **fields).code == 0
    assert parts.offsets.topics_of("H") == ["U"]
    parts.ask(codes.CLONE_GROUP_OFFSET, **(fields | {"topic": ""}))
    assert sorted(parts.offsets.topics_of("H")) == ["T", "U"]
    assert parts.offsets.queues("T", "H") == {0: 5}


def test_topics_that_a_live_group_has_left_are_copied_only_offline(parts: Parts) -> None:
    for topic in ("T", "U"):
        parts.topic(topic)
        parts.offsets.commit(topic, "G", 0, 5)
    parts.join("G", {"T": "*"})
    fields = {"srcGroup": "G", "destGroup": "H", "offline": False}
    parts.ask(codes.CLONE_GROUP_OFFSET, **fields)
    assert parts.offsets.topics_of("H") == ["T"]
    parts.ask(codes.CLONE_GROUP_OFFSET, **(fields | {"offline": True}))
    assert sorted(parts.offsets.topics_of("H")) == ["T", "U"]


# --- 222 in the broker ----------------------------------------------------------------------------


def reset(parts: Parts, **fields: object) -> dict[MessageQueue, int]:
    wanted = {"topic": "T", "group": "G", "timestamp": -1, "isForce": True}
    body = parts.ask(RESET, **(wanted | fields)).body
    assert isinstance(body, bytes)
    return ResetOffsetBody.decode(body).offset_table


def test_a_clone_has_no_other_offsets_than_its_source(consumed: Parts) -> None:
    consumed.offsets.commit("T", "copy", 7, 70)
    consumed.offsets.commit("T", "kept", 7, 70)
    for source, target in (("G", "copy"), ("nobody", "kept")):
        fields = {"srcGroup": source, "destGroup": target, "topic": "T"}
        assert consumed.ask(codes.CLONE_GROUP_OFFSET, **fields).code == 0
    assert consumed.offsets.queues("T", "copy") == consumed.offsets.queues("T", "G") == {0: 2, 1: 1}
    assert consumed.offsets.queues("T", "kept") == {7: 70}


def test_a_group_that_is_offline_goes_on_where_it_was_told(consumed: Parts) -> None:
    consumed.groups.find("G")
    found = reset(consumed, timestamp=START_MS + 1_000)
    assert found == {queue(0): 1, queue(1): 1}
    assert consumed.offsets.queues("T", "G") == {0: 1, 1: 1}
    assert reset(consumed, timestamp=-2) == {queue(0): 3, queue(1): 3}
    consumed.marked.clear()
    assert reset(consumed, timestamp=START_MS + 1_000) == {queue(0): 1, queue(1): 1}
    assert reset(consumed) == {queue(0): 3, queue(1): 3}  # -1 is the end
    assert consumed.marked == [("T", 0), ("T", 1)] * 2


def test_one_queue_is_reset_to_an_offset_or_a_time(consumed: Parts) -> None:
    consumed.groups.find("G")
    assert reset(consumed, queueId=1, offset=3) == {queue(1): 3}
    assert reset(consumed, queueId=1, offset=-1, timestamp=0) == {queue(1): 0}
    assert consumed.offsets.queues("T", "G") == {0: 2, 1: 0}


def test_a_queue_goes_forward_without_force(consumed: Parts) -> None:
    consumed.groups.find("G")
    assert reset(consumed, isForce=False) == {queue(0): 3, queue(1): 3}
    assert consumed.offsets.queues("T", "G") == {0: 3, 1: 3}


def test_an_offset_that_is_named_holds_without_force(consumed: Parts) -> None:
    consumed.groups.find("G")
    assert reset(consumed, queueId=1, offset=3, isForce=False) == {queue(1): 3}
    assert reset(consumed, queueId=1, offset=0, isForce=False) == {queue(1): 0}


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "nope"}, 17, "Topic nope does not exist"),
        ({"group": "nope"}, 26, "Group nope does not exist"),
        ({"queueId": 2}, 1, "queueId[2] is illegal, topic T has 2 queues; refresh the route"),
        (
            {"queueId": 0, "offset": 5},
            1,
            "Target offset 5 not in consume queue range [0-3]",
        ),
        (
            {"queueId": 0, "offset": -7},
            1,
            "Target offset -7 not in consume queue range [0-3]",
        ),
    ],
)
def test_a_reset_to_nowhere_is_refused_and_changes_nothing(
    consumed: Parts, fields: dict[str, object], code: int, remark: str
) -> None:
    consumed.groups.find("G")
    wanted = {"topic": "T", "group": "G", "timestamp": -1, "isForce": True}
    refusal = refused(consumed, RESET, **(wanted | fields))
    assert (refusal.code, refusal.remark) == (code, remark)
    assert consumed.offsets.queues("T", "G") == {0: 2, 1: 1}
    assert consumed.offsets.resets == {}


async def test_a_waiting_reader_is_told_of_the_reset_at_once_and_its_late_reports_do_not_count(
    broker: Broker, caller: Caller
) -> None:
    for _ in range(3):
        await caller.send("T", b"old")
    pull = asyncio.create_task(caller.pull("T", 3, suspend_ms=15_000, group="G"))
    await parked(broker, 1)
    header = ResetOffset("G", "T", 0, True)
    answer = await caller.ask(codes.INVOKE_BROKER_TO_RESET_OFFSET, header)
    assert answer.code == codes.SUCCESS, answer.remark
    moved = await pull
    assert moved.code == codes.PULL_OFFSET_MOVED
    assert (moved.fields()["nextBeginOffset"], moved.remark) == ("0", "OFFSET_RESET")
    assert (moved.fields()["topicSysFlag"], moved.fields()["groupSysFlag"]) == ("0", "0")
    await caller.ask(codes.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset("G", "T", 0, 2))
    assert broker.offsets.get("T", "G", 0) == 2  # it was told: what it reports counts again


async def test_a_report_from_before_a_reset_is_passed_over_until_the_next_pull(
    broker: Broker, caller: Caller
) -> None:
    await caller.send("T", b"old")
    await caller.pull("T", 0, group="G")
    await caller.ask(codes.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffset("G", "T", 0, True))
    late = UpdateConsumerOffset("G", "T", 0, 1)
    answer = await caller.ask(codes.UPDATE_CONSUMER_OFFSET, late)
    assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
    assert broker.offsets.get("T", "G", 0) == 0
    # The report that comes with a pull is from before as well.
    moved = await caller.pull("T", 1, group="G", sys_flag=COMMIT_OFFSET, commit_offset=1)
    assert moved.code == codes.PULL_OFFSET_MOVED
    assert broker.offsets.get("T", "G", 0) == 0
    assert (await caller.pull("T", 0, group="G")).code == codes.SUCCESS


def test_a_deleted_group_or_topic_leaves_no_reset_behind(consumed: Parts) -> None:
    consumed.groups.find("G")
    reset(consumed)
    consumed.offsets.delete_group("G")
    assert consumed.offsets.resets == {}
    reset(consumed)
    consumed.offsets.delete_topic("T")
    assert consumed.offsets.resets == {}


# --- 308 ------------------------------------------------------------------------------------------


def correction(parts: Parts, **fields: object) -> dict[int, int]:
    wanted = {"topic": "T", "compareGroup": "G"}
    body = parts.ask(codes.QUERY_CORRECTION_OFFSET, **(wanted | fields)).body
    assert isinstance(body, bytes)
    return QueryCorrectionOffsetBody.decode(body).correction_offsets


def test_the_least_offset_of_all_groups_but_where_the_compared_one_is_behind(
    consumed: Parts,
) -> None:
    consumed.offsets.commit("T", "H", 0, 1)
    consumed.offsets.commit("T", "H", 1, 3)
    assert correction(consumed) == {0: 1, 1: 1}
    assert correction(consumed, filterGroups="G,x") == {0: 1, 1: OFFSET_MAX}


# --- 222 through the members ----------------------------------------------------------------------


@pytest.fixture
def members(consumed: Parts) -> Parts:
    """The same, with resets that go through the members."""
    consumed.dynamic_settings.update({"useServerSideResetOffset": "false"})
    return consumed


def test_every_member_is_told_where_to_go_on(members: Parts) -> None:
    wires = [members.join("G", {"T": "*"}, client_id=name) for name in ("c1", "c2")]
    found = reset(members, timestamp=START_MS + 1_000)
    assert found == {queue(0): 1, queue(1): 1}
    for wire in wires:
        ((code, fields, body),) = wire.told
        assert code == codes.RESET_CONSUMER_CLIENT_OFFSET
        assert fields == {
            "topic": "T",
            "group": "G",
            "timestamp": str(START_MS + 1_000),
            "isForce": "false",
            "queueId": "-1",
        }
        assert ResetOffsetBody.decode(body).offset_table == found


def test_minus_one_is_the_end_for_members_too(members: Parts) -> None:
    members.join("G", {"T": "*"})
    assert reset(members) == {queue(0): 3, queue(1): 3}


def test_without_force_no_queue_of_a_member_goes_forward(members: Parts) -> None:
    members.join("G", {"T": "*"})
    assert reset(members, isForce=False) == {queue(0): 2, queue(1): 1}
    back = reset(members, isForce=False, timestamp=START_MS + 1_000)
    assert back == {queue(0): 1, queue(1): 1}


def test_members_of_a_cpp_tool_are_told_in_a_list(members: Parts) -> None:
    wire = members.join("G", {"T": "*"})
    reset(members, language="CPP")
    assert wire.told[0][2] == (
        b'{"offsetTable":[{"brokerName":"broker-a","offset":3,"queueId":0,"topic":"T"},'
        b'{"brokerName":"broker-a","offset":3,"queueId":1,"topic":"T"}]}'
    )


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "nope"}, 17, "no topic in this broker. topic=nope"),
        ({"group": "nope"}, 1, "THe consumer group <nope> not exist"),
        ({}, 206, "Consumer not online, so can not reset offset, Group: G Topic: T Timestamp: -1"),
    ],
)
def test_a_reset_that_reaches_nobody_is_refused(
    members: Parts, fields: dict[str, object], code: int, remark: str
) -> None:
    wanted = {"topic": "T", "group": "G", "timestamp": -1, "isForce": True}
    refusal = refused(members, RESET, **(wanted | fields))
    assert refusal.code == code
    assert refusal.remark.endswith(remark)


def test_clients_of_before_can_not_be_reset(members: Parts) -> None:
    wire = members.join("G", {"T": "*"}, version=27)
    fields = {"topic": "T", "group": "G", "timestamp": -1, "isForce": True}
    refusal = refused(members, RESET, **fields)
    assert refusal.code == codes.SYSTEM_ERROR
    assert refusal.remark.startswith("the client does not support this feature. version=27")
    assert wire.told == []


# --- 223 ------------------------------------------------------------------------------------------


def status_of(offset: int) -> Command:
    body = GetConsumerStatusBody({queue(0): offset}).encode()
    return Command(codes.SUCCESS, body=body)


async def status(parts: Parts, **fields: object) -> dict[str, dict[MessageQueue, int]]:
    reply = await parts.ask_later(STATUS, topic="T", group="G", **fields)
    assert isinstance(reply.body, bytes)
    return GetConsumerStatusBody.decode(reply.body).consumer_table


async def test_the_members_say_where_they_are(parts: Parts) -> None:
    for number in (1, 2):
        wire = parts.join("G", {"T": "*"}, client_id=f"c{number}")
        wire.answer = status_of(number)
    assert await status(parts) == {"c1": {queue(0): 1}, "c2": {queue(0): 2}}
    assert await status(parts, clientAddr="c2") == {"c2": {queue(0): 2}}
    assert wire.asked[0][:2] == (
        codes.GET_CONSUMER_STATUS_FROM_CLIENT,
        {"topic": "T", "group": "G"},
    )


@pytest.mark.parametrize(
    "answer",
    [
        TimeoutError("no answer in time"),
        ConnectionResetError("connection closed"),
        Command(codes.SYSTEM_ERROR),
        Command(codes.SUCCESS),
        Command(codes.SUCCESS, body=b"{"),
    ],
    ids=["late", "lost", "declined", "empty", "broken"],
)
async def test_a_member_that_says_nothing_is_left_out(
    parts: Parts, answer: Command | Exception
) -> None:
    parts.join("G", {"T": "*"}, client_id="good").answer = status_of(1)
    parts.join("G", {"T": "*"}, client_id="bad").answer = answer
    assert await status(parts) == {"good": {queue(0): 1}}


async def test_a_group_that_is_not_online_has_no_status(parts: Parts) -> None:
    with pytest.raises(Refusal) as caught:
        await status(parts)
    assert caught.value.code == codes.SYSTEM_ERROR
    assert caught.value.remark == "No Any Consumer online in the consumer group: [G]"


async def test_clients_of_before_have_no_status(parts: Parts) -> None:
    parts.join("G", {"T": "*"}, version=27)
    with pytest.raises(Refusal, match="does not support this feature"):
        await status(parts)
