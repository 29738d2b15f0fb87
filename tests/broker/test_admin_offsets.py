"""Requests that read, copy and reset progress: 43, 45, 222, 223, 314."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.offsets import GetConsumerStatusBody, ResetOffsetBody
from aerobee.protocol.command import Command
from aerobee.protocol.errors import Refusal

from .parts import START_MS, Parts

RESET = codes.INVOKE_BROKER_TO_RESET_OFFSET
STATUS = codes.INVOKE_BROKER_TO_GET_CONSUMER_STATUS


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    parts = Parts(tmp_path)
    yield parts
    parts.store.close()


def refused(parts: Parts, code: int, /, **fields: object) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parts.ask(code, **fields)
    return caught.value


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


# --- 222 ------------------------------------------------------------------------------------------


def reset(parts: Parts, **fields: object) -> dict[MessageQueue, int]:
    wanted = {"topic": "T", "group": "G", "timestamp": -1, "isForce": True}
    body = parts.ask(RESET, **(wanted | fields)).body
    assert isinstance(body, bytes)
    return ResetOffsetBody.decode(body).offset_table


def test_every_member_is_told_where_to_go_on(consumed: Parts) -> None:
    wires = [consumed.join("G", {"T": "*"}, client_id=name) for name in ("c1", "c2")]
    found = reset(consumed, timestamp=START_MS + 1_000)
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


def test_minus_one_is_the_end(consumed: Parts) -> None:
    consumed.join("G", {"T": "*"})
    assert reset(consumed) == {queue(0): 3, queue(1): 3}


def test_without_force_no_queue_goes_forward(consumed: Parts) -> None:
    consumed.join("G", {"T": "*"})
    assert reset(consumed, isForce=False) == {queue(0): 2, queue(1): 1}
    back = reset(consumed, isForce=False, timestamp=START_MS + 1_000)
    assert back == {queue(0): 1, queue(1): 1}


def test_members_of_a_cpp_tool_are_told_in_a_list(consumed: Parts) -> None:
    wire = consumed.join("G", {"T": "*"})
    reset(consumed, language="CPP")
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
    consumed: Parts, fields: dict[str, object], code: int, remark: str
) -> None:
    wanted = {"topic": "T", "group": "G", "timestamp": -1, "isForce": True}
    refusal = refused(consumed, RESET, **(wanted | fields))
    assert refusal.code == code
    assert refusal.remark.endswith(remark)


def test_clients_of_before_can_not_be_reset(consumed: Parts) -> None:
    wire = consumed.join("G", {"T": "*"}, version=27)
    fields = {"topic": "T", "group": "G", "timestamp": -1, "isForce": True}
    refusal = refused(consumed, RESET, **fields)
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
