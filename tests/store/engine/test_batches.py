"""Batches become the records of their messages, side by side, with their tags and keys."""

from collections.abc import Callable
from pathlib import Path

import pytest
from aerobee.protocol.message.batch import Entry, encode_batch, split_batch
from aerobee.protocol.message.properties import find
from aerobee.protocol.message.record import decode_all
from aerobee.protocol.message.tags import TAG_HASHES
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.messages import Batch, Message
from aerobee.store.engine.store import MessageStore
from aerobee.store.log.keys import index_keys

from ..conftest import BORN_HOST, OpenStore

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


@pytest.mark.parametrize("make", EVEN + UNEVEN)
@pytest.mark.parametrize("shared", [SHARED, b""])
def test_the_same_is_stored_as_of_single_messages(
    open_store: OpenStore, tmp_path: Path, make: Make, shared: bytes
) -> None:
    settings = StoreSettings(segment_bytes=1 << 20)
    together = open_store(tmp_path / "together", settings=settings)
    singly = open_store(tmp_path / "singly", settings=settings)
    for queue_id, first in ((3, 0), (2, 100), (3, 200)):
        data = batch_of(make, first)
        start, places, end = together.put_batch(
            Batch(("T", queue_id), queue_id, 70, BORN_HOST, data, queue_id), shared
        )
        offsets = []
        for entry in split_batch(data):
            text = entry.raw_properties
            if text and not text.endswith(b"\x02"):
                text += b"\x02"
            tags = find(text, b"TAGS")
            place, offset, log_end = singly.put(
                Message(
                    ("T", queue_id), entry.flag, queue_id, 70, BORN_HOST, entry.body,
                    text + shared, TAG_HASHES[tags] if tags else 0, queue_id,
                )
            )  # fmt: skip
            offsets.append(place)
        assert (list(places), end, start) == (offsets, log_end, offset - COUNT + 1)
    assert keys(together) == keys(singly)
    for store in (together, singly):
        store.write_staged()
    for queue_id in (2, 3):
        entries = together.entries("T", queue_id, 0, 1_000)
        assert entries == singly.entries("T", queue_id, 0, 1_000)
        for place, _, _ in entries:
            assert together.message_at(place) == singly.message_at(place)


def test_where_a_file_ends_they_go_on_in_the_next(open_store: OpenStore) -> None:
    store = open_store()  # its files have room for 320 messages and for 16 entries
    asked = [(("T", queue_id), 0, 1, BORN_HOST, batch_of(plain), 0) for queue_id in (0, 1, 0)] * 5
    places = [store.put_batch(Batch(*each), SHARED) for each in asked]
    store.write_staged()
    assert store.max_offset("T", 0) == 10 * COUNT
    assert store.max_offset("T", 1) == 5 * COUNT
    for (_, offsets, _), (_, _, _, _, data, _) in zip(places, asked, strict=True):
        found = [store.message_at(place) for place in offsets]
        bodies = [record.body for record in decode_all(b"".join(filter(None, found)))]
        assert bodies == [entry.body for entry in split_batch(data)]
