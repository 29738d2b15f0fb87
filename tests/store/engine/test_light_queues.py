"""Light queues: entries for the messages that name them, also after a crash and on a slave."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from aerobee.protocol.message.properties import decode, encode
from aerobee.protocol.message.record import TRANSACTION_PREPARED, Record, decode_all, decode_record
from aerobee.store.base.errors import IllegalMessage, MessageTooLarge, StoreError
from aerobee.store.engine.messages import Batch
from aerobee.store.engine.store import MessageStore
from aerobee.store.inspect.check import check

from ..conftest import BORN_HOST, SMALL, OpenStore, Unpack, java_settings, put

LIGHT = replace(SMALL, lmq_enable=True)
A, B = "%LMQ%a", "%LMQ%b"


@pytest.fixture
def store(open_store: OpenStore) -> MessageStore:
    return open_store(settings=LIGHT)


def named(*names: str, **more: str) -> bytes:
    return encode({"INNER_MULTI_DISPATCH": ",".join(names), **more})


def found(store: MessageStore, topic: str) -> list[Record]:
    """The messages that a reader of queue 0 gets."""
    store.write_staged()
    records = store.get(topic, 0, 0, 32, 1 << 20).records
    return [record for data in records for record in decode_all(data)]


def bodies(store: MessageStore, topic: str) -> list[bytes]:
    return [bytes(record.body) for record in found(store, topic)]


def filled(store: MessageStore) -> None:
    put(store, body=b"1", properties=named(A, B))
    put(store, body=b"2")
    put(store, body=b"3", properties=named(B))
    put(store, "U", body=b"4", properties=named(A))
    store.write_staged()


def test_a_message_is_in_its_own_queue_and_in_each_light_queue_that_it_names(
    store: MessageStore,
) -> None:
    filled(store)
    assert bodies(store, "T") == [b"1", b"2", b"3"]
    assert bodies(store, A) == [b"1", b"4"]
    assert bodies(store, B) == [b"1", b"3"]
    offsets = [decode(one.raw_properties)["INNER_MULTI_QUEUE_OFFSET"] for one in found(store, B)]
    assert offsets == ["0,0", "1"]


def test_light_queues_are_the_same_after_a_crash_and_out_of_the_log_alone(
    store: MessageStore, open_store: OpenStore, tmp_path: Path
) -> None:
    filled(store)
    store.abandon()
    alone = tmp_path / "alone"
    shutil.copytree(store.root, alone)
    shutil.rmtree(alone / "consumequeue")
    for root in (store.root, alone):
        again = open_store(root, LIGHT)
        assert bodies(again, A) == [b"1", b"4"]
        assert bodies(again, B) == [b"1", b"3"]
        put(again, body=b"5", properties=named(A))
        assert bodies(again, A) == [b"1", b"4", b"5"]
        again.close()
    assert not check(alone).is_damaged


def test_a_slave_has_the_same_light_queues_and_tells_which_got_messages(
    store: MessageStore, open_store: OpenStore, tmp_path: Path
) -> None:
    filled(store)
    slave = open_store(tmp_path / "slave", LIGHT)
    slave.follower.follow("this broker is a slave")
    slave.follower.append_raw(0, store.raw(0, store.log_end))
    assert slave.follower.derive_new() == {("T", 0), ("U", 0), (A, 0), (B, 0)}
    assert slave.follower.derive_new() == set()
    assert bodies(slave, A) == [b"1", b"4"]
    assert bodies(slave, B) == [b"1", b"3"]


def test_the_entries_are_those_that_java_makes(open_store: OpenStore, unpack: Unpack) -> None:
    root, report = unpack("lmq")
    settings = java_settings(report["config"], lmq_enable=True)
    java = open_store(root, settings)
    ours = open_store(settings=settings)
    for message in report["messages"]:
        pairs = dict(message["properties"])
        del pairs["INNER_MULTI_QUEUE_OFFSET"]
        data = java.message_at(message["physicalOffset"])
        assert data is not None
        body = bytes(decode_record(memoryview(data)).body)
        put(ours, message["topic"], message["queueId"], body, encode(pairs))
    ours.write_staged()
    light = [topic for topic, _ in java.queue_keys() if topic.startswith("%LMQ%")]
    assert len(light) >= 2
    for topic in light:
        queues = [one.state.queues.simple[topic, 0] for one in (java, ours)]
        places = [
            [queue.entry(n)[:2] for n in range(queue.first_offset, queue.next)] for queue in queues
        ]
        assert places[0] == places[1]


def test_without_the_switches_a_name_is_a_property_like_others(open_store: OpenStore) -> None:
    store = open_store()
    put(store, properties=named(A, "anything"))
    assert decode(found(store, "T")[0].raw_properties) == {"INNER_MULTI_DISPATCH": f"{A},anything"}
    assert list(store.topics()) == ["T"]


@pytest.mark.parametrize("topic", ["%RETRY%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
def test_messages_that_wait_or_come_again_are_in_no_light_queue(
    store: MessageStore, open_store: OpenStore, tmp_path: Path, topic: str
) -> None:
    filled(store)
    # What comes again has the offsets of the first time.
    put(store, topic, body=b"again", properties=named(A, INNER_MULTI_QUEUE_OFFSET="0"))
    assert bodies(store, A) == [b"1", b"4"]
    slave = open_store(tmp_path / "slave", LIGHT)
    slave.follower.follow("this broker is a slave")
    slave.follower.append_raw(0, store.raw(0, store.log_end))
    slave.follower.derive_new()
    assert bodies(slave, A) == [b"1", b"4"]


def test_a_prepared_message_is_in_no_light_queue(store: MessageStore) -> None:
    put(store, properties=named(A), sys_flag=TRANSACTION_PREPARED)
    put(store, body=b"2", properties=named(A))
    assert bodies(store, A) == [b"2"]


def test_offsets_that_a_sender_claims_do_not_count(store: MessageStore) -> None:
    put(store, body=b"1", properties=named(A, INNER_MULTI_QUEUE_OFFSET="77"))
    (record,) = found(store, A)
    assert decode(record.raw_properties)["INNER_MULTI_QUEUE_OFFSET"] == "0"
    batch = Batch(("T", 0), 0, 0, BORN_HOST, b"..INNER_MULTI_QUEUE_OFFSET\x015\x02")
    with pytest.raises(IllegalMessage, match="send messages for light queues singly"):
        store.put_batch(batch, b"")


def test_a_queue_named_twice_or_by_a_message_of_its_own_gets_one_entry(
    store: MessageStore, open_store: OpenStore
) -> None:
    put(store, body=b"1", properties=named(A, A))
    put(store, A, body=b"2", properties=named(A, B))
    put(store, body=b"3", properties=named(A))
    assert bodies(store, A) == [b"1", b"2", b"3"]
    assert bodies(store, B) == [b"2"]
    store.abandon()
    again = open_store(settings=LIGHT)
    assert bodies(again, A) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("name", ["orders", "%LMQ%../up", "%LMQ%" + "a" * 251, ""])
def test_a_name_that_is_no_light_queue_refuses_the_message(store: MessageStore, name: str) -> None:
    with pytest.raises(IllegalMessage, match=r"no light queue: a name is %LMQ% and up to 250"):
        put(store, properties=named(A, name, B))
    assert (list(store.topics()), store.log_end) == (["T"], 0)


def test_there_is_a_limit_of_light_queues(open_store: OpenStore) -> None:
    store = open_store(settings=replace(LIGHT, light_queues_max=2))
    put(store, body=b"1", properties=named(A, B))
    with pytest.raises(StoreError, match=r"the limit is 2 \(maxLmqConsumeQueueNum\)"):
        put(store, properties=named("%LMQ%c"))
    put(store, body=b"2", properties=named(B, A))
    store.delete_topic(A)
    put(store, body=b"3", properties=named("%LMQ%c"))
    assert bodies(store, B) == [b"1", b"2"]
    assert bodies(store, "%LMQ%c") == [b"3"]


def test_properties_that_have_no_room_for_the_offsets_refuse_the_message(
    store: MessageStore,
) -> None:
    long = named(A, other="x" * (32_767 - 60))
    with pytest.raises(MessageTooLarge, match="message properties are"):
        put(store, properties=long)
    assert bodies(store, A) == []
