"""Messages into the store: both in log and queue, or in neither."""

from dataclasses import replace
from typing import Any

import pytest
from aerobee.protocol.errors import Malformed
from aerobee.protocol.message.batch import Entry, encode_batch
from aerobee.protocol.message.properties import PROPERTIES_BYTES_MAX
from aerobee.protocol.message.record import (
    BORN_HOST_V6,
    INNER_BATCH,
    MAGIC_V2,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Record,
    decode_all,
    decode_record,
    is_crc_property_right,
)
from aerobee.protocol.message.tags import string_hash
from aerobee.store.base import status
from aerobee.store.base.errors import DiskFull, MessageTooLarge, StoreError, WritesRefused
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.messages import Batch, Message
from aerobee.store.engine.store import MessageStore

from ...clocks import Clock
from ..conftest import BORN_HOST, HOST, SMALL, OpenStore, put

V6_HOST = bytes(15) + b"\x01" + HOST[4:]
ALL = 1 << 60


def records(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[Record]:
    """Every message of a queue, as pulls hand them out."""
    found: list[Record] = []
    offset = store.min_offset(topic, queue_id)
    while True:
        result = store.get(topic, queue_id, offset, 32, 1 << 20)
        if result.status != status.FOUND:
            return found
        found += decode_all(b"".join(result.records))
        offset = result.next_offset


def test_a_message_is_stored_with_everything_it_came_with(
    open_store: OpenStore, clock: Clock
) -> None:
    store = open_store()
    place, offset, end = store.put(
        Message(("orders", 3), -7, 0x1 | 0x300, 123, BORN_HOST, b"body", b"a\x01b\x02", 99, 4, 5)
    )
    assert (place, offset) == (0, 0)
    data = store.message_at(0)
    assert data is not None
    record = decode_record(data)
    assert record.is_body_intact
    assert end == len(data) == record.size
    record.size = record.magic = record.body_crc = 0
    assert record == Record(
        0, 0, 0, 3, -7, 0, 0, 0x301, 123, BORN_HOST, clock.ms, HOST, 4, 5, b"body", "orders",
        b"a\x01b\x02",
    )  # fmt: skip
    assert store.entries("orders", 3, 0, 10) == [(0, end, 99)]


def test_places_and_queue_offsets_are_dense_over_files_and_queues(open_store: OpenStore) -> None:
    store = open_store()
    expected: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for number in range(300):
        body = b"%d" % number * (number % 50)
        expected[number % 3].append(body)
        _, offset, _ = put(store, queue_id=number % 3, body=body)
        assert offset == number // 3
        if number % 7 == 0:
            store.write_staged()
    for queue_id, bodies in expected.items():
        found = records(store, queue_id=queue_id)
        assert [record.body for record in found] == bodies
        assert [record.queue_offset for record in found] == list(range(100))


def test_of_many_messages_each_is_stored_or_refused_by_itself(open_store: OpenStore) -> None:
    store = open_store()

    def message(topic: str, body: bytes, born_host: bytes = bytes(8)) -> Message:
        raw = b"UNIQ_KEY\x01u\x02"
        return Message((topic, 1), 0, 0, 5, born_host, body, raw, 0, only_key=b"u")

    large = bytes(store.settings.max_message_bytes + 1)
    first, refused, third, outside, last = store.put_all(
        [
            message("T", b"one"),
            message("T", large),
            message("T", b"two", bytes(20)),
            message("../T", b"three"),
            message("U", b"four"),
        ]
    )
    assert isinstance(refused, MessageTooLarge)
    assert isinstance(outside, StoreError)
    assert not isinstance(first, StoreError)
    assert not isinstance(third, StoreError)
    assert not isinstance(last, StoreError)
    assert (first[1], third[1], last[1]) == (0, 1, 0)
    assert first[0] == 0
    assert (first[2], third[2]) == (third[0], last[0])
    assert last[2] == store.log_end
    assert [record.body for record in records(store, "T", 1)] == [b"one", b"two"]
    assert [record.body for record in records(store, "U", 1)] == [b"four"]


def test_a_message_is_readable_though_it_was_only_staged(open_store: OpenStore) -> None:
    store = open_store()
    put(store, body=b"new", properties=b"UNIQ_KEY\x01u1\x02")
    assert records(store)[0].body == b"new"
    put(store, body=b"newer", properties=b"UNIQ_KEY\x01u2\x02")
    assert len(store.query("T", "u2", 0, ALL)) == 1


def test_a_topic_of_more_than_127_characters_makes_a_version_2_record(
    open_store: OpenStore,
) -> None:
    store = open_store()
    topic = "%RETRY%" + "g" * 150
    put(store, topic)
    (record,) = records(store, topic)
    assert (record.magic, record.topic) == (MAGIC_V2, topic)


@pytest.mark.parametrize("born_host", [BORN_HOST, V6_HOST])
@pytest.mark.parametrize("host", [HOST, V6_HOST])
def test_hosts_may_be_ipv6(open_store: OpenStore, host: bytes, born_host: bytes) -> None:
    store = open_store(host=host)
    # What the client says about its address family counts for nothing.
    put(store, born_host=born_host, sys_flag=BORN_HOST_V6 | STORE_HOST_V6)
    put(store, born_host=born_host)
    store.put_batch(Batch(("T", 0), 0, 1, born_host, encode_batch([Entry(0, b"in", b"")] * 2)), b"")
    found = records(store)
    assert len(found) == 4
    for record in found:
        assert (record.born_host, record.store_host) == (born_host, host)
        assert record.sys_flag & BORN_HOST_V6 == (BORN_HOST_V6 if born_host == V6_HOST else 0)
        assert record.sys_flag & STORE_HOST_V6 == (STORE_HOST_V6 if host == V6_HOST else 0)


@pytest.mark.parametrize(
    ("kind", "is_queued", "is_indexed"),
    [
        (TRANSACTION_PREPARED, False, True),
        (TRANSACTION_COMMIT, True, True),
        (TRANSACTION_ROLLBACK, False, False),
    ],
)
def test_transactions_of_old_are_queued_and_indexed_by_their_kind(
    open_store: OpenStore, kind: int, is_queued: bool, is_indexed: bool
) -> None:
    store = open_store()
    put(store)
    place, offset, _ = put(store, sys_flag=kind, properties=b"KEYS\x01k\x02")
    assert offset == (1 if is_queued else 0)
    assert store.max_offset("T", 0) == (2 if is_queued else 1)
    assert len(store.query("T", "k", 0, ALL)) == is_indexed
    assert decode_record(store.message_at(place) or b"").queue_offset == offset


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (b"DELAY\x011\x02", 1_000),
        (b"DELAY\x0118\x02", 7_200_000),
        (b"DELAY\x0199\x02", 7_200_000),
        (b"A\x01b\x02DELAY\x01+2\x02", 5_000),
    ],
)
def test_a_delayed_message_has_its_time_of_delivery_in_the_queue(
    open_store: OpenStore, clock: Clock, properties: bytes, expected: int
) -> None:
    store = open_store()
    put(store, "SCHEDULE_TOPIC_XXXX", 2, properties=properties, tags_code=5)
    ((_, _, tags_code),) = store.entries("SCHEDULE_TOPIC_XXXX", 2, 0, 1)
    assert tags_code == clock.ms + expected


def a_message(topic: str, queue_id: int, body: bytes, **more: Any) -> Message:
    values: dict[str, Any] = {"tags_code": 5, "properties": b""} | more
    return Message(
        (topic, queue_id), 0, 0, 0, HOST, body, values["properties"], values["tags_code"]
    )


def test_a_level_that_is_known_comes_to_what_its_property_says(
    open_store: OpenStore, clock: Clock
) -> None:
    store = open_store()
    raw = b"DELAY\x013\x02"
    messages = [
        a_message("SCHEDULE_TOPIC_XXXX", 2, b"first", properties=raw, tags_code=None),
        a_message("SCHEDULE_TOPIC_XXXX", 2, b"known", properties=raw, tags_code=None),
        a_message("SCHEDULE_TOPIC_XXXX", 2, b"read", properties=raw),
    ]
    assert not any(isinstance(place, StoreError) for place in store.put_all(messages))
    codes = [entry[2] for entry in store.entries("SCHEDULE_TOPIC_XXXX", 2, 0, 9)]
    assert codes == [clock.ms + 10_000] * 3


@pytest.mark.parametrize(("are_moved", "stored"), [(False, [0, 2]), (True, [0])])
def test_messages_behind_one_that_is_not_stored_are_left_out_when_asked_to(
    open_store: OpenStore, are_moved: bool, stored: list[int]
) -> None:
    store = open_store(settings=replace(SMALL, max_message_bytes=1_000))
    wide = b"p" * (PROPERTIES_BYTES_MAX + 1)
    messages = [a_message("T", 0, b"x", properties=raw) for raw in (b"", wide, b"")]
    places = store.put_all(messages, are_moved=are_moved)
    assert len(places) == (2 if are_moved else 3)
    assert isinstance(places[1], MessageTooLarge)
    assert store.max_offset("T", 0) == len(stored)


def test_a_message_that_was_taken_before_a_limit_was_lowered_is_moved(
    open_store: OpenStore,
) -> None:
    store = open_store(settings=replace(SMALL, max_message_bytes=1_000))
    large = a_message("T", 0, bytes(1_001))
    with pytest.raises(MessageTooLarge):
        store.put(large)
    store.put(large, is_moved=True)
    assert not isinstance(store.put_all([large], are_moved=True)[0], StoreError)
    assert store.max_offset("T", 0) == 2


def test_a_message_there_without_a_delay_keeps_its_tags_code(open_store: OpenStore) -> None:
    store = open_store()
    put(store, "SCHEDULE_TOPIC_XXXX", 2, tags_code=5)
    assert store.entries("SCHEDULE_TOPIC_XXXX", 2, 0, 1)[0][2] == 5


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"body": bytes(1001)}, r"body is 1001 bytes, the limit is 1000 \(maxMessageSize\)"),
        ({"properties": bytes(32_768)}, "properties are 32768 bytes, the limit is 32767"),
    ],
)
def test_what_is_too_large_is_refused_with_the_limit(
    open_store: OpenStore, more: dict[str, Any], text: str
) -> None:
    store = open_store(settings=StoreSettings(segment_bytes=1 << 20, max_message_bytes=1000))
    with pytest.raises(MessageTooLarge, match=text):
        put(store, **more)
    assert (store.log_end, store.max_offset("T", 0)) == (0, 0)
    put(store, body=bytes(1000), properties=bytes(32_767))


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "../x", "a/b", "a.b", "ä", "t\n", "t\0", "t" * 256]
)
def test_no_name_leads_out_of_the_store(open_store: OpenStore, topic: str) -> None:
    store = open_store()
    for _ in range(2):
        with pytest.raises(StoreError, match="can't be stored"):
            put(store, topic)
    with pytest.raises(StoreError, match="can't be stored"):
        store.put_batch(
            Batch((topic, 0), 0, 1, BORN_HOST, encode_batch([Entry(0, b"x", b"")])), b""
        )
    assert store.log_end == 0


def test_a_queue_id_below_0_is_refused(open_store: OpenStore) -> None:
    with pytest.raises(StoreError, match="queue id -1"):
        put(open_store(), queue_id=-1)


def test_a_record_with_an_inner_batch_is_refused(open_store: OpenStore) -> None:
    with pytest.raises(StoreError, match="batch in one record"):
        put(open_store(), sys_flag=INNER_BATCH)


# ---- batches


def batch(*bodies: bytes, properties: bytes = b"TAGS\x01red\x02KEYS\x01k\x02") -> bytes:
    return encode_batch([Entry(number, body, properties) for number, body in enumerate(bodies)])


def test_a_batch_becomes_messages_side_by_side(open_store: OpenStore, clock: Clock) -> None:
    store = open_store()
    put(store)
    body = batch(b"one", b"", b"three")
    first, places, end = store.put_batch(
        Batch(("T", 0), 0, 9, BORN_HOST, body, 2), b"CLUSTER\x01c\x02"
    )
    assert first == 1
    found = records(store)[1:]
    assert [record.body for record in found] == [b"one", b"", b"three"]
    assert [record.flag for record in found] == [0, 1, 2]
    assert [record.queue_offset for record in found] == [1, 2, 3]
    assert [record.log_offset for record in found] == places
    assert found[-1].log_offset + found[-1].size == end == store.log_end
    assert {record.raw_properties for record in found} == {
        b"TAGS\x01red\x02KEYS\x01k\x02CLUSTER\x01c\x02"
    }
    assert {(record.born_ms, record.reconsume_times) for record in found} == {(9, 2)}
    assert {code for _, _, code in store.entries("T", 0, 1, 3)} == {string_hash("red")}
    assert len(store.query("T", "k", 0, ALL)) == 3


def test_a_separator_is_put_before_the_shared_properties_where_it_is_missing(
    open_store: OpenStore,
) -> None:
    store = open_store()
    for own in (b"a\x01b", b"a\x01b\x02", b""):
        store.put_batch(
            Batch(("T", 0), 0, 9, BORN_HOST, batch(b"x", properties=own)), b"c\x01d\x02"
        )
    assert [record.properties for record in records(store)] == [
        {"a": "b", "c": "d"},
        {"a": "b", "c": "d"},
        {"c": "d"},
    ]


def test_a_batch_lies_in_one_file_whole(open_store: OpenStore) -> None:
    store = open_store()
    size = SMALL.segment_bytes
    put(store, body=bytes(size - 1000))
    _, places, _ = store.put_batch(Batch(("T", 0), 0, 9, BORN_HOST, batch(*[bytes(200)] * 5)), b"")
    assert places[0] == size
    found = records(store)
    assert [record.log_offset for record in found[1:]] == places
    assert len(found) == 6


def test_a_batch_of_more_messages_than_a_queue_file_has_entries(open_store: OpenStore) -> None:
    store = open_store()
    first, places, _ = store.put_batch(
        Batch(("T", 0), 0, 9, BORN_HOST, batch(*(b"%d" % number for number in range(50)))), b""
    )
    assert (first, len(places)) == (0, 50)
    assert [record.body for record in records(store)] == [b"%d" % n for n in range(50)]


@pytest.mark.parametrize("cut", [1, 10, 21, 22, 25, 40])
def test_a_batch_that_is_cut_off_stores_nothing(open_store: OpenStore, cut: int) -> None:
    store = open_store()
    with pytest.raises(Malformed):
        store.put_batch(Batch(("T", 0), 0, 9, BORN_HOST, batch(b"one", b"two")[:-cut]), b"")
    with pytest.raises(Malformed):
        store.put_batch(Batch(("T", 0), 0, 9, BORN_HOST, b""), b"")
    assert (store.log_end, store.max_offset("T", 0)) == (0, 0)


def test_a_batch_that_is_too_large_stores_nothing(open_store: OpenStore) -> None:
    store = open_store(settings=StoreSettings(segment_bytes=1 << 20, max_message_bytes=1000))
    with pytest.raises(MessageTooLarge, match="body is 1001 bytes"):
        store.put_batch(Batch(("T", 0), 0, 9, BORN_HOST, batch(bytes(1001))), b"")
    with pytest.raises(MessageTooLarge, match=r"the batch is .* the limit is 66536"):
        store.put_batch(Batch(("T", 0), 0, 9, BORN_HOST, batch(*[bytes(1000)] * 100)), b"")
    assert (store.log_end, store.max_offset("T", 0)) == (0, 0)


# ---- a disk that fails


def full(fd: int, at: int, size: int) -> None:
    raise OSError(28, "full")


@pytest.mark.parametrize("is_batch", [False, True])
def test_no_room_for_a_queue_file_stores_nothing(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, is_batch: bool
) -> None:
    store = open_store()
    for _ in range(14):
        put(store)
    end = store.log_end

    def store_four() -> None:
        if is_batch:
            store.put_batch(Batch(("T", 0), 0, 9, BORN_HOST, batch(b"1", b"2", b"3", b"4")), b"")
        else:
            for _ in range(4):
                put(store)

    with monkeypatch.context() as patched:
        patched.setattr("aerobee.store.files.disk.current.allocate", full)
        with pytest.raises(DiskFull):
            store_four()
    taken = 14 if is_batch else 16
    assert store.max_offset("T", 0) == len(records(store)) == taken
    assert (store.log_end == end) == is_batch
    store_four()
    assert len(records(store)) == taken + 4


def test_a_failed_write_takes_back_what_was_given_out(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    put(store, body=b"kept", properties=b"KEYS\x01k\x02")
    store.write_staged()
    end = store.log_end
    for _ in range(40):
        put(store, properties=b"KEYS\x01k\x02")
    put(store, "Other")

    def broken(fd: int, data: bytes, at: int) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("aerobee.store.files.disk.current.pwrite", broken)
        with pytest.raises(StoreError, match="Input/output error"):
            store.write_staged()
    assert store.log_end == end
    assert [record.body for record in records(store)] == [b"kept"]
    assert store.max_offset("Other", 0) == 0
    assert len(store.query("T", "k", 0, ALL)) == 1
    with pytest.raises(WritesRefused):
        put(store)
    with pytest.raises(WritesRefused):
        store.put_batch(Batch(("T", 0), 0, 9, BORN_HOST, batch(b"x")), b"")


def test_an_index_without_room_stops_the_senders_once_too_much_waits(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.engine.state.StoreState.index_pending_max", 10)
    store = open_store()
    put(store)
    with monkeypatch.context() as patched:
        patched.setattr("aerobee.store.files.disk.current.allocate", full)
        for _ in range(9):
            put(store, properties=b"KEYS\x01k\x02")
        with pytest.raises(DiskFull):
            store.index_pending()
        put(store, properties=b"KEYS\x01k\x02")
        with pytest.raises(WritesRefused, match="the index can't follow"):
            put(store)
        assert store.max_offset("T", 0) == len(records(store)) == 11
    store.index_pending()
    assert len(store.query("T", "k", 0, ALL)) == 10
    put(store)


@pytest.mark.parametrize("properties", [b"", b"a\x01b\x02", b"a\x01b", b"__CRC32#\x0112\x02a\x01b"])
def test_with_the_option_every_record_ends_with_its_crc(
    open_store: OpenStore, properties: bytes
) -> None:
    store = open_store(settings=replace(SMALL, append_crc=True))
    place, _, end = put(store, properties=properties)
    _, places, last = store.put_batch(
        Batch(("T", 0), 0, 9, BORN_HOST, batch(b"x", b"y")), b"c\x01d\x02"
    )
    put(store, born_host=bytes(20))
    for at in (place, *places, last):
        data = store.message_at(at)
        assert data is not None
        assert is_crc_property_right(data) is True
        assert data.count(b"__CRC32#") == 1
    first = decode_record(store.message_at(place) or b"")
    assert first.size == end - place
    own = {name: value for name, value in first.properties.items() if name != "__CRC32#"}
    assert own == ({"a": "b"} if properties else {})
    assert store.entries("T", 0, 0, 9)[0] == (place, first.size, 0)


def test_properties_that_leave_no_room_for_the_crc_are_too_large(open_store: OpenStore) -> None:
    store = open_store(settings=replace(SMALL, append_crc=True))
    put(store, properties=b"a\x01" + b"b" * (32_767 - 20 - 3) + b"\x02")
    with pytest.raises(MessageTooLarge, match=r"properties are 32768 bytes, the limit is 32767"):
        put(store, properties=b"a\x01" + b"b" * (32_767 - 20 - 2) + b"\x02")
    assert store.max_offset("T", 0) == 1
