"""Batches whose messages have one size become, all at once, what they would one by one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from aerobee.protocol.message.batch import Entry, encode_batch, split_batch
from aerobee.protocol.message.record import decode_all
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine import batches, uniform_batch
from aerobee.store.engine.messages import Batch
from aerobee.store.engine.store import MessageStore
from aerobee.store.log.keys import index_keys
from aerobee.store.queues.consume_queue import ConsumeQueue

from ..conftest import BORN_HOST, HOST, OpenStore

COUNT = 32
SHARED = b"MSG_REGION\x01r\x02TRACE_ON\x01true\x02"
Make = Callable[[int], Entry]


def pair(name: str, value: str) -> bytes:
    return f"{name}\x01{value}\x02".encode()


def plain(number: int) -> Entry:
    return Entry(0, b"body %03d" % number, pair("UNIQ_KEY", f"{number:08X}") + pair("TAGS", "t1"))


def tags_first(number: int) -> Entry:
    return Entry(0, b"body %03d" % number, pair("TAGS", "größe") + pair("K", f"{number:03}"))


def no_tags(number: int) -> Entry:
    return Entry(0, b"x" * 500, pair("a", f"{number:03}"))


def no_end(number: int) -> Entry:
    return Entry(0, b"x", pair("TAGS", "t") + b"KEYS\x01k%03d" % number)


def flags(number: int) -> Entry:
    return Entry(-number << 20 | number, b"x", pair("TAGS", "t"))


def by_tags(number: int) -> Entry:
    return Entry(0, b"x", pair("TAGS", f"t{number % 4}"))


def tags_in_bodies(number: int) -> Entry:
    """As many tags as messages, but not one in each: some stand in bodies."""
    if number % 2:
        return Entry(0, b"\x02TAGS\x01t1\x02" * 2, b"XXXX\x01t1\x02")
    return Entry(0, b"." * 18, b"XXXX\x01t1\x02")


def other_tags(number: int) -> Entry:
    return Entry(0, b"x", pair("MYTAGS", "t1"))


def twice(number: int) -> Entry:
    return Entry(0, b"x", pair("TAGS", "t1") + pair("TAGS", "t2"))


def empty_tags(number: int) -> Entry:
    return Entry(0, b"x", pair("TAGS", "") + pair("a", "b"))


def sizes(number: int) -> Entry:
    return Entry(0, b"x" * (1 + number % 2), pair("TAGS", "t1"))


def shifted(number: int) -> Entry:
    """The same size in all, with other lengths in it."""
    return Entry(0, b"x" * (5 + number % 2), b"a\x01" + b"b" * (5 - number % 2) + b"\x02")


def some_ends(number: int) -> Entry:
    return Entry(0, b"x", b"a\x01b" + (b"\x02" if number % 2 else b"c"))


def no_properties(number: int) -> Entry:
    return Entry(0, b"%03d" % number, b"")


def keys_of_two_lengths(number: int) -> Entry:
    """The key of the first ends where in others a pair without a value does."""
    return Entry(0, b"x", b"UNIQ_KEY\x01ab%b\x02X\x01y\x02" % (b"\x02c" if number % 2 else b"cd"))


def two_keys(number: int) -> Entry:
    return Entry(0, b"x", pair("UNIQ_KEY", f"{number:08X}") + pair("KEYS", f"{number:03}"))


def no_unique_key(number: int) -> Entry:
    return Entry(0, b"x", pair("MY_UNIQ_KEY", f"{number:08X}"))


def shared_key(number: int) -> Entry:
    return Entry(0, b"%03d" % number, pair("UNIQ_KEY", "of all") + pair("TAGS", f"{number % 3}"))


EVEN = [
    plain, tags_first, no_tags, no_end, flags, two_keys, no_unique_key, by_tags, tags_in_bodies,
    other_tags, no_properties, shared_key,
]  # fmt: skip
UNEVEN = [keys_of_two_lengths, twice, empty_tags, sizes, shifted, some_ends]


def batch_of(make: Make, first: int = 0) -> bytes:
    return encode_batch(make(number) for number in range(first, first + COUNT))


def keys(store: MessageStore) -> list[object]:
    """What goes into the index: topic, place, time, keys of each message that has any."""
    found: list[object] = []
    for topic, raw, place, store_ms, only in store.state.index.pending:
        assert only is None or index_keys(raw) == [only]
        if index_keys(raw):
            found.append((topic, place, store_ms, index_keys(raw)))
    return found


def stored(open_store: OpenStore, folder: Path, make: Make, shared: bytes) -> list[object]:
    """All that storing some batches leaves: what it returns, log, queues, keys."""
    store = open_store(folder, settings=StoreSettings(segment_bytes=1 << 20))
    found: list[object] = []
    several = [
        Batch(("T", queue_id), queue_id, 70 + queue_id, BORN_HOST, batch_of(make, first), queue_id)
        for queue_id, first in ((3, 0), (2, 100), (3, 200), (1, 300))
    ]
    for each in (several, several[:1], [*several[:2], Batch(("U", 0), 0, 1, BORN_HOST, b"")]):
        for placed in store.put_batches(each, shared):
            if isinstance(placed, Exception):
                found.append((type(placed), str(placed)))
                continue
            first, places, end = placed
            found.append((first, list(places), end))
    found.append(keys(store))
    store.write_staged()
    for queue_id in range(4):
        entries = store.entries("T", queue_id, 0, 1_000)
        data = [store.message_at(place) for place, _, _ in entries]
        found += (entries, data)
        for number, record in enumerate(decode_all(b"".join(filter(None, data)))):
            assert record.is_body_intact
            assert record.queue_offset == number
    store.close()
    return found


@pytest.mark.parametrize("make", EVEN + UNEVEN)
@pytest.mark.parametrize("shared", [SHARED, b""])
def test_the_same_is_stored_as_message_by_message(
    open_store: OpenStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Make,
    shared: bytes,
) -> None:
    at_once = stored(open_store, tmp_path / "at once", make, shared)
    monkeypatch.setattr(batches, "uniform_records", lambda *_: None)
    assert at_once == stored(open_store, tmp_path / "one by one", make, shared)


def made(*data: bytes) -> uniform_batch.BatchRun | None:
    queue = ConsumeQueue(Path("unused"), "T", 3, 20 * 100)
    shape = uniform_batch.shape_of(data[0])
    if shape is None:
        return None
    asked = [Batch(("T", 3), 0, 0, BORN_HOST, each) for each in data]
    return uniform_batch.uniform_records([queue] * len(data), asked, shape, 0, SHARED, 0, HOST)


@pytest.mark.parametrize("make", EVEN)
def test_even_batches_are_made_at_once(make: Make) -> None:
    assert made(batch_of(make)) is not None
    together = made(batch_of(make), batch_of(make, 100))
    assert together is not None
    assert len(together.entries) == 2 * COUNT


def test_small_batches_are_made_together() -> None:
    few = [encode_batch([plain(2 * number), plain(2 * number + 1)]) for number in range(4)]
    assert made(*few[:3]) is None
    assert made(*few) is not None


def test_one_that_is_not_even_leaves_its_neighbours_so(open_store: OpenStore) -> None:
    def put(*makers: Make) -> tuple[list[bytes | None], list[bytes | None]]:
        """The unique keys that are known from those put by these, and from those put last."""
        asked = [Batch(("T", 0), 0, 1, BORN_HOST, batch_of(make)) for make in makers]
        places = store.put_batches(asked, SHARED)
        assert not any(isinstance(placed, Exception) for placed in places)
        known = [item[4] for item in store.state.index.pending]
        store.state.index.pending.clear()
        return known[:-COUNT], known[-COUNT:]

    def gap(number: int) -> Entry:
        """Of the same size as plain ones, with something odd in the last."""
        value = f"{number:08X}" if number < COUNT - 1 else "\x02\x02345678"
        return Entry(0, b"body %03d" % number, pair("UNIQ_KEY", value) + pair("TAGS", "t1"))

    store = open_store(settings=StoreSettings(segment_bytes=1 << 20))
    odd, even = put(gap, plain)
    assert odd == [None] * COUNT
    assert even == [b"%08X" % number for number in range(COUNT)]


def test_unique_keys_that_stand_alone_are_known(open_store: OpenStore) -> None:
    store = open_store(settings=StoreSettings(segment_bytes=1 << 20))
    store.make_room()
    store.put_batch(Batch(("T", 0), 0, 1, BORN_HOST, batch_of(plain)), SHARED)
    assert [item[4] for item in store.state.index.pending] == [b"%08X" % n for n in range(COUNT)]


def test_where_a_file_ends_they_go_on_in_the_next(open_store: OpenStore) -> None:
    store = open_store()  # its files have room for 320 messages and for 16 entries
    asked = [Batch(("T", queue), 0, 1, BORN_HOST, batch_of(plain)) for queue in (0, 1, 0)] * 5
    places = [placed for placed in store.put_batches(asked, SHARED) if isinstance(placed, tuple)]
    assert len(places) == len(asked)
    store.write_staged()
    assert store.max_offset("T", 0) == 10 * COUNT
    assert store.max_offset("T", 1) == 5 * COUNT
    for (_, offsets, _), (_, _, _, _, data, _) in zip(places, asked, strict=True):
        found = [store.message_at(place) for place in offsets]
        bodies = [record.body for record in decode_all(b"".join(filter(None, found)))]
        assert bodies == [entry.body for entry in split_batch(data)]


@pytest.mark.parametrize("make", UNEVEN)
def test_others_are_left_to_be_taken_one_by_one(make: Make) -> None:
    assert made(batch_of(make)) is None


def test_what_is_cut_off_or_no_batch_is_left_as_well() -> None:
    batch = batch_of(plain)
    assert made(b"") is None
    for cut in (1, 10, 21, 22, 23, 30, len(batch) - 1):
        assert made(batch[:cut]) is None
    assert made(batch + b"\0") is None
    negative = bytearray(batch)
    negative[16:20] = b"\xff\xff\xff\xf0"
    assert made(bytes(negative)) is None
