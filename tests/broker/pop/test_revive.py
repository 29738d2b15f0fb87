"""Reviving popped messages: from a Java broker's files, in parts, and after failures."""

import tarfile
from pathlib import Path

import pytest
from aerobee.broker.pop.revive import LATE_ACK_MS
from aerobee.broker.pop.revive_log import REVIVE_GROUP, revive_topic
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.bodies.pop import AckMsg, PopCheckPoint
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.errors import Malformed, Refusal
from aerobee.protocol.message import properties
from aerobee.protocol.message.pop_handles import retry_topic
from aerobee.protocol.message.properties import PROPERTIES_BYTES_MAX
from aerobee.protocol.message.record import Record, decode_record
from aerobee.protocol.message.tags import tag_hash
from aerobee.store.base.errors import DiskFull, IllegalMessage
from aerobee.store.engine.messages import Message

from ...clocks import Clock
from ..conftest import Config, Run
from ..popping import BACK_AFTER_MS, INVISIBLE_MS, Popper

JAVA_STORE = Path(__file__).parents[2] / "golden" / "stores" / "broker.tar.gz"
JAVA_STOPPED_MS = 1_795_227_250_000  # when that broker was stopped, about
QUEUES_OF_REVIVE = 8


def messages(broker: Broker, topic: str, queue_id: int = 0) -> list[Record]:
    store = broker.store
    entries = store.entries(topic, queue_id, 0, 10_000)
    return [decode_record(store.message_at(place) or b"") for place, _, _ in entries]


def put_entry(broker: Broker, tag: str, body: bytes, due_ms: int, queue_id: int = 0) -> None:
    """Stores an entry in the revive topic, as the timer delivers it."""
    raw = properties.encode({"TAGS": tag, "TIMER_DELIVER_MS": str(due_ms)})
    store, topic = broker.store, revive_topic(broker.config.broker_cluster_name)
    store.put(Message((topic, queue_id), 0, 0, 0, store.host, body, raw, tag_hash(tag)))


def unpacked(folder: Path) -> Path:
    """The store of a Java broker that was popped from."""
    with tarfile.open(JAVA_STORE) as archive:
        archive.extractall(folder, filter="data")
    (found,) = (each for each in folder.iterdir() if each.is_dir())
    return found


@pytest.fixture
async def p(run: Run, config: Config, clock: Clock) -> Popper:
    return Popper(*await run(config()), clock)


async def test_messages_that_a_java_broker_left_invisible_are_revived(
    run: Run, config: Config, clock: Clock, tmp_path: Path
) -> None:
    folder = unpacked(tmp_path)
    clock.ms = JAVA_STOPPED_MS
    broker, _ = await run(
        config(
            store_path_root_dir=str(folder),
            broker_name="vecBroker",
            broker_cluster_name="vecCluster",
            revive_queue_num=1,
            mapped_file_size_commit_log=256 << 10,
            mapped_file_size_consume_queue=1_280,
            mapped_file_size_timer_log=3_328,
            max_hash_slot_num=64,
            max_index_num=512,
        )
    )
    retry = retry_topic("VecPop", "CG_pop")
    # Java popped four messages, acknowledged one, and made one invisible for another minute. It
    # revived the other two itself.
    assert [record.body for record in messages(broker, retry)] == [b"pop2", b"pop3"]
    await broker.catch_up()
    assert len(messages(broker, retry)) == 2
    clock.ms += 60_000
    await broker.catch_up()
    found = messages(broker, retry)
    assert [record.body for record in found] == [b"pop2", b"pop3", b"pop1"]
    java, ours = found[1], found[2]
    assert ours.properties.keys() == java.properties.keys()
    assert ours.properties["1ST_POP_TIME"] == "1795227222763"
    assert (ours.reconsume_times, ours.flag, ours.sys_flag) == (1, java.flag, java.sys_flag)
    assert ours.born_ms < java.born_ms


async def test_a_check_point_without_offset_differences_is_decoded(p: Popper) -> None:
    await p.send(b"a", b"b", b"c")
    old = PopCheckPoint(1, p.clock.ms, 5_000, 0, 2, 0, "T", "cg", 0, None, "broker-a")
    put_entry(p.broker, "ck", old.encode(), p.clock.ms + 4_000)
    ack = AckMsg(1, 1, "cg", "T", 0, p.clock.ms, "broker-a")
    put_entry(p.broker, "ack", ack.encode(), p.clock.ms + 5_000)
    p.broker.groups.find("cg")
    await p.later(10_000)
    assert [record.body for record in messages(p.broker, "%RETRY%cg_T")] == [b"c"]


async def test_a_duplicate_check_point_counts_once(p: Popper) -> None:
    await p.send(b"a", b"b")
    p.broker.groups.find("cg")
    body = PopCheckPoint(0, p.clock.ms, 5_000, 0, 2, 0, "T", "cg", 0, [0, 1], "b").encode()
    put_entry(p.broker, "ck", body, p.clock.ms + 4_000)
    ack = AckMsg(1, 0, "cg", "T", 0, p.clock.ms, "b")
    put_entry(p.broker, "ack", ack.encode(), p.clock.ms + 5_000)
    put_entry(p.broker, "ck", body, p.clock.ms + 4_000)
    await p.later(10_000)
    assert [record.body for record in messages(p.broker, "%RETRY%cg_T")] == [b"a"]


@pytest.mark.parametrize(
    ("tag", "body"),
    [
        ("ck", b"{"),
        ("ck", b"{}"),
        ("ck", b'{"t":"T","c":"cg","n":33,"so":0,"pt":1,"it":1}'),
        ("ack", b"[]"),
        ("bAck", b'{"aol":["x"]}'),
        ("ack", b'{"ao":7,"c":"cg","pt":1,"q":0,"so":0,"t":"T"}'),
        ("odd", b"odd"),
    ],
)
async def test_an_unreadable_entry_is_skipped(p: Popper, tag: str, body: bytes) -> None:
    await p.send(b"a")
    await p.pop()
    put_entry(p.broker, tag, body, p.clock.ms)
    await p.later(BACK_AFTER_MS)
    assert list(await p.pop()) == [b"a"]


@pytest.mark.parametrize("gone", ["topic", "group", "message"])
async def test_messages_without_a_topic_or_group_are_dropped(p: Popper, gone: str) -> None:
    await p.send(b"a")
    await p.pop()
    if gone == "topic":
        p.broker.topics.delete("T")
    elif gone == "group":
        p.broker.config.auto_create_subscription_group = False
        p.broker.groups.delete("cg")
    else:
        p.broker.store.delete_topic("T")
    await p.later(BACK_AFTER_MS)
    await p.later(BACK_AFTER_MS)
    assert messages(p.broker, "%RETRY%cg_T") == []
    assert sum(p.broker.pop.revive.behind()) == 0


async def test_many_messages_are_revived_in_parts(p: Popper) -> None:
    for _ in range(20):
        await p.send(*[b"a"] * 32)
        assert (await p.ask()).code == 0
        p.clock.ms += 1
    await p.later(BACK_AFTER_MS)
    assert len(messages(p.broker, "%RETRY%cg_T")) == 640


async def test_a_full_disk_only_delays_revival(p: Popper, monkeypatch: pytest.MonkeyPatch) -> None:
    await p.send(b"a", b"b", b"c")
    await p.pop()
    store = p.broker.store
    put, room = store.put, [1]

    def put_with_room(message: Message) -> tuple[int, int, int]:
        if message.key[0].startswith("%RETRY%"):
            if not room:
                raise DiskFull("no room")
            room.pop()
        return put(message)

    monkeypatch.setattr(store, "put", put_with_room)
    await p.later(BACK_AFTER_MS)
    assert [record.body for record in messages(p.broker, "%RETRY%cg_T")] == [b"a"]
    room += [1] * 10
    await p.later(1_000)
    assert [record.body for record in messages(p.broker, "%RETRY%cg_T")] == [b"a", b"b", b"c"]


async def test_a_message_without_room_for_a_mark_comes_again_as_the_others_do(p: Popper) -> None:
    await p.send(b"narrow", wide="v")
    (narrow,) = (await p.pop()).values()
    await p.ack(narrow)
    (record,) = messages(p.broker, "T")
    room = PROPERTIES_BYTES_MAX - len(record.raw_properties)
    await p.send(b"wide", wide="v" * (1 + room))
    await p.send(b"small")
    assert (await p.pop()).keys() == {b"wide", b"small"}
    await p.later(BACK_AFTER_MS)
    found = messages(p.broker, "%RETRY%cg_T")
    assert [record.body for record in found] == [b"wide", b"small"]
    assert [properties.FIRST_POP_TIME in record.properties for record in found] == [False, True]
    assert len(found[0].raw_properties) == PROPERTIES_BYTES_MAX


@pytest.mark.parametrize(
    "wrong",
    [
        IllegalMessage("too wide"),
        Refusal(codes.INVALID_PARAMETER, "no such name"),
        Malformed("not whole"),
    ],
    ids=["store", "refusal", "damage"],
)
async def test_a_message_that_can_not_come_again_does_not_hold_up_others_and_is_tried_later(
    p: Popper,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    wrong: Exception,
) -> None:
    await p.send(b"a", b"bad", b"c")
    await p.pop()
    store = p.broker.store
    put, failures = store.put, [wrong, wrong]

    def put_but_bad(message: Message) -> tuple[int, int, int]:
        if message.key[0].startswith("%RETRY%") and message.body == b"bad" and failures:
            raise failures.pop()
        return put(message)

    monkeypatch.setattr(store, "put", put_but_bad)
    await p.later(BACK_AFTER_MS)
    assert [record.body for record in messages(p.broker, "%RETRY%cg_T")] == [b"a", b"c"]
    assert "message 1 of queue 0 of T can't come again to group cg" in caplog.text
    assert f"{wrong}; it is tried again in 10 s" in caplog.text
    for text in (await p.pop()).values():
        await p.ack(text)
    await p.later(20_000)
    assert "it is tried again in 20 s" in caplog.text
    await p.later(BACK_AFTER_MS)
    assert not failures
    found = [record.body for record in messages(p.broker, "%RETRY%cg_T")]
    assert found == [b"a", b"c", b"bad"]
    await p.synced()
    p.broker.pop.revive.advance()
    assert sum(p.broker.pop.revive.behind()) == 0
    assert len([line for line in caplog.messages if "can't come again" in line]) == 2


async def test_the_revive_offset_is_the_last_processed_entry_on_disk(p: Popper) -> None:
    topic = revive_topic("DefaultCluster")

    def done() -> list[int]:
        queues = range(QUEUES_OF_REVIVE)
        return [p.broker.offsets.get(topic, REVIVE_GROUP, number) for number in queues]

    await p.send(b"a", b"b")
    await p.pop(max_messages=1)  # revive queue 0
    (text,) = (await p.pop()).values()  # revive queue 1
    await p.later(12_000)
    await p.ack(text)
    assert done() == [-1] * QUEUES_OF_REVIVE
    p.clock.ms += BACK_AFTER_MS
    await p.broker.catch_up()
    assert sum(p.broker.pop.revive.behind()) == 3
    await p.synced()
    p.broker.pop.revive.advance()
    assert done() == [0, 1, -1, -1, -1, -1, -1, -1]
    assert sum(p.broker.pop.revive.behind()) == 0


async def test_a_message_popped_from_a_retry_topic_is_revived_in_that_topic(
    p: Popper,
) -> None:
    p.broker.topics.put(TopicConfig("%RETRY%cg_T", 1, 1))
    await p.send(b"a")
    p.broker.groups.find("cg")
    retry = Popper(p.broker, p.caller, p.clock, topic="%RETRY%cg_T")
    store = p.broker.store
    store.put(Message(("%RETRY%cg_T", 0), 0, 0, 0, store.host, b"again", b"", 0, 1))
    await retry.ask()
    await p.later(BACK_AFTER_MS)
    found = messages(p.broker, "%RETRY%cg_T")
    assert [(record.body, record.reconsume_times) for record in found] == [
        (b"again", 1),
        (b"again", 2),
    ]


async def test_the_next_revive_round_is_due_with_the_first_check_point(p: Popper) -> None:
    revive = p.broker.pop.revive
    interval_ms = p.broker.config.revive_interval
    assert revive.wait_ms() == interval_ms
    await p.send(b"a")
    await p.pop()
    await p.later(INVISIBLE_MS)  # the check point is read a second before its time
    assert revive.wait_ms() == interval_ms
    await p.later(LATE_ACK_MS - 300)
    assert revive.wait_ms() == 301
    assert not messages(p.broker, "%RETRY%cg_T")
    await p.later(301)
    assert [record.body for record in messages(p.broker, "%RETRY%cg_T")] == [b"a"]
    assert revive.wait_ms() == interval_ms


async def test_after_a_failed_round_the_queue_waits_for_the_interval(
    p: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Message) -> tuple[int, int, int]:
        raise DiskFull("no room")

    await p.send(b"a")
    await p.pop()
    await p.later(INVISIBLE_MS)
    monkeypatch.setattr(p.broker.store, "put", full)
    await p.later(LATE_ACK_MS + 500)
    assert p.broker.pop.revive.wait_ms() == p.broker.config.revive_interval
