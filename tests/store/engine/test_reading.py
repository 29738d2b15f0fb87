"""Messages out of the store: statuses, limits, tags, times, keys."""

from typing import Any

import pytest
from aerobee.protocol.message.record import decode_all, decode_record
from aerobee.protocol.message.tags import string_hash
from aerobee.store.base import status
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.reading import Found
from aerobee.store.engine.store import MessageStore

from ...clocks import Clock
from ..conftest import BORN_HOST, SMALL, OpenStore, Unpack, java_settings, put

ALL = 1 << 60
LARGE = StoreSettings(
    segment_bytes=1 << 20, queue_file_bytes=20 * 5_000, index_slots=16, index_entries=48
)


def get(store: MessageStore, offset: int, **more: Any) -> Found:
    values: dict[str, Any] = {"messages_max": 32, "bytes_max": 1 << 20} | more
    return store.get("T", 0, offset, **values)


def bodies(found: Found) -> list[bytes]:
    data = b"".join(found.records)
    assert len(data) == found.size
    records = decode_all(data)
    assert len(records) == found.count
    return [record.body for record in records]


@pytest.fixture
def ten(open_store: OpenStore) -> MessageStore:
    store = open_store()
    for number in range(10):
        put(store, body=b"%d" % number)
    return store


@pytest.mark.parametrize(
    ("offset", "expected", "following"),
    [
        (0, status.FOUND, 10),
        (9, status.FOUND, 10),
        (10, status.OFFSET_OVERFLOW_ONE, 10),
        (11, status.OFFSET_OVERFLOW_BADLY, 10),
        (-1, status.OFFSET_TOO_SMALL, 0),
    ],
)
def test_the_status_tells_where_the_offset_lies(
    ten: MessageStore, offset: int, expected: int, following: int
) -> None:
    found = get(ten, offset)
    assert (found.status, found.next_offset) == (expected, following)
    assert (found.min_offset, found.max_offset) == (0, 10)


def test_a_queue_that_is_not_there_has_a_status_of_its_own(ten: MessageStore) -> None:
    found = ten.get("None", 0, 5, 32, 1000)
    assert (found.status, found.next_offset) == (status.NO_MATCHED_LOGIC_QUEUE, 0)
    assert ten.min_offset("None", 0) == 0
    ten.state.batch_topics = {"None"}
    assert ten.min_offset("None", 0) == -1
    assert ten.max_offset("None", 0) == 0
    assert ten.earliest_store_ms("None", 0) == -1
    assert ten.offset_at("None", 0, 5) == 0
    assert ten.entries("None", 0, 0, 5) == []


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({"messages_max": 3}, 3),
        ({"messages_max": 0}, 1),
        ({"bytes_max": 0}, 1),
        ({"bytes_max": 299}, 3),
        ({"bytes_max": 300}, 3),
        ({"messages_max": 1000}, 10),
    ],
)
def test_a_pull_keeps_its_limits_and_hands_out_one_message_at_least(
    ten: MessageStore, limits: dict[str, int], count: int
) -> None:
    found = get(ten, 0, **limits)
    assert bodies(found) == [b"%d" % number for number in range(count)]
    assert found.next_offset == count


def test_the_limits_of_the_settings_count_too(open_store: OpenStore) -> None:
    settings = StoreSettings(segment_bytes=1 << 20, pull_messages_max=4, pull_bytes_max=700)
    store = open_store(settings=settings)
    for _ in range(10):
        put(store, body=b"x")
        put(store, queue_id=1, body=bytes(150))
    assert get(store, 0).count == 4
    found = store.get("T", 1, 0, 32, 1 << 20)
    assert (found.count, found.next_offset) == (2, 2)


def test_what_is_far_behind_comes_in_smaller_pieces(
    ten: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ten.state, "memory_bytes", 500)
    assert get(ten, 0).count == 8
    assert get(ten, 6).count == 4
    assert ten.in_memory("T", 0, 6) is True
    assert ten.in_memory("T", 0, 0) is False


def test_a_pull_ends_with_a_queue_file_and_the_next_goes_on(open_store: OpenStore) -> None:
    store = open_store()
    for number in range(40):
        put(store, body=b"%d" % number)
    assert [get(store, offset).next_offset for offset in (0, 5, 16, 32)] == [16, 16, 32, 40]


def test_messages_that_lie_apart_come_in_one_piece(open_store: OpenStore) -> None:
    store = open_store()
    for number in range(30):
        put(store, queue_id=number % 3, body=b"%d" % number)
    found = get(store, 2)
    assert bodies(found) == [b"%d" % number for number in range(6, 30, 3)]
    assert len(found.records) == 1


def test_messages_that_lie_apart_in_a_later_file_are_the_right_ones(open_store: OpenStore) -> None:
    store = open_store()
    for number in range(40):
        put(store, queue_id=number % 2, body=b"%d," % number * 1_000)
    assert len(store.state.log.segments.items) > 1
    found = [get(store, 0)]
    while found[-1].next_offset < 20:
        found.append(get(store, found[-1].next_offset))
    all_bodies = [body for one in found for body in bodies(one)]
    assert all_bodies == [b"%d," % number * 1_000 for number in range(0, 40, 2)]


def test_messages_over_a_file_end_are_found(open_store: OpenStore) -> None:
    store = open_store()
    for _ in range(8):
        put(store, body=bytes(20_000))
    found = get(store, 0)
    assert [len(body) for body in bodies(found)] == [20_000] * 8


def test_a_view_stays_good_when_the_store_is_closed(open_store: OpenStore) -> None:
    store = open_store()
    put(store, body=b"still there")
    found = get(store, 0)
    store.close()
    assert bodies(found) == [b"still there"]


# ---- tags


def tagged(open_store: OpenStore, count: int, settings: StoreSettings = LARGE) -> MessageStore:
    """Every fifth message has the tag red, the others blue."""
    store = open_store(settings=settings)
    for number in range(count):
        code = string_hash("red" if number % 5 == 4 else "blue")
        put(store, body=b"%d" % number, tags_code=code)
    return store


RED, BLUE = frozenset({string_hash("red")}), frozenset({string_hash("blue")})


def test_only_messages_with_the_wanted_tags_come(open_store: OpenStore) -> None:
    store = tagged(open_store, 23)
    found = get(store, 0, tags_codes=RED)
    assert bodies(found) == [b"4", b"9", b"14", b"19"]
    assert (found.status, found.next_offset) == (status.FOUND, 23)
    assert get(store, 0, tags_codes=RED | BLUE).count == 23
    none = get(store, 0, tags_codes=frozenset({1}))
    assert (none.status, none.next_offset, none.records) == (status.NO_MATCHED_MESSAGE, 23, [])


def test_a_tagged_pull_goes_on_behind_its_last_message(open_store: OpenStore) -> None:
    store = tagged(open_store, 300)
    found = get(store, 0, messages_max=2, tags_codes=RED)
    assert (bodies(found), found.next_offset) == ([b"4", b"9"], 10)
    found = get(store, 10, tags_codes=RED)
    assert found.count == 32
    assert found.next_offset == 10 + 32 * 5
    found = get(store, 0, bytes_max=250, tags_codes=RED)
    assert (bodies(found), found.next_offset) == ([b"4", b"9"], 10)


def test_a_tagged_pull_looks_at_800_entries_at_most(open_store: OpenStore) -> None:
    store = tagged(open_store, 0)
    for _ in range(900):
        put(store, tags_code=7)
    put(store, body=b"rare", tags_code=8)
    wanted = frozenset({8})
    found = get(store, 0, tags_codes=wanted)
    assert (found.status, found.next_offset) == (status.NO_MATCHED_MESSAGE, 800)
    assert bodies(get(store, 800, tags_codes=wanted)) == [b"rare"]


# ---- what is gone


def test_messages_with_a_tag_are_counted_also_over_file_ends(open_store: OpenStore) -> None:
    store = tagged(open_store, 50, SMALL)  # sixteen entries a queue file; 4, 9, 14 … are red

    def count(start: int, end: int, tags: frozenset[int] = RED) -> int:
        return store.count_tagged("T", 0, start, end, tags)

    assert (count(0, 50), count(0, 50, BLUE), count(0, 50, RED | BLUE)) == (10, 40, 50)
    assert (count(5, 45), count(44, 45), count(45, 49)) == (8, 1, 0)
    assert (count(40, 1_000), count(-5, 5), count(50, 50), count(60, 50)) == (2, 1, 0, 0)
    assert store.count_tagged("Nowhere", 0, 3, 5, RED) == 2


def test_very_many_messages_are_counted_by_a_sample(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.engine.reading.SAMPLE_MAX", 20)
    store = tagged(open_store, 40, SMALL)
    assert store.count_tagged("T", 0, 0, 40, RED) == 8
    assert store.count_tagged("T", 0, 0, 19, RED) == 3
    assert store.count_tagged("T", 0, 5, 40, RED) == 4 * 35 // 20


def test_entries_that_lead_nowhere_are_passed_over(open_store: OpenStore) -> None:
    store = open_store()
    for number in range(3):
        put(store, body=b"%d" % number)
    store.write_staged()
    queue = store.state.queues.simple["T", 0]
    for offset in (0, 1):
        queue.segments.items[0].view[offset * 20 : offset * 20 + 8] = (1 << 30).to_bytes(8, "big")
    found = get(store, 0)
    assert bodies(found) == [b"2"]
    assert found.next_offset == 3
    found = get(store, 0, messages_max=1)
    assert (found.status, found.next_offset) == (status.MESSAGE_WAS_REMOVING, 1)


@pytest.mark.parametrize("wrong", [1 << 30, -1])
def test_an_entry_among_others_that_leads_nowhere_is_passed_over(
    open_store: OpenStore, wrong: int
) -> None:
    store = open_store()
    for number in range(6):
        put(store, queue_id=number % 2, body=b"%d" % number)
    store.write_staged()
    queue = store.state.queues.simple["T", 0]
    queue.segments.items[0].view[20:28] = wrong.to_bytes(8, "big", signed=True)
    found = get(store, 0)
    assert bodies(found) == [b"0", b"4"]
    assert found.next_offset == 3


@pytest.mark.parametrize("place", [-1, 1, 50, 1 << 40])
def test_a_place_where_no_record_begins_has_no_message(ten: MessageStore, place: int) -> None:
    assert ten.message_at(place) is None
    assert ten.message_at(0) is not None


# ---- times and keys


def test_offsets_are_found_by_time(open_store: OpenStore, clock: Clock) -> None:
    store = open_store()
    start = clock.ms
    for step in (0, 0, 10, 10, 10, 20):
        clock.ms = start + step
        put(store)
    expected = {-1: (0, 0), 0: (0, 1), 5: (2, 1), 10: (2, 4), 15: (5, 4), 20: (5, 5), 21: (6, 5)}
    for step, (lower, upper) in expected.items():
        assert store.offset_at("T", 0, start + step) == lower, step
        assert store.offset_at("T", 0, start + step, upper=True) == upper, step
    assert store.earliest_store_ms("T", 0) == start
    assert store.store_ms_at("T", 0, 5) == start + 20
    assert store.store_ms_at("T", 0, 6) == -1


def test_keys_are_found_in_their_topic_and_time(open_store: OpenStore, clock: Clock) -> None:
    store = open_store()
    start = clock.ms
    for number in range(120):
        clock.ms += 1000
        raw = b"UNIQ_KEY\x01u%d\x02KEYS\x01a  k%d\x02" % (number, number % 4)
        put(store, "T" if number % 2 else "U", properties=raw, body=b"%d" % number)
    found = [decode_record(data).body for data in store.query("T", "k3", 0, ALL)]
    assert found == [b"%d" % number for number in range(3, 120, 4)]
    assert store.query("U", "k3", 0, ALL) == []
    assert len(store.query("T", "a", 0, ALL, 500)) == 60
    assert [decode_record(data).body for data in store.query("U", "u118", 0, ALL)] == [b"118"]
    early = store.query("T", "k3", start, start + 20_000)
    assert [decode_record(data).body for data in early] == [b"3", b"7", b"11", b"15", b"19"]
    newest = store.query("T", "k3", 0, ALL, 2)
    assert [decode_record(data).body for data in newest] == [b"115", b"119"]


def test_another_key_with_the_same_hash_is_not_taken_for_it(open_store: OpenStore) -> None:
    assert string_hash("T#Aa") == string_hash("T#BB")
    store = open_store()
    for key in (b"Aa", b"BB", b"Aa"):
        put(store, properties=b"KEYS\x01" + key + b"\x02", body=key)
    assert [decode_record(data).body for data in store.query("T", "BB", 0, ALL)] == [b"BB"]
    assert len(store.query("T", "Aa", 0, ALL)) == 2


def test_without_an_index_nothing_is_found_and_no_file_made(open_store: OpenStore) -> None:
    settings = StoreSettings(segment_bytes=1 << 20, index_enable=False)
    store = open_store(settings=settings)
    put(store, properties=b"KEYS\x01k\x02")
    assert store.query("T", "k", 0, ALL) == []
    assert not (store.root / "index").exists()


def test_topics_and_queues_are_listed(ten: MessageStore) -> None:
    put(ten, "Other", 3)
    put(ten, "Other", 1)
    assert ten.queues("Other") == [1, 3]
    assert ten.topics() == {"T": [0], "Other": [3, 1]}
    assert 0 < ten.disk_ratio() <= 1


# ---- SYNC_FLUSH: nothing before it is on the disk


def test_what_is_not_on_the_disk_is_not_there_for_readers(
    open_store: OpenStore, clock: Clock
) -> None:
    settings = StoreSettings(
        segment_bytes=64 << 10, queue_file_bytes=320, index_slots=16, index_entries=48,
        sync_flush=True,
    )  # fmt: skip
    store = open_store(settings=settings)
    raw = b"KEYS\x01k\x02"
    for _ in range(3):
        put(store, properties=raw)
    plan = store.sync_plan()
    put(store, properties=raw)
    assert plan is not None
    for synced in (0, 3):
        assert store.max_offset("T", 0) == synced
        found = get(store, 0)
        assert (found.count, found.max_offset) == (synced, synced)
        assert len(store.query("T", "k", 0, ALL)) == synced
        assert len(store.entries("T", 0, 0, 10)) == synced
        assert (store.message_at(0) is None) == (synced == 0)
        assert store.message_at(store.log_end - 107) is None
        assert get(store, 3).status != status.FOUND
        plan.run()
        store.synced(plan)
    assert store.durable_end < store.log_end


def test_small_settings_hold_what_the_tests_assume() -> None:
    assert SMALL.queue_file_bytes == 16 * 20
    assert len(BORN_HOST) == 8


def test_a_key_is_found_behind_many_newer_ones_with_its_hash(open_store: OpenStore) -> None:
    store = open_store(settings=LARGE)
    put(store, body=b"wanted", properties=b"KEYS\x01Aa\x02")
    for _ in range(200):
        put(store, properties=b"KEYS\x01BB\x02")
    assert [decode_record(data).body for data in store.query("T", "Aa", 0, ALL)] == [b"wanted"]
    assert len(store.query("T", "BB", 0, ALL)) == 64


def test_a_time_range_of_a_query_is_exact_to_the_millisecond(
    open_store: OpenStore, clock: Clock
) -> None:
    store = open_store(settings=LARGE)
    first = clock.ms
    for number in range(60):  # over several files of the index
        clock.ms = first + 700 * number
        put(store, body=b"%d" % number, properties=b"KEYS\x01k\x02")
    for number in (0, 1, 2, 31, 47, 48, 58, 59):
        moment = first + 700 * number
        found = [
            [decode_record(data).body for data in store.query("T", "k", begin, end)]
            for begin, end in ((moment, moment), (moment + 1, moment + 699), (moment - 1, moment))
        ]
        assert found == [[b"%d" % number], [], [b"%d" % number]]


def test_messages_of_a_batch_queue_are_found_by_time(unpack: Unpack, open_store: OpenStore) -> None:
    root, written = unpack("bcq")
    store = open_store(root, java_settings(written["config"]))
    offset = 0
    for message in written["messages"]:
        found = store.offset_at("VecBatchCq", 0, message["storeTimestamp"])
        assert found <= offset
        assert store.store_ms_at("VecBatchCq", 0, found) == message["storeTimestamp"]
        offset += int(message["properties"]["INNER_NUM"])
    assert store.offset_at("VecBatchCq", 0, 0) == store.min_offset("VecBatchCq", 0) == 0
