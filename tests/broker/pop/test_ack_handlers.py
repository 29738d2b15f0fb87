"""Acknowledging what was popped, making it invisible for longer, and handles that don't fit."""

import base64
from typing import Any

import pytest
from aerobee.protocol import codes
from aerobee.protocol.bodies.pop import (
    AckMsg,
    BatchAck,
    BatchAckMessageRequestBody,
    BatchAckMsg,
    PopCheckPoint,
)
from aerobee.protocol.bodies.stats import BrokerStatsData
from aerobee.protocol.command import Command
from aerobee.protocol.headers.groups import StatsData
from aerobee.protocol.message.pop_handles import parse_handle
from aerobee.protocol.message.record import Record, decode_record

from ...clocks import Clock
from ..conftest import Config, Run
from ..popping import BACK_AFTER_MS, INVISIBLE_MS, Popper

REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
WHEEL_TOPIC = "rmq_sys_wheel_timer"


@pytest.fixture
async def p(run: Run, config: Config, clock: Clock) -> Popper:
    return Popper(*await run(config()), clock, queues=2)


@pytest.fixture
async def written(run: Run, config: Config, clock: Clock) -> Popper:
    """One whose broker writes every check point and acknowledgement, as RocketMQ's does."""
    return Popper(*await run(config(enable_pop_buffer_merge=False)), clock)


def waiting_in_the_timer(p: Popper) -> list[Record]:
    """The messages that wait for their time."""
    store = p.broker.store
    entries = store.entries(WHEEL_TOPIC, 0, 0, 1_000)
    return [decode_record(store.message_at(place) or b"") for place, _, _ in entries]


async def batch_ack(p: Popper, *acks: BatchAck) -> Command:
    body = BatchAckMessageRequestBody(p.broker.config.broker_name, list(acks)).encode()
    return await p.caller.ask(codes.BATCH_ACK_MESSAGE, None, body)


def batch_of(p: Popper, text: str, numbers: list[int], **wanted: Any) -> BatchAck:
    """The batch that a client makes of the handles of one pop: a bit for each offset behind the
    first."""
    each = parse_handle(text)
    bits = sum(1 << number for number in numbers)
    data = bits.to_bytes(-(-bits.bit_length() // 8), "little")
    usual: dict[str, Any] = {
        "consumer_group": p.group,
        "topic": p.topic,
        "retry": each.retry,
        "start_offset": each.start_offset,
        "queue_id": each.queue_id,
        "revive_queue_id": each.revive_queue_id,
        "pop_time": each.pop_ms,
        "invisible_time": each.invisible_ms,
        "bits": base64.b64encode(data).decode(),
    }
    return BatchAck(**(usual | wanted))


# --- what is written ------------------------------------------------------------------------------


async def test_what_is_acknowledged_in_time_is_never_written(p: Popper) -> None:
    await p.send(b"a", b"b")
    for text in (await p.pop()).values():
        await p.ack(text)
    await p.later(BACK_AFTER_MS)
    assert waiting_in_the_timer(p) == []
    assert p.broker.pop.buffer.count == 0


async def test_a_check_point_is_written_as_java_writes_it(written: Popper) -> None:
    p = written
    await p.send(b"a", b"b")
    pop_ms = p.clock.ms
    await p.pop()
    (found,) = waiting_in_the_timer(p)
    revive_ms = pop_ms + INVISIBLE_MS
    assert found.body == (
        b'{"bm":0,"bn":"broker-a","c":"cg","d":[0,1],"it":30000,"n":2,"pt":%d,"q":0,'
        b'"reviveTime":%d,"ro":0,"so":0,"t":"T"}' % (pop_ms, revive_ms)
    )
    assert found.properties == {
        "REAL_TOPIC": REVIVE_TOPIC,
        "REAL_QID": "0",
        "TIMER_DELIVER_MS": str(revive_ms - 1_000),
        "TIMER_OUT_MS": str(revive_ms - 2_000),
        "UNIQ_KEY": f"T@0@0@cg@{pop_ms}@broker-a@ck",
        "TAGS": "ck",
    }


async def test_acknowledgements_are_written_as_java_writes_them(written: Popper) -> None:
    p = written
    await p.send(b"a", b"b", b"c")
    pop_ms = p.clock.ms
    handles = await p.pop()
    await p.ack(handles[b"b"])
    await batch_ack(p, batch_of(p, handles[b"a"], [0, 2]))
    _, one, several = waiting_in_the_timer(p)
    assert one.body == (b'{"ao":1,"bn":"broker-a","c":"cg","pt":%d,"q":0,"so":0,"t":"T"}' % pop_ms)
    assert one.properties["UNIQ_KEY"] == f"T@0@1@cg@{pop_ms}@broker-a@ack"
    assert several.body == (
        b'{"ao":-1,"aol":[0,2],"bn":"broker-a","c":"cg","pt":%d,"q":0,"so":0,"t":"T"}' % pop_ms
    )
    assert several.properties["UNIQ_KEY"] == f"T@0@-1@cg@{pop_ms}@broker-a@ack"
    assert (one.properties["TAGS"], several.properties["TAGS"]) == ("ack", "bAck")
    for each in (one, several):
        assert each.properties["TIMER_DELIVER_MS"] == str(pop_ms + INVISIBLE_MS)
        assert each.properties["REAL_TOPIC"] == REVIVE_TOPIC
    await p.later(BACK_AFTER_MS)
    assert await p.pop() == {}


async def test_a_check_point_that_stayed_long_is_written_with_what_it_knows(p: Popper) -> None:
    await p.send(b"a", b"b", b"c")
    handles = await p.pop()
    await p.ack(handles[b"b"])
    await p.later(10_000)
    (found,) = waiting_in_the_timer(p)
    assert PopCheckPoint.decode(found.body).bit_map == 0b010
    assert p.broker.pop.buffer.count == 0
    assert p.offset() == 3
    await p.ack(handles[b"a"])
    await p.later(BACK_AFTER_MS)
    assert list(await p.pop()) == [b"c"]


# --- batches --------------------------------------------------------------------------------------


async def test_a_batch_acknowledges_several_messages_of_several_pops(p: Popper) -> None:
    await p.send(b"a", b"b", b"c", b"d")
    await p.send(b"e", queue_id=1)
    first = await p.pop(queue_id=0, max_messages=3)
    p.clock.ms += 1
    second = await p.pop(queue_id=1)
    answer = await batch_ack(p, batch_of(p, first[b"a"], [0, 2]), batch_of(p, second[b"e"], [0]))
    assert answer.code == 0
    assert (p.offset(queue_id=0), p.offset(queue_id=1)) == (0, 1)
    await p.later(BACK_AFTER_MS)
    assert (await p.pop()).keys() == {b"b", b"d"}


async def test_a_batch_reaches_the_retry_topic_by_its_flag(p: Popper) -> None:
    await p.send(b"a")
    await p.pop()
    await p.later(BACK_AFTER_MS)
    again = await p.pop()
    assert (await batch_ack(p, batch_of(p, again[b"a"], [0]))).code == 0
    await p.later(BACK_AFTER_MS)
    assert await p.pop() == {}


async def test_of_a_batch_all_that_can_be_is_done_and_the_rest_is_named(p: Popper) -> None:
    await p.send(b"a", b"b")
    handles = await p.pop()
    wrong = batch_of(p, handles[b"a"], [0], queue_id=7)
    answer = await batch_ack(p, wrong, batch_of(p, handles[b"a"], [0, 1]))
    assert (answer.code, p.offset()) == (codes.MESSAGE_ILLEGAL, 2)
    assert "queueId[7] is illegal" in (answer.remark or "")


@pytest.mark.parametrize(
    ("wanted", "code", "why"),
    [
        ({"bits": "no base64"}, codes.SYSTEM_ERROR, "its bits are no base64"),
        ({"bits": "A" * 8_000}, codes.SYSTEM_ERROR, "its bits have 6000 bytes"),
        ({"retry": "7"}, codes.SYSTEM_ERROR, "the retry flag is '7'"),
        ({"topic": "Nowhere"}, codes.TOPIC_NOT_EXIST, "topic[Nowhere] not exist"),
        ({"start_offset": 5}, codes.NO_MESSAGE, "offset is illegal"),
        ({"start_offset": -1}, codes.NO_MESSAGE, "offset is illegal"),
        ({"revive_queue_id": 8}, codes.MESSAGE_ILLEGAL, "revive queue 8, there are 0 to 7"),
        ({"invisible_time": -1}, codes.MESSAGE_ILLEGAL, "invisible time -1 ms"),
        ({"consumer_group": "new"}, codes.SUBSCRIPTION_GROUP_NOT_EXIST, "group [new] does not"),
    ],
)
async def test_a_batch_that_does_not_fit_is_refused_with_the_reason(
    p: Popper, wanted: dict[str, Any], code: int, why: str
) -> None:
    await p.send(b"a")
    handles = await p.pop()
    answer = await batch_ack(p, batch_of(p, handles[b"a"], [0], **wanted))
    assert answer.code == code
    assert why in (answer.remark or "")
    assert p.offset() == 0


@pytest.mark.parametrize("body", [b"", b'{"acks":[],"brokerName":"broker-a"}'])
async def test_a_batch_of_nothing_is_refused(p: Popper, body: bytes) -> None:
    answer = await p.caller.ask(codes.BATCH_ACK_MESSAGE, None, body)
    assert answer.code == codes.NO_MESSAGE


async def test_a_batch_that_is_no_json_is_refused(p: Popper) -> None:
    answer = await p.caller.ask(codes.BATCH_ACK_MESSAGE, None, b"{")
    assert answer.code == codes.SYSTEM_ERROR


# --- longer, shorter ------------------------------------------------------------------------------


async def test_a_changed_time_counts_from_now_and_gives_a_new_handle(p: Popper) -> None:
    await p.send(b"a", b"b")
    handles = await p.pop()
    p.clock.ms += 20_000
    answer = await p.change(handles[b"a"], 60_000)
    old = parse_handle(handles[b"a"])
    assert answer.fields() == {
        "popTime": str(p.clock.ms),
        "invisibleTime": "60000",
        "reviveQid": str(old.revive_queue_id),
    }
    assert (await p.ack(handles[b"b"])).code == 0
    await p.later(BACK_AFTER_MS)
    assert await p.pop() == {}
    await p.later(30_000)
    assert list(await p.pop()) == [b"a"]


async def test_a_message_may_be_changed_and_then_acknowledged(p: Popper) -> None:
    await p.send(b"a")
    (text,) = (await p.pop()).values()
    for _ in range(3):
        p.clock.ms += 1_000
        fields = (await p.change(text, 20_000)).fields()
        text = (
            f"0 {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} 0 broker-a 0 0"
        )
    assert (await p.ack(text)).code == 0
    for _ in range(3):
        await p.later(BACK_AFTER_MS)
        assert await p.pop() == {}


async def test_a_message_may_be_given_back_at_once(p: Popper) -> None:
    await p.send(b"a")
    (text,) = (await p.pop()).values()
    assert (await p.change(text, 0)).code == 0
    await p.later(4_000)
    assert list(await p.pop()) == [b"a"]


async def test_the_offset_waits_until_a_changed_time_is_on_disk(p: Popper) -> None:
    await p.send(b"a")
    (text,) = (await p.pop()).values()
    end = p.broker.store.durable_end
    await p.change(text, 60_000)
    assert p.broker.store.durable_end == end
    assert p.offset() == 0
    await p.synced()
    p.broker.pop.sweep()
    assert p.offset() == 1


# --- refusals -------------------------------------------------------------------------------------

WORDS = ("start", "pop", "invisible", "revive", "retry", "broker", "queue", "offset")


def altered(text: str, **wanted: object) -> str:
    """A handle with some of its words replaced."""
    words = dict(zip(WORDS, text.split(" "), strict=True))
    return " ".join(str(each) for each in (words | wanted).values())


FOREIGN = [
    ({"broker": "broker-b"}, codes.MESSAGE_ILLEGAL, "is of broker broker-b, this is broker-a"),
    ({"queue": 1}, codes.MESSAGE_ILLEGAL, "is of queue 1, retry flag 0"),
    ({"retry": 1}, codes.MESSAGE_ILLEGAL, "is of queue 0, retry flag 1"),
    ({"offset": 1}, codes.MESSAGE_ILLEGAL, "is of offset 1, popped from 0 on"),
    ({"start": 1}, codes.MESSAGE_ILLEGAL, "popped from 1 on"),
    ({"revive": 8}, codes.MESSAGE_ILLEGAL, "revive queue 8, there are 0 to 7 (reviveQueueNum)"),
    ({"pop": 1_800_000_000_000}, codes.MESSAGE_ILLEGAL, "which no pop here has given"),
    ({"invisible": 259_200_001}, codes.MESSAGE_ILLEGAL, "which no pop here has given"),
    ({"pop": "soon"}, codes.SYSTEM_ERROR, "its pop time is 'soon', it must be a number"),
    ({"queue": ""}, codes.SYSTEM_ERROR, "can't be read"),
]


@pytest.mark.parametrize(("wanted", "code", "why"), FOREIGN)
@pytest.mark.parametrize("by", ["ack", "change"])
async def test_a_handle_that_is_not_the_messages_is_refused_with_the_reason(
    p: Popper, wanted: dict[str, Any], code: int, why: str, by: str
) -> None:
    await p.send(b"a", b"b")
    text = (await p.pop())[b"a"]
    given = {"queue_id": 0, "offset": 0, "topic": "T", "extra_info": altered(text, **wanted)}
    answer = await (p.ack(text, **given) if by == "ack" else p.change(text, 10_000, **given))
    assert answer.code == code, answer.remark
    assert why in (answer.remark or "")
    if by == "change":  # the client reads these before it reads the code
        assert answer.fields() == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
    assert p.offset() == 0
    await p.later(BACK_AFTER_MS)
    assert list(await p.pop()) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("wanted", "code", "why"),
    [
        ({"topic": "Nowhere"}, codes.TOPIC_NOT_EXIST, "topic[Nowhere] not exist"),
        (
            {"queue_id": 2, "extra": {"queue": 2}},
            codes.MESSAGE_ILLEGAL,
            "queueId[2] is illegal, topic:[T] topicConfig.readQueueNums:[2]",
        ),
        ({"offset": 9, "extra": {"offset": 9}}, codes.NO_MESSAGE, "commit:9, store:0~2"),
        # Where a message is asked for that is not there, the handle does not matter.
        ({"offset": 9}, codes.NO_MESSAGE, "commit:9, store:0~2"),
        ({"topic": "%RETRY%cg"}, codes.TOPIC_NOT_EXIST, "topic[%RETRY%cg] not exist"),
        ({"offset": 1, "extra": {"offset": 1}}, codes.MESSAGE_ILLEGAL, "messages [1] of T/0"),
        (
            {"extra_info": "what"},
            codes.SYSTEM_ERROR,
            "it has 1 words, a handle has at least 7",
        ),
        ({"group": "new"}, codes.SUBSCRIPTION_GROUP_NOT_EXIST, "group [new] does not exist"),
        ({"group": "../a"}, codes.SUBSCRIPTION_GROUP_NOT_EXIST, "group [../a] does not exist"),
    ],
)
@pytest.mark.parametrize("by", ["ack", "change"])
async def test_a_request_that_names_no_popped_message_is_refused_with_the_reason(
    p: Popper, wanted: dict[str, Any], code: int, why: str, by: str
) -> None:
    await p.send(b"a", b"b")
    text = (await p.pop(max_messages=1))[b"a"]
    given = {key: value for key, value in wanted.items() if key != "extra"}
    if "extra" in wanted:
        given["extra_info"] = altered(text, **wanted["extra"])
    answer = await (p.ack(text, **given) if by == "ack" else p.change(text, 10_000, **given))
    assert answer.code == code, answer.remark
    assert why in (answer.remark or "")
    assert waiting_in_the_timer(p) == []
    before = set(p.broker.topics.all())
    await p.later(BACK_AFTER_MS)
    assert (await p.pop()).keys() == {b"a", b"b"}
    made = set(p.broker.topics.all()) - before
    assert made == {f"%RETRY%{p.group}_{p.topic}"}


@pytest.mark.parametrize("invisible_ms", [-1, 259_200_001])
async def test_an_invisible_time_out_of_range_is_refused(p: Popper, invisible_ms: int) -> None:
    await p.send(b"a")
    (text,) = (await p.pop()).values()
    answer = await p.change(text, invisible_ms)
    assert answer.code == codes.INVALID_PARAMETER
    assert f"is {invisible_ms} ms, it must be 0 to 259200000" in (answer.remark or "")
    assert (await p.ack(text)).code == 0


async def test_a_handle_expires_when_its_message_comes_again(p: Popper) -> None:
    await p.send(b"a")
    (text,) = (await p.pop()).values()
    await p.later(INVISIBLE_MS + 2_000)
    assert (await p.ack(text)).code == 0  # late, and still in time

    await p.send(b"b")
    (text,) = (await p.pop()).values()
    await p.later(INVISIBLE_MS + 2_001)
    # As in RocketMQ the acknowledgement succeeds; but to keep the message longer it is too late.
    late, refused = await p.ack(text), await p.change(text, 10_000)
    also_late = await batch_ack(p, batch_of(p, text, [0]))
    assert (late.code, also_late.code, refused.code) == (0, 0, codes.NO_MESSAGE)
    for answer in (late, also_late, refused):
        assert "the handle expired 2001 ms ago" in (answer.remark or "")
    await p.later(4_000)
    assert list(await p.pop()) == [b"b"]


@pytest.mark.parametrize("by", ["ack", "change"])
async def test_a_handle_that_expired_long_ago_changes_nothing(p: Popper, by: str) -> None:
    await p.send(b"a")
    text = altered((await p.pop())[b"a"], pop=1_600_000_000_000)
    answer = await (p.ack(text) if by == "ack" else p.change(text, 10_000))
    assert answer.code == (codes.SUCCESS if by == "ack" else codes.NO_MESSAGE)
    assert "the handle expired 99999970000 ms ago" in (answer.remark or "")
    assert p.offset() == 0
    await p.later(BACK_AFTER_MS)
    assert list(await p.pop()) == [b"a"]


def test_what_is_written_of_acknowledgements_is_read_again() -> None:
    one = AckMsg(1, 0, "cg", "T", 0, 5, "b")
    assert BatchAckMsg.decode(one.encode()).ack_offset_list == []
    several = BatchAckMsg(-1, 0, "cg", "T", 0, 5, "b", [1, 2])
    assert BatchAckMsg.decode(several.encode()) == several


async def test_check_points_and_acknowledgements_are_counted(p: Popper) -> None:
    await p.send(b"a", b"b", b"c")
    handles = await p.pop()
    await p.ack(handles[b"a"])
    await batch_ack(p, batch_of(p, handles[b"b"], [1]))
    await p.change(handles[b"c"], 60_000)  # a check point more, and what it was is acknowledged
    p.broker.stats.sample(p.clock.ms)
    found = {}
    cluster = p.broker.config.broker_cluster_name
    for name, key in (("GROUP", "T@cg"), ("BROKER", cluster)):
        for what in ("ACK", "CK"):
            header = StatsData(f"{name}_{what}_NUMS", key)
            answer = await p.caller.ask(codes.VIEW_BROKER_STATS_DATA, header)
            found[header.name] = BrokerStatsData.decode(answer.body or b"").stats_minute.sum
    assert found == {
        "GROUP_ACK_NUMS": 3,
        "GROUP_CK_NUMS": 2,
        "BROKER_ACK_NUMS": 3,
        "BROKER_CK_NUMS": 2,
    }
    p.broker.stats.delete_group("cg")
    answer = await p.caller.ask(codes.VIEW_BROKER_STATS_DATA, StatsData("GROUP_CK_NUMS", "T@cg"))
    assert answer.code == codes.SYSTEM_ERROR
