"""PULL over a socket: results, response codes, long polling, and refusals."""

import asyncio
import os

import pytest
from aerobee.broker.pull import handlers as pull_module
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from aerobee.protocol.bodies.subscription import SubscriptionData
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.headers.pull import (
    BULK,
    CLASS_FILTER,
    COMMIT_OFFSET,
    SUBSCRIPTION,
    PullMessageResponse,
)
from aerobee.protocol.message.batch import Entry, encode_batch
from aerobee.protocol.message.tags import tag_hash
from aerobee.store.base import status
from aerobee.store.engine.messages import Batch, Message
from aerobee.store.engine.store import Found

from ..conftest import Caller, Config, Run, Start, parked, records
from ..virtual_time import in_virtual_time


async def filled(caller: Caller, count: int = 5) -> None:
    for number in range(count):
        await caller.send("T", b"%d" % number, TAGS="even" if number % 2 == 0 else "odd")


async def test_a_pull_returns_messages_and_the_next_offset(caller: Caller) -> None:
    await filled(caller)
    answer = await caller.pull("T", 1, max_messages=3)
    header = answer.header(PullMessageResponse)
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert [record.body for record in records(answer)] == [b"1", b"2", b"3"]
    assert (header.next_offset, header.min_offset, header.max_offset) == (4, 0, 5)


async def test_only_a_bulk_pull_exceeds_the_limits_of_the_settings(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(caller, 100)
    usual = await caller.pull("T", max_messages=90)
    assert [record.body for record in records(usual)] == [b"%d" % number for number in range(32)]
    bulk = await caller.pull("T", max_messages=90, sys_flag=BULK)
    assert [record.body for record in records(bulk)] == [b"%d" % number for number in range(90)]
    assert bulk.header(PullMessageResponse).next_offset == 90
    odd = await caller.pull("T", max_messages=90, sys_flag=BULK, expression="odd")
    assert [record.body for record in records(odd)] == [b"%d" % n for n in range(1, 90, 2)]
    monkeypatch.setattr(pull_module, "BULK_BYTES_MAX", 1)
    assert len(records(await caller.pull("T", max_messages=90, sys_flag=BULK))) == 1


async def test_a_lite_pull_gives_the_same_response(caller: Caller) -> None:
    await filled(caller, 1)
    answer = await caller.pull("T", code=codes.LITE_PULL_MESSAGE)
    assert [record.body for record in records(answer)] == [b"0"]


@pytest.mark.parametrize(
    ("expression", "bodies"),
    [
        ("*", [b"0", b"1", b"2", b"3", b"4"]),
        ("odd", [b"1", b"3"]),
        (" odd || even ", [b"0", b"1", b"2", b"3", b"4"]),
        ("even||none", [b"0", b"2", b"4"]),
    ],
)
async def test_tags_are_filtered(caller: Caller, expression: str, bodies: list[bytes]) -> None:
    await filled(caller)
    answer = await caller.pull("T", expression=expression)
    assert [record.body for record in records(answer)] == bodies
    assert answer.header(PullMessageResponse).next_offset >= int(bodies[-1]) + 1


async def test_a_tag_expression_that_is_slow_to_parse_is_refused(caller: Caller) -> None:
    await filled(caller)
    expression = " || ".join(f"tag{number:05}" for number in range(2_000))
    answer = await caller.pull("T", expression=expression)
    assert answer.code == codes.SUBSCRIPTION_PARSE_FAILED
    for reason in (f"has {len(expression)} characters", "the limit is 16384", "fewer tags"):
        assert reason in (answer.remark or "")
    assert (await caller.pull("T", expression=expression[:11_000])).code != answer.code


@pytest.mark.parametrize(
    ("offset", "code", "remark", "following"),
    [
        (3, codes.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3),
        (4, codes.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3),
        (-1, codes.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
    ],
)
async def test_the_code_tells_why_an_offset_has_no_message(
    caller: Caller, offset: int, code: int, remark: str, following: int
) -> None:
    await filled(caller, 3)
    answer = await caller.pull("T", offset)
    assert (answer.code, answer.remark) == (code, remark)
    assert answer.header(PullMessageResponse).next_offset == following


async def test_a_pull_beyond_an_empty_queue_is_sent_to_offset_0(caller: Caller) -> None:
    await filled(caller, 1)
    at_start = await caller.pull("T", 0, queue_id=3)
    beyond = await caller.pull("T", 5, queue_id=3)
    assert (at_start.code, beyond.code) == (codes.PULL_NOT_FOUND, codes.PULL_OFFSET_MOVED)
    assert beyond.header(PullMessageResponse).next_offset == 0


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (status.NO_MATCHED_MESSAGE, codes.PULL_RETRY_IMMEDIATELY),
        (status.MESSAGE_WAS_REMOVING, codes.PULL_RETRY_IMMEDIATELY),
        (status.OFFSET_FOUND_NULL, codes.PULL_NOT_FOUND),
        (status.OFFSET_OVERFLOW_ONE, codes.PULL_NOT_FOUND),
        (status.OFFSET_OVERFLOW_BADLY, codes.PULL_OFFSET_MOVED),
        (status.OFFSET_TOO_SMALL, codes.PULL_OFFSET_MOVED),
        (status.NO_MATCHED_LOGIC_QUEUE, codes.PULL_OFFSET_MOVED),
        (status.NO_MESSAGE_IN_QUEUE, codes.PULL_OFFSET_MOVED),
    ],
)
async def test_every_status_of_the_store_has_its_code_and_offsets_in_the_response(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch, found: int, code: int
) -> None:
    await filled(caller, 1)
    monkeypatch.setattr(broker.store, "get", lambda *_: Found(found, 70, 60, 90, [], 0, 0))
    answer = await caller.pull("T", 65)
    header = answer.header(PullMessageResponse)
    if found == status.NO_MATCHED_LOGIC_QUEUE:
        found = status.NO_MESSAGE_IN_QUEUE
    assert (answer.code, answer.remark) == (code, status.NAMES[found])
    assert (header.next_offset, header.min_offset, header.max_offset) == (70, 60, 90)
    assert broker.offsets.pull_offset("T", "cg", 0) == 70


async def test_a_pull_without_a_match_returns_the_next_offset(caller: Caller) -> None:
    await filled(caller, 3)
    answer = await caller.pull("T", 0, expression="none")
    assert answer.code == codes.PULL_RETRY_IMMEDIATELY
    assert answer.header(PullMessageResponse).next_offset == 3


async def test_a_waiting_pull_is_answered_by_the_message(broker: Broker, caller: Caller) -> None:
    await filled(caller, 1)
    waiting = asyncio.ensure_future(caller.pull("T", 1, suspend_ms=15_000))
    await parked(broker, 1)
    await caller.send("T", b"news", queue_id=1)
    assert not waiting.done()
    await caller.send("T", b"news")
    assert [record.body for record in records(await waiting)] == [b"news"]


@in_virtual_time
@pytest.mark.parametrize("batch", [False, True])
async def test_a_waiting_pull_is_woken_although_its_time_is_never_up(
    run: Run, config: Config, batch: bool
) -> None:
    """The broker's clock stands still, so that no sweep answers the pull."""
    broker, caller = await run(config())
    await filled(caller, 1)
    waiting = asyncio.ensure_future(caller.pull("T", 1, suspend_ms=15_000))
    await parked(broker, 1)
    body = encode_batch([Entry(0, b"news", b"")]) if batch else b"news"
    await caller.send("T", body, batch=batch)
    assert [record.body for record in records(await waiting)] == [b"news"]


async def test_a_waiting_pull_is_not_woken_by_other_tags(broker: Broker, caller: Caller) -> None:
    await caller.send("T", TAGS="a")
    waiting = asyncio.ensure_future(caller.pull("T", 1, expression="b", suspend_ms=15_000))
    await parked(broker, 1)
    for _ in range(3):
        await caller.send("T", TAGS="a")
    assert not waiting.done()
    await caller.send("T", b"mine", TAGS="b")
    answer = await waiting
    assert [record.body for record in records(answer)] == [b"mine"]
    assert answer.header(PullMessageResponse).next_offset == 5


async def test_a_parked_pull_whose_match_lies_beyond_one_scan_is_answered_at_once(
    broker: Broker, caller: Caller
) -> None:
    await caller.send("T", TAGS="a")
    waiting = asyncio.ensure_future(caller.pull("T", 1, expression="b", suspend_ms=15_000))
    await parked(broker, 1)
    # All in one loop iteration: 900 messages without a match, then the match.
    others = encode_batch(Entry(0, b"x", b"TAGS\x01a\x02") for _ in range(900))
    broker.store.put_batch(Batch(("T", 0), 0, 1, bytes(8), others), b"")
    broker.store.put(
        Message(("T", 0), 0, 0, 1, bytes(8), b"mine", b"TAGS\x01b\x02", tag_hash(b"b"))
    )
    broker.wake(("T", 0))
    answer = await waiting
    assert answer.code == codes.PULL_RETRY_IMMEDIATELY
    following = answer.header(PullMessageResponse).next_offset
    assert 1 < following <= 901
    found = await caller.pull("T", following, expression="b", suspend_ms=15_000)
    assert [record.body for record in records(found)] == [b"mine"]


async def test_a_parked_pull_reads_messages_without_a_match_once(
    broker: Broker, caller: Caller
) -> None:
    await filled(caller, 1)
    waiting = asyncio.ensure_future(caller.pull("T", 1, expression="b", suspend_ms=15_000))
    await parked(broker, 1)
    await caller.send("T", TAGS="a")
    (pull,) = broker.long_polls.parked["T", 0]
    assert pull.header.offset == 2
    await caller.send("T", b"mine", TAGS="b")
    assert [record.body for record in records(await waiting)] == [b"mine"]


async def test_a_parked_pull_is_answered_at_its_timeout(caller: Caller) -> None:
    await filled(caller, 1)
    answer = await caller.pull("T", 1, suspend_ms=1)
    assert answer.code == codes.PULL_NOT_FOUND
    assert answer.header(PullMessageResponse).next_offset == 1


async def test_many_pulls_parked_on_one_queue_are_all_answered(
    broker: Broker, caller: Caller
) -> None:
    await filled(caller, 1)
    waiting = [
        asyncio.ensure_future(caller.pull("T", 1, suspend_ms=15_000, group=f"g{n}"))
        for n in range(50)
    ]
    await parked(broker, 50)
    await caller.send("T", b"all")
    answers = await asyncio.gather(*waiting)
    assert [records(answer)[0].body for answer in answers] == [b"all"] * 50


@in_virtual_time
async def test_the_suspend_time_is_limited_and_a_negative_one_means_zero(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(caller, 1)
    monkeypatch.setattr(pull_module, "SUSPEND_MS_MAX", 1)
    for suspend_ms in (1 << 60, -5):
        answer = await caller.pull("T", 1, suspend_ms=suspend_ms)
        assert answer.code == codes.PULL_NOT_FOUND
    assert broker.long_polls.count == 0


async def test_a_pull_may_carry_an_offset_to_commit(broker: Broker, caller: Caller) -> None:
    await filled(caller, 3)
    await caller.pull("T", 3, sys_flag=COMMIT_OFFSET, commit_offset=2)
    assert broker.offsets.get("T", "cg", 0) == 2
    assert broker.offsets.pull_offset("T", "cg", 0) == 3


async def test_a_parked_pull_commits_its_offset_once_on_arrival(
    broker: Broker, caller: Caller
) -> None:
    await filled(caller, 3)
    waiting = asyncio.ensure_future(
        caller.pull("T", 3, sys_flag=COMMIT_OFFSET, commit_offset=2, suspend_ms=15_000)
    )
    await parked(broker, 1)
    assert broker.offsets.get("T", "cg", 0) == 2
    broker.offsets.commit("T", "cg", 0, 3)
    await caller.send("T", b"news")
    assert [record.body for record in records(await waiting)] == [b"news"]
    assert broker.offsets.get("T", "cg", 0) == 3


async def test_a_pull_without_a_subscription_uses_the_registered_one(caller: Caller) -> None:
    await filled(caller)
    unknown = await caller.pull("T", expression=None)
    assert (unknown.code, unknown.remark) == (
        codes.SUBSCRIPTION_NOT_EXIST,
        "the consumer's group info not exist; send a heartbeat",
    )
    await caller.heartbeat(topics={"T": "odd"}, version=5)
    answer = await caller.pull("T", expression=None, sub_version=5)
    assert [record.body for record in records(answer)] == [b"1", b"3"]
    newer = await caller.pull("T", expression=None, sub_version=6)
    assert newer.code == codes.SUBSCRIPTION_NOT_LATEST
    await caller.send("U")
    other = await caller.pull("U", expression=None)
    assert other.code == codes.SUBSCRIPTION_NOT_EXIST


@pytest.mark.parametrize("text", [" ", "", "odd"])
async def test_a_subscription_without_tag_hashes_matches_nothing(caller: Caller, text: str) -> None:
    await filled(caller)
    wanted = SubscriptionData("T", text)  # as RocketMQ's client encodes a blank expression
    member = ConsumerData("cg", "CONSUME_PASSIVELY", "CLUSTERING", "", [wanted])
    await caller.ask(codes.HEART_BEAT, None, HeartbeatData("c1", [], [member]).encode())
    answer = await caller.pull("T", expression=None)
    assert (answer.code, answer.fields()["nextBeginOffset"]) == (codes.PULL_RETRY_IMMEDIATELY, "5")


async def test_a_pull_without_permission_or_with_invalid_fields_is_refused(
    broker: Broker, caller: Caller
) -> None:
    await filled(caller, 1)
    assert (await caller.pull("nope")).code == codes.TOPIC_NOT_EXIST
    assert (await caller.pull("T", queue_id=4)).code == codes.INVALID_PARAMETER
    assert (await caller.pull("T", expression=" || ")).code == codes.SUBSCRIPTION_PARSE_FAILED
    assert (await caller.pull("T", group="a/b")).code == codes.SUBSCRIPTION_GROUP_NOT_EXIST
    too_long = await caller.pull("T", group="g" * 121)
    assert too_long.code == codes.SUBSCRIPTION_GROUP_NOT_EXIST
    broker.groups.put(SubscriptionGroupConfig("off", consume_enable=False))
    off = await caller.pull("T", group="off")
    assert (off.code, off.fields()["forbiddenType"]) == (codes.NO_PERMISSION, "2")
    topic = broker.topics.get("T")
    assert topic is not None
    topic.perm = 2
    closed = await caller.pull("T")
    assert (closed.code, closed.fields()["forbiddenType"]) == (codes.NO_PERMISSION, "3")


async def test_without_auto_creation_an_unknown_group_is_refused(
    start: Start, config: Config
) -> None:
    broker = await start(config(auto_create_subscription_group=False))
    caller = Caller(broker)
    await caller.send("T")
    answer = await caller.pull("T", group="unknown")
    assert answer.code == codes.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "unknown" in (answer.remark or "")
    await caller.peers.close()


async def test_a_broker_without_read_permission_refuses_a_pull_before_other_checks(
    start: Start, config: Config
) -> None:
    broker = await start(config(broker_permission=2))
    caller = Caller(broker)
    await caller.send("T")
    for topic in ("T", "unknown"):
        answer = await caller.pull(topic)
        assert (answer.code, answer.fields()["forbiddenType"]) == (codes.NO_PERMISSION, "1")
        assert "brokerPermission is 2" in (answer.remark or "")
    await caller.peers.close()


async def test_lite_pulls_can_be_disabled(start: Start, config: Config) -> None:
    broker = await start(config(lite_pull_message_enable=False))
    caller = Caller(broker)
    await caller.send("T")
    answer = await caller.pull("T", code=codes.LITE_PULL_MESSAGE)
    assert (answer.code, answer.fields()["forbiddenType"]) == (codes.NO_PERMISSION, "1")
    assert (await caller.pull("T")).code == 0
    await caller.peers.close()


async def test_a_group_without_broadcast_or_read_permission_is_refused(
    broker: Broker, caller: Caller
) -> None:
    await filled(caller, 1)
    await caller.heartbeat(topics={"T": "*"}, model="BROADCASTING")
    assert (await caller.pull("T", expression=None)).code == 0
    broker.groups.put(SubscriptionGroupConfig("cg", consume_broadcast_enable=False))
    answer = await caller.pull("T", expression=None)
    assert (answer.code, answer.fields()["forbiddenType"]) == (codes.NO_PERMISSION, "4")
    broker.groups.put(SubscriptionGroupConfig("cg"))
    broker.groups.set_readable("cg", "T", False)
    answer = await caller.pull("T", expression=None)
    assert (answer.code, answer.fields()["forbiddenType"]) == (codes.NO_PERMISSION, "5")


async def test_a_pull_with_an_older_subscription_version_than_the_brokers_is_served(
    caller: Caller,
) -> None:
    await filled(caller)
    await caller.heartbeat(topics={"T": "odd"}, version=7)
    answer = await caller.pull("T", expression=None, sub_version=6)
    assert [record.body for record in records(answer)] == [b"1", b"3"]


async def test_class_filter_mode_is_refused(broker: Broker, caller: Caller) -> None:
    await filled(caller, 1)
    answer = await caller.pull("T", sys_flag=CLASS_FILTER)
    assert answer.code == codes.SYSTEM_ERROR
    assert "by class" in (answer.remark or "")
    await caller.heartbeat(topics={"T": "*"})
    group = broker.clients.consumer_group("cg")
    assert group is not None
    group.subscriptions["T"].class_filter_mode = True
    assert "by class" in ((await caller.pull("T", expression=None)).remark or "")


REJECT = b"rejectPullConsumerEnable=%s"


async def test_pulls_of_clients_outside_the_group_can_be_refused(
    start: Start, config: Config
) -> None:
    broker = await start(config(reject_pull_consumer_enable=True))
    caller, stranger = Caller(broker), Caller(broker)
    await filled(caller, 1)
    assert (await caller.pull("T")).code == codes.SUBSCRIPTION_NOT_EXIST
    # Pull consumers register while the setting is off, not while it is on.
    await caller.heartbeat(topics={"T": "*"}, consume_type="CONSUME_ACTIVELY")
    assert broker.clients.consumer_group("cg") is None
    assert (await caller.pull("T")).code == codes.SUBSCRIPTION_NOT_EXIST
    assert (await caller.ask(codes.UPDATE_BROKER_CONFIG, None, REJECT % b"false")).code == 0
    await caller.heartbeat(topics={"T": "*"}, consume_type="CONSUME_ACTIVELY")
    await caller.heartbeat("c2", "pushed", topics={"T": "*"})
    assert (await caller.ask(codes.UPDATE_BROKER_CONFIG, None, REJECT % b"true")).code == 0
    assert (await caller.pull("T")).code == 0
    assert (await caller.pull("T", group="pushed")).code == 0
    refused = await stranger.pull("T")
    assert refused.code == codes.SUBSCRIPTION_NOT_EXIST
    assert "rejectPullConsumerEnable" in (refused.remark or "")
    assert (await stranger.pull("T", group="TOOLS_CONSUMER")).code == 0
    await caller.peers.close()
    await stranger.peers.close()


@pytest.mark.parametrize(
    ("settings", "asked", "count"),
    [
        ({}, 100, 32),
        ({}, 0, 1),
        ({}, -1, 1),
        ({"max_transfer_count_on_message_in_memory": 40}, 100, 40),
        ({"max_transfer_count_on_message_in_memory": 3}, 32, 3),
        ({"max_transfer_bytes_on_message_in_memory": 350}, 32, 2),
        ({"max_transfer_bytes_on_message_in_memory": 1}, 32, 1),
    ],
)
@pytest.mark.parametrize("kind", ["TAG", "SQL92"])
async def test_the_request_and_the_settings_limit_the_messages_of_a_pull(
    start: Start, config: Config, settings: dict[str, int], asked: int, count: int, kind: str
) -> None:
    broker = await start(config(enable_property_filter=True, **settings))
    caller = Caller(broker)
    broker.topics.put(TopicConfig("T", 1, 1))
    others = encode_batch(Entry(0, b"x" * 30, b"TAGS\x01a\x02") for _ in range(50))
    broker.store.put_batch(Batch(("T", 0), 0, 1, bytes(8), others), b"")
    text = "a" if kind == "TAG" else "TAGS = 'a'"
    answer = await caller.pull("T", max_messages=asked, expression=text, kind=kind)
    assert len(records(answer)) == count
    assert answer.header(PullMessageResponse).next_offset == count
    await caller.peers.close()


async def test_with_slave_reads_a_consumer_that_lags_is_sent_to_a_slave(
    start: Start, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: 1)  # as on a machine with next to no memory
    broker = await start(config(slave_read_enable=True, enable_property_filter=True))
    caller = Caller(broker)
    await filled(caller)
    for expression, kind in (("*", None), ("TAGS IS NOT NULL", "SQL92"), ("none", None)):
        behind = await caller.pull("T", 0, max_messages=2, expression=expression, kind=kind)
        assert behind.header(PullMessageResponse).suggested_broker_id == 1
    broker.groups.put(
        SubscriptionGroupConfig("cg", broker_id=3, which_broker_when_consume_slowly=2)
    )
    behind = await caller.pull("T", 0, max_messages=2)
    assert behind.header(PullMessageResponse).suggested_broker_id == 2
    at_the_end = await caller.pull("T", 5)
    assert at_the_end.header(PullMessageResponse).suggested_broker_id == 3
    await caller.peers.close()


async def test_without_slave_reads_no_consumer_is_sent_to_a_slave(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(caller)
    monkeypatch.setattr(broker.store, "in_memory", lambda *_: False)
    answer = await caller.pull("T", 0)
    assert answer.header(PullMessageResponse).suggested_broker_id == 0


async def test_the_fast_port_accepts_sends_and_refuses_pulls(start: Start, config: Config) -> None:
    broker = await start(config())
    caller = Caller(broker)
    await caller.send("T")
    caller.address = f"127.0.0.1:{broker.fast_port}"
    assert (await caller.send("T")).code == 0
    assert (await caller.pull("T")).code == codes.REQUEST_CODE_NOT_SUPPORTED
    await caller.peers.close()


async def test_a_pull_may_omit_the_fields_that_are_not_used(caller: Caller) -> None:
    await filled(caller, 1)
    fields = {
        "consumerGroup": "cg",
        "topic": "T",
        "queueId": "0",
        "queueOffset": "+0",
        "maxMsgNums": "032",
        "sysFlag": str(SUBSCRIPTION),
    }
    answer = await caller.ask(codes.PULL_MESSAGE, fields)
    assert [record.body for record in records(answer)] == [b"0"]
