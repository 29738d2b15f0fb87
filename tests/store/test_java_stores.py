"""Stores that the real Java classes wrote are opened here and read back as Java reads them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from aerobee.protocol.message.record import decode_record, is_crc_property_right
from aerobee.store.engine.messages import Message
from aerobee.store.engine.store import MessageStore
from aerobee.store.files import json_file
from aerobee.store.queues.consume_queue import ConsumeQueue

from .conftest import STORES, OpenStore, Unpack, java_settings

VARIANTS = ["main", "killed", "torn", "ext", "bcq", "crc", "lmq", "sync"]


def reopened(name: str) -> dict[str, Any]:
    """What Java reported after it had recovered the same store."""
    found: dict[str, Any] = json.loads((STORES / f"{name}.reopened.json").read_text())
    return found


def messages_of(name: str, written: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages that the store must still have."""
    found: list[dict[str, Any]]
    if name == "torn":
        found = json.loads((STORES / "killed.json").read_text())["messages"][:-1]
    else:
        found = written["messages"]
    return found


def units_of(store: MessageStore, topic: str, queue_id: int) -> list[list[int]]:
    """Every unit of a queue: offset, log offset, size, tags code, number of messages."""
    queue = store.state.queues.find(topic, queue_id)
    assert queue is not None
    if not isinstance(queue, ConsumeQueue):
        units = queue.units(queue.min_offset, 1 << 30, store.log_end)
        return [[u.base, u.log_offset, u.size, u.tags_code, u.number] for u in units]
    found = []
    start = queue.min_offset
    for index, (place, size, code) in enumerate(store.entries(topic, queue_id, start, 1 << 30)):
        through_ext = store.state.queues.ext_tags_code(topic, queue_id, code)
        if through_ext is not None:
            code = through_ext
        found.append([start + index, place, size, code, 1])
    return found


def check_state(store: MessageStore, state: dict[str, Any]) -> None:
    """Queues, key queries and offsets by time as Java reported them."""
    assert store.log_start == state["minPhyOffset"]
    assert store.log_end == state["maxPhyOffset"]
    expected: dict[str, set[int]] = {}
    for name, queue in state["queues"].items():
        topic, _, queue_id = name.rpartition("@")
        expected.setdefault(topic, set()).add(int(queue_id))
        assert store.min_offset(topic, int(queue_id)) == queue["minOffset"]
        assert store.max_offset(topic, int(queue_id)) == queue["maxOffset"]
        units = queue["units_offset_pos_size_tagsCode_batchNum"]
        assert units_of(store, topic, int(queue_id)) == units, name
    assert {topic: set(ids) for topic, ids in store.topics().items()} == expected
    for name, places in state["queryByKey_physicalOffsets"].items():
        topic, _, key = name.partition("#")
        records = [decode_record(data) for data in store.query(topic, key, 0, (1 << 63) - 1)]
        assert [record.log_offset for record in records] == places, name
    for moment, lower, upper in state["offsetByTime_VecTopicA@0_ts_lower_upper"]:
        assert store.offset_at("VecTopicA", 0, moment) == lower, moment
        assert store.offset_at("VecTopicA", 0, moment, upper=True) == upper, moment


def check_messages(store: MessageStore, messages: list[dict[str, Any]]) -> None:
    """Every record, byte for byte by its hash, and field by field."""
    for message in messages:
        data = store.message_at(message["physicalOffset"])
        assert data is not None, message
        assert hashlib.sha1(data).hexdigest() == message["recordSha1"]
        record = decode_record(data)
        assert record.topic == message["topic"]
        assert record.queue_id == message["queueId"]
        assert record.queue_offset == message["queueOffset"]
        assert record.store_ms == message["storeTimestamp"]
        assert record.properties == message["properties"]
        assert hashlib.sha1(record.body).hexdigest() == message["storedBodySha1"]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_java_store_reads_back_as_java_reads_it(
    name: str, unpack: Unpack, open_store: OpenStore
) -> None:
    root, written = unpack(name)
    report = reopened(name)
    settings = java_settings(report["config"], sync_flush=name == "sync", lmq_enable=name == "lmq")
    store = open_store(root, settings)
    check_state(store, report["state"])
    check_messages(store, messages_of(name, written))


@pytest.mark.parametrize("name", VARIANTS)
def test_queues_and_index_are_rebuilt_from_the_log_of_a_java_store(
    name: str, unpack: Unpack, open_store: OpenStore
) -> None:
    root, _ = unpack(name)
    for folder in ("consumequeue", "batchconsumequeue", "index"):
        if (root / folder).exists():
            (root / folder).rename(root.parent / folder)
    report = reopened("nocq" if name == "main" else name)
    settings = java_settings(report["config"], lmq_enable=name == "lmq")
    check_state(open_store(root, settings), report["state"])


@pytest.mark.parametrize("name", VARIANTS)
def test_a_java_store_stays_the_same_over_open_close_and_open(
    name: str, unpack: Unpack, open_store: OpenStore
) -> None:
    root, _ = unpack(name)
    report = reopened(name)
    settings = java_settings(report["config"], lmq_enable=name == "lmq")
    open_store(root, settings).close()
    before = files_of(root)
    store = open_store(root, settings)
    check_state(store, report["state"])
    store.close()
    assert files_of(root) == before


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name != "checkpoint"
    }


@pytest.mark.parametrize("name", ["main", "ext", "bcq", "crc", "lmq", "sync", "broker"])
def test_opening_a_cleanly_stopped_java_store_changes_no_file(
    name: str, unpack: Unpack, open_store: OpenStore
) -> None:
    root, written = unpack(name)
    before = files_of(root)
    open_store(root, java_settings(written["config"])).close()
    assert files_of(root) == before


def test_a_rebuilt_index_equals_javas_byte_for_byte(unpack: Unpack, open_store: OpenStore) -> None:
    root, written = unpack("main")
    theirs = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    for path in (root / "index").iterdir():
        path.unlink()
    open_store(root, java_settings(written["config"])).close()
    ours = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    assert len(theirs) == 3
    assert ours == theirs


def test_rebuilt_queues_equal_javas_byte_for_byte(unpack: Unpack, open_store: OpenStore) -> None:
    root, written = unpack("main")
    folder = root / "consumequeue"
    theirs = files_of(folder)
    folder.rename(root / "elsewhere")
    open_store(root, java_settings(written["config"])).close()
    ours = files_of(folder)
    assert len(theirs) >= 8
    for name, data in theirs.items():
        assert ours.pop(name) == data, name
    assert ours == {}


def test_the_crc_property_of_every_record_is_correct(unpack: Unpack, open_store: OpenStore) -> None:
    root, written = unpack("crc")
    store = open_store(root, java_settings(written["config"]))
    checked = [
        is_crc_property_right(store.message_at(message["physicalOffset"]) or b"")
        for message in written["messages"]
    ]
    assert len(checked) == 45
    assert set(checked) == {True}


def test_the_store_of_a_whole_java_broker_reads_back(unpack: Unpack, open_store: OpenStore) -> None:
    root, written = unpack("broker")
    store = open_store(root, java_settings(written["config"]))
    assert store.log_end == written["end"]
    assert len(written["messages"]) == 56
    check_messages(store, written["messages"])
    expected: dict[tuple[str, int], list[int]] = {}
    for message in written["messages"]:
        key = (message["topic"], message["queueId"])
        expected.setdefault(key, []).append(message["physicalOffset"])
    for (topic, queue_id), places in expected.items():
        found = store.entries(topic, queue_id, 0, 1 << 30)
        assert [place for place, _, _ in found] == places, topic
    names = [path for path in (root / "config").glob("*.json")]
    assert len(names) >= 5
    for path in names:
        assert json_file.load(path, lambda data: data) is not None


def test_new_messages_follow_the_last_ones_of_a_java_store(
    unpack: Unpack, open_store: OpenStore
) -> None:
    root, written = unpack("main")
    report = reopened("main")
    settings = java_settings(written["config"])
    store = open_store(root, settings)
    end = report["state"]["maxPhyOffset"]
    queue = report["state"]["queues"]["VecTopicA@0"]
    host = bytes(8)
    place, offset, _ = store.put(
        Message(("VecTopicA", 0), 0, 0, 1, host, b"ours", b"KEYS\x01shared\x02", 0)
    )
    assert (place, offset) == (end, queue["maxOffset"])
    found = store.get("VecTopicA", 0, offset, 32, 1 << 20)
    assert decode_record(found.records[0]).body == b"ours"
    before = report["state"]["queryByKey_physicalOffsets"]["VecTopicA#shared"]
    records = store.query("VecTopicA", "shared", 0, 1 << 62)
    assert [decode_record(data).log_offset for data in records] == [*before, end]
