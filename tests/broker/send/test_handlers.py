"""SEND in all its forms over a socket: stored records, responses, refusals."""

import asyncio

import pytest
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.headers.pull import PullMessageResponse
from aerobee.protocol.headers.send import SendMessage, SendMessageResponse, SendMessageV1
from aerobee.protocol.message import properties
from aerobee.protocol.message.batch import Entry, encode_batch, split_batch, unwrap
from aerobee.protocol.message.message_id import parse_offset_message_id

from ..conftest import Caller, Config, Start, parked, records

ON_BOTH_ENGINES = True


async def test_a_message_is_stored_as_sent(broker: Broker, caller: Caller) -> None:
    answer = await caller.send("T", b"hello", queue_id=2, TAGS="paid", KEYS="k1 k2", UNIQ_KEY="U1")
    header = answer.header(SendMessageResponse)
    assert (answer.code, header.queue_id, header.queue_offset) == (0, 2, 0)
    assert (header.transaction_id, header.region, header.trace_on) == ("U1", "DefaultRegion", True)
    (record,) = records(await caller.pull("T", queue_id=2))
    assert (record.body, record.topic, record.queue_id, record.flag) == (b"hello", "T", 2, 7)
    assert (record.born_ms, record.is_body_intact) == (1_700_000_000_000, True)
    assert record.properties == {
        "TAGS": "paid",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "U1",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    assert parse_offset_message_id(header.msg_id) == (record.store_host, record.log_offset)
    assert record.store_host == b"\x7f\0\0\1" + broker.port.to_bytes(4, "big")


async def test_messages_and_responses_carry_trace_on_false_if_tracing_is_off(
    start: Start, config: Config
) -> None:
    caller = Caller(await start(config(trace_on=False, timer_wheel_enable=True)))
    body = encode_batch([Entry(0, b"1", b""), Entry(0, b"2", b"")])
    answers = [
        await caller.send("T", b"one"),
        await caller.send("T", b"later", TIMER_DELAY_SEC="60"),
        await caller.send("T", body, batch=True),
        await caller.send("T", b"nowhere", queue_id=99),
    ]
    assert [answer.code for answer in answers] == [0, 0, 0, codes.INVALID_PARAMETER]
    assert [answer.fields()["TRACE_ON"] for answer in answers] == ["false"] * 4
    found = records(await caller.pull("T"))
    assert [record.properties["TRACE_ON"] for record in found] == ["false"] * 3
    await caller.peers.close()


async def test_the_long_header_of_version_1_is_accepted(caller: Caller) -> None:
    header = SendMessageV1("pg", "T", "TBW102", 4, 0, 0, 5, 0, "TAGS\x01a\x02")
    answer = await caller.ask(codes.SEND_MESSAGE, header, b"old")
    assert answer.code == 0
    (record,) = records(await caller.pull("T"))
    assert (record.body, record.properties["TAGS"]) == (b"old", "a")


async def test_offsets_increase_by_one_in_each_queue(caller: Caller) -> None:
    offsets = []
    for number in range(6):
        answer = await caller.send("T", b"%d" % number, queue_id=number % 2)
        offsets.append(answer.header(SendMessageResponse).queue_offset)
    assert offsets == [0, 0, 1, 1, 2, 2]


async def test_a_missing_unique_key_is_generated(caller: Caller) -> None:
    answer = await caller.send("T")
    made = answer.header(SendMessageResponse).transaction_id
    (record,) = records(await caller.pull("T"))
    assert made == record.properties["UNIQ_KEY"]
    assert len(made or "") == 32


async def test_with_a_negative_queue_id_the_broker_chooses_the_queue(caller: Caller) -> None:
    answer = await caller.send("T", queue_id=-1)
    assert 0 <= answer.header(SendMessageResponse).queue_id < 4


async def test_the_property_pop_ck_is_not_stored(caller: Caller) -> None:
    await caller.send("T", A="1", POP_CK="forged", TAGS="x")
    (record,) = records(await caller.pull("T"))
    assert "POP_CK" not in record.properties
    assert (record.properties["A"], record.properties["TAGS"]) == ("1", "x")


async def test_properties_without_a_final_separator_and_with_similar_names_are_parsed(
    caller: Caller,
) -> None:
    header = SendMessageV1(
        "pg", "T", "TBW102", 4, 0, 0, 5, 0, "MY_UNIQ_KEY\x01no\x02XTAGS\x01no\x02UNIQ_KEY\x01yes"
    )
    answer = await caller.ask(codes.SEND_MESSAGE, header, b"x")
    assert answer.header(SendMessageResponse).transaction_id == "yes"
    (record,) = records(await caller.pull("T"))
    assert record.properties["UNIQ_KEY"] == "yes"
    assert record.properties["CLUSTER"] == "DefaultCluster"
    assert records(await caller.pull("T", expression="no")) == []


async def test_an_unknown_topic_is_created_with_the_clients_queue_count(
    broker: Broker, caller: Caller
) -> None:
    assert (await caller.send("fresh")).code == 0
    topic = broker.topics.get("fresh")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (4, 4, 6)


async def test_without_auto_creation_an_unknown_topic_is_refused(
    start: Start, config: Config
) -> None:
    broker = await start(config(auto_create_topic_enable=False))
    caller = Caller(broker)
    answer = await caller.send("fresh")
    assert answer.code == codes.TOPIC_NOT_EXIST
    assert "topic[fresh] not exist, apply first please!" in (answer.remark or "")
    assert answer.fields() == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert broker.topics.get("fresh") is None
    await caller.peers.close()


@pytest.mark.parametrize(
    ("topic", "code", "word"),
    [
        ("a/b", codes.INVALID_PARAMETER, "illegal"),
        ("../up", codes.INVALID_PARAMETER, "illegal"),
        ("", codes.INVALID_PARAMETER, "blank"),
        ("x" * 128, codes.INVALID_PARAMETER, "127"),
        ("SCHEDULE_TOPIC_XXXX", codes.NO_PERMISSION, "forbidden"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", codes.NO_PERMISSION, "forbidden"),
    ],
)
async def test_an_illegal_topic_is_refused(
    broker: Broker, caller: Caller, topic: str, code: int, word: str
) -> None:
    answer = await caller.send(topic)
    assert answer.code == code
    assert word in (answer.remark or "")
    assert topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC") or not broker.topics.get(
        topic
    )


async def test_a_send_to_an_unknown_queue_is_refused(caller: Caller) -> None:
    await caller.send("T")
    answer = await caller.send("T", queue_id=4)
    assert answer.code == codes.INVALID_PARAMETER
    assert "queueId[4]" in (answer.remark or "")


async def test_the_system_flag_of_batch_queue_records_is_illegal_in_a_send(
    caller: Caller,
) -> None:
    header = SendMessage("pg", "T", "TBW102", 4, 0, -1, 1, 0, "")
    answer = await caller.ask(codes.SEND_MESSAGE_V2, header, b"x")
    assert answer.code == codes.MESSAGE_ILLEGAL
    assert "system flag -1" in (answer.remark or "")


async def test_the_property_of_batch_queue_records_is_illegal_in_a_send(caller: Caller) -> None:
    for more in ({}, {"TRAN_MSG": "true", "PGROUP": "pg"}):
        answer = await caller.send("T", INNER_NUM="2", pairs=more)
        assert answer.code == codes.MESSAGE_ILLEGAL
        assert "INNER_NUM" in (answer.remark or "")
    assert (await caller.send("T", MY_INNER_NUM="2")).code == codes.SUCCESS
    assert len(records(await caller.pull("T"))) == 1


async def test_an_ordered_topic_is_closed_while_the_broker_takes_no_writes(
    broker: Broker, caller: Caller
) -> None:
    broker.topics.put(TopicConfig("Ordered", 1, 1, order=True))
    assert (await caller.send("Ordered")).code == codes.SUCCESS
    for permission, code in ((4, codes.NO_PERMISSION), (6, codes.SUCCESS)):
        change = f"brokerPermission={permission}".encode()
        assert (await caller.ask(codes.UPDATE_BROKER_CONFIG, None, change)).code == codes.SUCCESS
        answer = await caller.send("Ordered")
        assert answer.code == code
        assert code == codes.SUCCESS or "is in order" in (answer.remark or "")
        assert (await caller.send("T")).code == codes.SUCCESS
    assert len(records(await caller.pull("Ordered"))) == 2


async def test_ordered_topics_are_closed_on_a_broker_started_without_write_permission(
    start: Start, config: Config
) -> None:
    broker = await start(config(broker_permission=4))
    broker.topics.put(TopicConfig("Ordered", 1, 1, order=True))
    caller = Caller(broker)
    assert (await caller.send("Ordered")).code == codes.NO_PERMISSION
    assert (await caller.send("T")).code == codes.SUCCESS
    await caller.peers.close()


async def test_bodies_over_the_limit_and_empty_ones_are_refused(caller: Caller) -> None:
    most = 4 << 20
    assert (await caller.send("T", b"x" * most)).code == 0
    answer = await caller.send("T", b"x" * (most + 1))
    assert answer.code == codes.MESSAGE_ILLEGAL
    assert str(most) in (answer.remark or "")
    empty = await caller.send("T", b"")
    assert empty.code == codes.SYSTEM_ERROR
    assert "empty" in (empty.remark or "")
    long = await caller.send("T", P="x" * 33_000)
    assert long.code == codes.MESSAGE_ILLEGAL
    assert (await caller.send("T")).header(SendMessageResponse).queue_offset == 1


def batch_of(count: int) -> bytes:
    return encode_batch(
        Entry(n, b"body-%d" % n, properties.encode({"TAGS": f"t{n}", "UNIQ_KEY": f"U{n}"}))
        for n in range(count)
    )


async def test_the_messages_of_a_batch_are_stored_adjacent(caller: Caller) -> None:
    await caller.send("T", b"before")
    answer = await caller.send(
        "T", batch_of(3), code=codes.SEND_BATCH_MESSAGE, batch=True, UNIQ_KEY="U0,U1,U2"
    )
    header = answer.header(SendMessageResponse)
    assert (answer.code, header.queue_offset, header.transaction_id) == (0, 1, "U0,U1,U2")
    found = records(await caller.pull("T", 1))
    assert [record.body for record in found] == [b"body-0", b"body-1", b"body-2"]
    assert [record.queue_offset for record in found] == [1, 2, 3]
    assert [record.flag for record in found] == [0, 1, 2]
    assert [record.properties["TAGS"] for record in found] == ["t0", "t1", "t2"]
    assert all(record.properties["CLUSTER"] == "DefaultCluster" for record in found)
    ids = [parse_offset_message_id(text)[1] for text in header.msg_id.split(",")]
    assert ids == [record.log_offset for record in found]
    assert [r.body for r in records(await caller.pull("T", expression="t1"))] == [b"body-1"]


async def test_a_batch_without_a_unique_key_has_no_transaction_id(caller: Caller) -> None:
    sent = await caller.send("T", batch_of(3), code=codes.SEND_BATCH_MESSAGE, batch=True)
    assert sent.code == 0
    assert "transactionId" not in sent.fields()
    assert sent.fields()["queueOffset"] == "0"


async def test_a_batch_to_a_batch_queue_is_one_record_with_one_id(
    broker: Broker, caller: Caller
) -> None:
    broker.topics.put(TopicConfig("B", 2, 2, attributes={"queue.type": "BatchCQ"}))
    empty = await caller.ask(codes.GET_MIN_OFFSET, {"topic": "B", "queueId": "0"})
    assert empty.fields()["offset"] == "-1"
    for first in (0, 3):
        sent = await caller.send(
            "B", batch_of(3), code=codes.SEND_BATCH_MESSAGE, batch=True, UNIQ_KEY="ONE"
        )
        assert (sent.code, sent.fields()["batchUniqId"]) == (0, "ONE")
        assert sent.fields()["queueOffset"] == str(first)
        assert "," not in sent.fields()["msgId"]
    pulled = await caller.pull("B", 1)
    header = pulled.header(PullMessageResponse)
    assert (header.next_offset, header.min_offset, header.max_offset) == (6, 0, 6)
    found = [one for each in records(pulled) for one in unwrap(each)]
    assert [one.queue_offset for one in found] == [0, 1, 2, 3, 4, 5]
    assert [one.body for one in found] == [entry.body for entry in split_batch(batch_of(3))] * 2
    assert broker.stats.puts("B").messages == 6


async def test_a_batch_and_a_message_wake_a_parked_pull_of_a_batch_queue(
    broker: Broker, caller: Caller
) -> None:
    broker.topics.put(TopicConfig("B", 1, 1, attributes={"queue.type": "BatchCQ"}))
    await caller.send("B", batch_of(1), code=codes.SEND_BATCH_MESSAGE, batch=True)
    waiting = asyncio.create_task(caller.pull("B", 1, suspend_ms=15_000))
    await parked(broker, 1)
    await caller.send("B", batch_of(2), code=codes.SEND_BATCH_MESSAGE, batch=True)
    assert (await waiting).header(PullMessageResponse).next_offset == 3
    waiting = asyncio.create_task(caller.pull("B", 3, suspend_ms=15_000))
    await parked(broker, 1)
    await caller.send("B", b"single")
    assert [record.body for record in records(await waiting)] == [b"single"]


async def test_a_compacted_topic_takes_no_message_without_a_key(
    broker: Broker, caller: Caller
) -> None:
    broker.topics.put(TopicConfig("C", 1, 1, attributes={"cleanup.policy": "COMPACTION"}))
    for pairs in ({}, {"KEYS": " "}, {"TAGS": "KEYS"}):
        answer = await caller.send("C", pairs=pairs)
        assert answer.code == codes.MESSAGE_ILLEGAL
        assert (answer.remark or "").startswith("Required message key is missing: topic C has")
        assert answer.fields()["TRACE_ON"] == "true"
    assert (await caller.send("C", b"keyed", KEYS="k")).code == 0
    assert [record.body for record in records(await caller.pull("C"))] == [b"keyed"]


async def test_messages_of_a_topic_with_multiple_tags_are_marked(
    broker: Broker, caller: Caller
) -> None:
    broker.topics.put(TopicConfig("M", 1, 1, topic_filter_type="MULTI_TAG"))
    later = str(broker.now_ms() + 60_000)
    assert (await caller.send("M", b"one", TAGS="a")).code == 0
    assert (await caller.send("M", batch_of(2), batch=True)).code == 0
    assert "recallHandle" in (await caller.send("M", TIMER_DELIVER_MS=later)).fields()
    assert [record.sys_flag for record in records(await caller.pull("M"))] == [2, 2, 2]
    await caller.send("T", b"one", TAGS="a")
    assert [record.sys_flag for record in records(await caller.pull("T"))] == [0]


async def test_a_malformed_batch_stores_nothing(caller: Caller) -> None:
    await caller.send("T", b"before")
    answer = await caller.send("T", batch_of(3)[:-4], batch=True, code=codes.SEND_BATCH_MESSAGE)
    assert answer.code == codes.SYSTEM_ERROR
    retry = await caller.send("%RETRY%cg", batch_of(2), batch=True, code=codes.SEND_BATCH_MESSAGE)
    assert retry.code == codes.MESSAGE_ILLEGAL
    assert len(records(await caller.pull("T"))) == 1


async def test_a_message_over_the_retry_limit_goes_to_the_dead_letter_queue(
    broker: Broker, caller: Caller
) -> None:
    assert (await caller.send("%RETRY%cg", b"fine", reconsume_times=3)).code == 0
    answer = await caller.send("%RETRY%cg", b"dead", reconsume_times=4, max_reconsume_times=3)
    assert answer.code == 0
    assert [r.body for r in records(await caller.pull("%RETRY%cg"))] == [b"fine"]
    (dead,) = records(await caller.pull("%DLQ%cg"))
    assert (dead.body, dead.properties["DELAY"]) == (b"dead", "-1")


async def test_a_send_creates_a_retry_topic_like_any_other(broker: Broker, caller: Caller) -> None:
    for name in ("%RETRY%new", "%DLQ%new"):
        assert (await caller.send(name, queue_id=3)).code == 0
    header = SendMessage("pg", "%RETRY%unit", "TBW102", 4, 3, 0, 1, 0, "", 0, unit_mode=True)
    assert (await caller.ask(codes.SEND_MESSAGE_V2, header, b"body")).code == 0
    unit = broker.topics.get("%RETRY%unit")
    assert unit is not None
    assert (unit.write_queue_nums, unit.topic_sys_flag) == (4, 2)


async def test_without_auto_creation_a_send_creates_a_retry_topic_with_one_queue(
    start: Start, config: Config
) -> None:
    broker = await start(config(auto_create_topic_enable=False))
    caller = Caller(broker)
    refused = await caller.send("%RETRY%new", queue_id=3)
    assert (refused.code, "has 1 queues" in (refused.remark or "")) == (29, True)
    assert (await caller.send("%RETRY%new")).code == 0
    assert (await caller.send("%DLQ%new")).code == codes.TOPIC_NOT_EXIST
    await caller.peers.close()


async def test_sends_of_one_tick_are_answered_one_by_one_and_stored_in_order(
    caller: Caller,
) -> None:
    batch = encode_batch([Entry(0, b"two", b""), Entry(0, b"three", b"")])
    answers = await asyncio.gather(
        caller.send("T", b"one", UNIQ_KEY="U1"),
        caller.send("T", batch, batch=True, code=codes.SEND_BATCH_MESSAGE),
        caller.send("T", b"", UNIQ_KEY="U2"),
        caller.send("T", b"beyond", queue_id=9),
        caller.send("T", b"x" * (5 << 20)),
        caller.send("T", b"four", UNIQ_KEY="é-4"),
        caller.send("T", b"later", DELAY="18"),
        caller.send("T", b"five", UNIQ_KEY="U5"),
    )
    assert [answer.code for answer in answers] == [
        codes.SUCCESS,
        codes.SUCCESS,
        codes.SYSTEM_ERROR,
        codes.INVALID_PARAMETER,
        codes.MESSAGE_ILLEGAL,
        codes.SUCCESS,
        codes.SUCCESS,
        codes.SUCCESS,
    ]
    remarks = [answer.remark or "" for answer in answers]
    assert "empty" in remarks[2]
    assert "queueId[9]" in remarks[3]
    assert "5242880" in remarks[4]
    stored = records(await caller.pull("T"))
    assert [record.body for record in stored] == [b"one", b"two", b"three", b"four", b"five"]
    places = {record.body: (record.queue_offset, record.offset_id) for record in stored}
    for number, body, unique in ((0, b"one", "U1"), (5, b"four", "é-4"), (7, b"five", "U5")):
        told = answers[number].header(SendMessageResponse)
        assert (told.queue_offset, told.msg_id) == places[body]
        assert told.transaction_id == unique


async def test_a_fault_of_the_store_fails_each_send_of_the_tick_and_later_ones_succeed(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await caller.send("T", b"before")

    def broken(messages: object) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(broker.store, "put_all", broken)
        batch = encode_batch([Entry(0, b"batch", b"")])
        answers = await asyncio.gather(
            caller.send("T", b"lost"),
            caller.send("T", batch, batch=True, code=codes.SEND_BATCH_MESSAGE),
            caller.send("T", b"lost"),
        )
    assert [answer.code for answer in answers] == [
        codes.SYSTEM_ERROR,
        codes.SUCCESS,
        codes.SYSTEM_ERROR,
    ]
    await caller.send("T", b"after")
    stored = [record.body for record in records(await caller.pull("T"))]
    assert stored == [b"before", b"batch", b"after"]


async def test_a_oneway_send_is_stored_without_a_response(caller: Caller) -> None:
    header = SendMessage("pg", "T", "TBW102", 4, 0, 0, 5, 0, "UNIQ_KEY\x01U\x02")
    await caller.peers.oneway(caller.address, codes.SEND_MESSAGE_V2, header, b"quiet")
    assert (await caller.send("T", b"loud")).header(SendMessageResponse).queue_offset == 1
    assert [record.body for record in records(await caller.pull("T"))] == [b"quiet", b"loud"]


async def test_the_last_value_of_a_repeated_property_wins(caller: Caller) -> None:
    text = "UNIQ_KEY\x01old\x02TAGS\x01old\x02UNIQ_KEY\x01new\x02TAGS\x01new\x02"
    header = SendMessageV1("pg", "T", "TBW102", 4, 0, 0, 5, 0, text)
    answer = await caller.ask(codes.SEND_MESSAGE, header, b"x")
    assert answer.header(SendMessageResponse).transaction_id == "new"
    assert records(await caller.pull("T", expression="old")) == []
    assert len(records(await caller.pull("T", expression="new"))) == 1


async def test_a_refusal_names_the_missing_field(caller: Caller) -> None:
    answer = await caller.ask(codes.SEND_MESSAGE_V2, {"a": "pg", "b": "T"}, b"x")
    assert answer.code == codes.SYSTEM_ERROR
    assert "`e`" in (answer.remark or "")


async def test_a_send_needs_no_group_and_no_default_topic(caller: Caller) -> None:
    await caller.send("T")
    short = {"b": "T", "e": "+1", "f": "00", "g": "1", "h": "0"}
    assert (await caller.ask(codes.SEND_MESSAGE_V2, short, b"x")).code == 0
    long = {"topic": "T", "queueId": "1", "sysFlag": "0", "bornTimestamp": "1", "flag": "0"}
    assert (await caller.ask(codes.SEND_MESSAGE, long, b"y")).code == 0
    assert [r.body for r in records(await caller.pull("T", queue_id=1))] == [b"x", b"y"]
