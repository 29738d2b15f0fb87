"""Messages into batch consume queues, and what recovery makes of them."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from aerobee.protocol.message.batch import Entry, encode_batch, unwrap
from aerobee.protocol.message.properties import decode
from aerobee.protocol.message.record import INNER_BATCH, NEED_UNWRAP, Record, decode_all
from aerobee.store.base import status
from aerobee.store.base.errors import MessageTooLarge, StoreError
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.messages import Message
from aerobee.store.engine.store import MessageStore
from aerobee.store.inspect.check import check
from aerobee.store.queues.batch_queue import UNIT_BYTES

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
SETTINGS = StoreSettings(segment_bytes=1 << 20)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., MessageStore]:
    """Opens the test's store; the topic B has batch queues."""

    def make(settings: StoreSettings = SETTINGS) -> MessageStore:
        store = MessageStore(tmp_path, settings, HOST, lambda: 1_700_000_000_000)
        store.open()
        store.state.batch_topics = {"B"}
        return store

    return make


def put_batch(store: MessageStore, *bodies: bytes, properties: bytes = b"UNIQ_KEY\x01U\x02") -> int:
    """Stores one batch in queue 0; the offset of its first message."""
    batch = encode_batch(Entry(0, body, b"") for body in bodies)
    _, first, _ = store.put_in_batch_queue(
        Message(("B", 0), 7, NEED_UNWRAP, 1, HOST, batch, properties, 0), len(bodies)
    )
    return first


def put(store: MessageStore, body: bytes, topic: str = "B", properties: bytes = b"") -> int:
    return store.put(Message((topic, 0), 7, 0, 1, HOST, body, properties, 0))[1]


def messages(store: MessageStore, offset: int = 0, most: int = 32) -> list[Record]:
    store.write_staged()
    found = store.get("B", 0, offset, most, 1 << 20)
    assert found.status == status.FOUND
    return [one for raw in found.records for each in decode_all(raw) for one in unwrap(each)]


def test_batches_and_single_messages_count_their_offsets_on(
    opened: Callable[..., MessageStore],
) -> None:
    store = opened()
    assert put_batch(store, b"a", b"b", b"c") == 0
    assert put(store, b"d") == 3
    assert put_batch(store, b"e", b"f") == 4
    found = messages(store)
    assert [one.queue_offset for one in found] == [0, 1, 2, 3, 4, 5]
    assert b"".join(one.body for one in found) == b"abcdef"
    assert (store.min_offset("B", 0), store.max_offset("B", 0)) == (0, 6)
    assert [one.body for one in messages(store, 4)] == [b"e", b"f"]
    store.close()


def test_a_record_tells_its_numbers_and_what_it_is(opened: Callable[..., MessageStore]) -> None:
    store = opened()
    put_batch(store, b"a", b"b", properties=b"UNIQ_KEY\x01U\x02INNER_BASE\x0199\x02")
    put(store, b"c")
    store.write_staged()
    found = store.get("B", 0, 0, 32, 1 << 20)
    batch, single = [each for raw in found.records for each in decode_all(raw)]
    assert (batch.sys_flag, single.sys_flag) == (INNER_BATCH | NEED_UNWRAP, INNER_BATCH)
    assert decode(batch.raw_properties.decode()) == {
        "UNIQ_KEY": "U",
        "INNER_NUM": "2",
        "INNER_BASE": "0",
    }
    assert decode(single.raw_properties.decode()) == {"INNER_NUM": "1", "INNER_BASE": "2"}
    store.close()


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("lost", [(), ("batchconsumequeue",), ("batchconsumequeue", "index")])
def test_a_restart_finds_them_also_without_the_queues_files(
    opened: Callable[..., MessageStore], tmp_path: Path, lost: tuple[str, ...], crc: bool
) -> None:
    settings = StoreSettings(segment_bytes=1 << 20, append_crc=crc)
    store = opened(settings)
    put_batch(store, b"a", b"b")
    put(store, b"c")
    put(store, b"other", topic="T")
    store.close()
    for folder in lost:
        shutil.rmtree(tmp_path / folder)
    store = opened(settings)
    assert put_batch(store, b"d") == 3
    assert [one.body for one in messages(store)] == [b"a", b"b", b"c", b"d"]
    store.close()
    assert [str(one) for one in check(tmp_path).findings] == []


def test_a_queue_that_was_plain_before_stays_it(opened: Callable[..., MessageStore]) -> None:
    store = opened()
    store.state.batch_topics = set()
    put(store, b"a")
    store.state.batch_topics = {"B"}
    assert not store.has_batch_queue("B", 0)
    assert store.has_batch_queue("B", 1)
    assert put(store, b"b") == 1
    assert [one.sys_flag for one in messages(store)] == [0, 0]
    store.close()


def test_what_does_not_fit_is_refused_and_leaves_nothing(
    opened: Callable[..., MessageStore],
) -> None:
    store = opened(StoreSettings(segment_bytes=1 << 20, max_message_bytes=1_000))
    with pytest.raises(MessageTooLarge, match="the limit is 1000"):
        put_batch(store, bytes(990))
    with pytest.raises(MessageTooLarge, match="32768 messages"):
        store.put_in_batch_queue(Message(("B", 0), 0, NEED_UNWRAP, 1, HOST, b"x", b"", 0), 32_768)
    with pytest.raises(StoreError, match="no place in a batch queue"):
        store.put_in_batch_queue(Message(("B", 0), 0, 4, 1, HOST, b"x", b"", 0), 1)
    assert store.max_offset("B", 0) == 0
    store.close()


def test_a_message_that_was_taken_before_a_limit_was_lowered_is_moved(
    opened: Callable[..., MessageStore],
) -> None:
    store = opened(replace(SETTINGS, max_message_bytes=100))
    large = Message(("B", 0), 7, 0, 1, HOST, bytes(101), b"", 0)
    with pytest.raises(MessageTooLarge):
        store.put(large)
    store.put(large, is_moved=True)
    assert store.max_offset("B", 0) == 1
    store.close()


def test_a_damaged_entry_costs_its_own_messages_and_is_told_once(
    opened: Callable[..., MessageStore], caplog: pytest.LogCaptureFixture
) -> None:
    store = opened()
    put_batch(store, b"a", b"b")
    put_batch(store, b"c", b"d")
    put(store, b"e")
    store.write_staged()
    view = store.state.queues.batch["B", 0].segments.last.view
    view[UNIT_BYTES : UNIT_BYTES + 1] = b"\xff"  # the sign of its position
    for _ in range(2):
        assert [one.body for one in messages(store)] == [b"a", b"b", b"e"]
        found = store.get("B", 0, 2, 1, 1 << 20)  # a reader that stands there goes on behind it
        assert (found.status, found.next_offset) == (status.FOUND, 5)
    assert caplog.text.count("what lies before message 4 of batch queue 0 of B is damaged") == 1
    store.close()
