"""Requests that are handed on to a consumer: 307 and 309."""

import pytest
from aerobee.protocol import codes
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.command import Command, Response, read_ext
from aerobee.protocol.errors import Refusal
from aerobee.protocol.message.message_id import offset_message_id
from aerobee.protocol.message.record import decode_record

from ..parts import HOST, Parts

RUNNING = codes.GET_CONSUMER_RUNNING_INFO
DIRECTLY = codes.CONSUME_MESSAGE_DIRECTLY


async def refused(parts: Parts, code: int, /, **fields: object) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await parts.ask_later(code, **fields)
    return caught.value


def info(parts: Parts) -> dict[str, object]:
    return {"consumerGroup": "CG", "clientId": "c1", "jstackEnable": True}


async def test_a_consumers_answer_is_passed_on_as_it_is(parts: Parts) -> None:
    parts.join("CG", {"T": "*"}, client_id="other")
    wire = parts.join("CG", {"T": "*"})
    wire.answer = Command(0, read_ext({"a": "b"}), remark="fine", body=b"running")
    reply = await parts.ask_later(RUNNING, **info(parts))
    assert reply == Response(0, {"a": "b"}, "fine", b"running")
    ((code, fields, body, seconds),) = wire.asked
    assert (code, body, seconds) == (RUNNING, b"", 10.0)
    assert fields == {"consumerGroup": "CG", "clientId": "c1", "jstackEnable": "true"}


async def test_a_consumers_refusal_is_passed_on_too(parts: Parts) -> None:
    parts.join("CG", {"T": "*"}).answer = Command(codes.SYSTEM_ERROR, remark="no such group here")
    reply = await parts.ask_later(RUNNING, **info(parts))
    assert reply == Response(1, None, "no such group here")


@pytest.mark.parametrize(
    ("answer", "code", "remark"),
    [
        (TimeoutError("late"), 207, "consumer <CG> <c1> Timeout: late"),
        (ConnectionResetError("gone"), 1, "invoke consumer <CG> <c1> Exception: gone"),
    ],
)
async def test_a_consumer_that_does_not_answer_is_named(
    parts: Parts, answer: Exception, code: int, remark: str
) -> None:
    parts.join("CG", {"T": "*"}).answer = answer
    refusal = await refused(parts, RUNNING, **info(parts))
    assert (refusal.code, refusal.remark) == (code, remark)


async def test_a_consumer_that_is_not_there_is_not_online(parts: Parts) -> None:
    parts.join("CG", {"T": "*"})
    refusal = await refused(parts, RUNNING, **(info(parts) | {"clientId": "zz"}))
    assert (refusal.code, refusal.remark) == (1, "The Consumer <CG> <zz> not online")
    refusal = await refused(parts, RUNNING, **(info(parts) | {"consumerGroup": "No"}))
    assert refusal.remark == "The Consumer <No> <c1> not online"


async def test_an_old_consumer_is_not_asked(parts: Parts) -> None:
    wire = parts.join("CG", {"T": "*"}, version=61)
    refusal = await refused(parts, RUNNING, **info(parts))
    assert refusal.code == codes.SYSTEM_ERROR
    assert refusal.remark.startswith("The Consumer <c1> Version <61> too low to finish")
    assert wire.asked == []


async def test_a_message_is_given_to_one_consumer(parts: Parts) -> None:
    parts.topics.put(TopicConfig("T", topic_sys_flag=3))
    parts.groups.find("CG")
    offset = parts.put("T", body=b"again")
    wire = parts.join("CG", {"T": "*"})
    wire.answer = Command(0, body=b"consumed")
    fields = {
        "consumerGroup": "CG",
        "clientId": "c1",
        "msgId": offset_message_id(HOST, offset),
        "topic": "T",
    }
    reply = await parts.ask_later(DIRECTLY, **fields)
    assert reply == Response(0, None, None, b"consumed")
    ((code, sent, body, _),) = wire.asked
    assert code == DIRECTLY
    assert sent == {**fields, "brokerName": "broker-a", "topicSysFlag": "3", "groupSysFlag": "0"}
    assert decode_record(body).body == b"again"


@pytest.mark.parametrize(
    ("message_id", "code", "remark"),
    [
        ("", codes.SYSTEM_ERROR, "name the message by its id"),
        ("xyz", codes.SYSTEM_ERROR, "an offset message id has 32"),
        ("Z" * 32, codes.SYSTEM_ERROR, "not made of hexadecimal digits"),
        (
            offset_message_id(HOST, 99_999_999),
            codes.SYSTEM_ERROR,
            "can not find message by the offset, 99999999",
        ),
    ],
)
async def test_a_message_that_is_not_there_can_not_be_given(
    parts: Parts, message_id: str, code: int, remark: str
) -> None:
    wire = parts.join("CG", {"T": "*"})
    fields = {"consumerGroup": "CG", "clientId": "c1", "msgId": message_id}
    refusal = await refused(parts, DIRECTLY, **fields)
    assert refusal.code == code
    assert remark in refusal.remark
    assert wire.asked == []


async def test_without_a_client_id_nobody_is_asked(parts: Parts) -> None:
    offset = parts.put("T")
    parts.join("CG", {"T": "*"})
    fields = {"consumerGroup": "CG", "msgId": offset_message_id(HOST, offset)}
    assert (await refused(parts, DIRECTLY, **fields)).remark == "The Consumer <CG> <> not online"


async def test_a_consumer_that_does_not_read_is_sent_no_more(parts: Parts) -> None:
    wire = parts.join("CG", {"T": "*"}, client_id="c1")
    wire.is_full = True
    refusal = await refused(
        parts, codes.GET_CONSUMER_RUNNING_INFO, consumerGroup="CG", clientId="c1"
    )
    assert refusal.code == codes.SYSTEM_BUSY
    assert "<CG> <c1> does not read what it was sent" in (refusal.remark or "")
    assert wire.asked == []
