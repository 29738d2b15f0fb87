"""Batches whose messages have one size become, all at once, what they would one by one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from aerobee.protocol.batch import Entry, encode_batch
from aerobee.protocol.record import decode_all
from aerobee.store import even_batch, writing
from aerobee.store.consume_queue import ConsumeQueue
from aerobee.store.index import index_keys
from aerobee.store.settings import StoreSettings

from .conftest import BORN_HOST, HOST, OpenStore

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


EVEN = [
    plain, tags_first, no_tags, no_end, flags, keys_of_two_lengths, two_keys, no_unique_key,
]  # fmt: skip
UNEVEN = [
    by_tags, tags_in_bodies, other_tags, twice, empty_tags, sizes, shifted, some_ends,
    no_properties,
]  # fmt: skip


def stored(open_store: OpenStore, folder: Path, make: Make, shared: bytes) -> list[object]:
    """All that storing a batch twice leaves: what it returns, log, queue, keys."""
    store = open_store(folder)
    found: list[object] = []
    for _ in range(2):
        batch = encode_batch(make(number) for number in range(COUNT))
        found.append(store.put_batch("T", 3, 1, 77, BORN_HOST, batch, shared, 2))
        found.append([item[:4] for item in store._index.pending])
        for _, raw, _, _, only in store._index.pending:
            assert only is None or index_keys(raw) == [only]
    store.write_staged()
    entries = store.entries("T", 3, 0, 100)
    found.append(entries)
    data = [store.message_at(place) for place, _, _ in entries]
    found += data
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
    monkeypatch.setattr(writing, "even_records", lambda *_: None)
    assert at_once == stored(open_store, tmp_path / "one by one", make, shared)


def made(batch: bytes) -> even_batch.Made | None:
    queue = ConsumeQueue(Path("unused"), "T", 3, 20 * 100)
    limit = StoreSettings().max_message_bytes
    return even_batch.even_records(queue, batch, 0, 0, 0, BORN_HOST, SHARED, 0, 0, HOST, limit)


@pytest.mark.parametrize("make", EVEN)
def test_even_batches_are_taken_at_once(make: Make) -> None:
    assert made(encode_batch(make(number) for number in range(COUNT))) is not None


def test_unique_keys_that_stand_alone_are_known(open_store: OpenStore) -> None:
    store = open_store()
    store.put_batch("T", 0, 0, 1, BORN_HOST, encode_batch(map(plain, range(COUNT))), SHARED)
    assert [item[4] for item in store._index.pending] == [b"%08X" % n for n in range(COUNT)]


@pytest.mark.parametrize("make", UNEVEN)
def test_others_are_left_to_be_taken_one_by_one(make: Make) -> None:
    assert made(encode_batch(make(number) for number in range(COUNT))) is None


def test_what_is_cut_off_or_no_batch_is_left_as_well() -> None:
    batch = encode_batch(plain(number) for number in range(COUNT))
    assert made(b"") is None
    for cut in (1, 10, 21, 22, 23, 30, len(batch) - 1):
        assert made(batch[:cut]) is None
    assert made(batch + b"\0") is None
    negative = bytearray(batch)
    negative[16:20] = b"\xff\xff\xff\xf0"
    assert made(bytes(negative)) is None
