"""Messages out of the store many at a time: the same ones as one pull after the other gives."""

from collections.abc import Callable
from typing import Any

import pytest
from aerobee.protocol.message.record import decode_all
from aerobee.protocol.message.tags import string_hash
from aerobee.store.base import status
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.reading import Found
from aerobee.store.engine.store import MessageStore

from ..conftest import OpenStore, put

LARGE = StoreSettings(
    segment_bytes=1 << 16, queue_file_bytes=20 * 700, index_slots=16, index_entries=48
)
RED = frozenset({string_hash("red")})


def filled(open_store: OpenStore, count: int = 2_000) -> MessageStore:
    """Three queues in turn; each third message of a queue is red."""
    store = open_store(settings=LARGE)
    for number in range(count):
        code = string_hash("red" if number // 3 % 3 == 0 else "blue")
        put(store, queue_id=number % 3, body=b"%d" % number * (number % 7 + 1), tags_code=code)
    return store


def read_through(get: Callable[..., Found], queue_id: int, **more: Any) -> list[tuple[int, bytes]]:
    """Offset and body of all messages, one call after the other."""
    offset, found = 0, []
    while True:
        some = get("T", queue_id, offset, **more)
        if some.status == status.FOUND:
            data = b"".join(some.records)
            assert (len(data), some.count) == (some.size, len(decode_all(data)))
            found += [(each.queue_offset, each.body) for each in decode_all(data)]
        elif some.status != status.NO_MATCHED_MESSAGE:
            assert some.status == status.OFFSET_OVERFLOW_ONE
            return found
        assert some.next_offset > offset
        offset = some.next_offset


@pytest.mark.parametrize("wanted", [None, RED, frozenset({5})])
@pytest.mark.parametrize("limits", [(8_192, 1 << 20), (300, 1 << 20), (8_192, 5_000), (1, 1)])
def test_in_bulk_the_same_messages_come(
    open_store: OpenStore, wanted: frozenset[int] | None, limits: tuple[int, int]
) -> None:
    store = filled(open_store)
    few = {"messages_max": 32, "bytes_max": 1 << 18, "tags_codes": wanted}
    many = dict(zip(("messages_max", "bytes_max"), limits, strict=True), tags_codes=wanted)
    for queue_id in range(3):
        expected = read_through(store.get, queue_id, **few)
        assert read_through(store.get_many, queue_id, **many) == expected
        offsets = range(667 if queue_id < 2 else 666)
        if wanted is None:
            assert [offset for offset, _ in expected] == list(offsets)
        elif wanted == RED:
            assert [offset for offset, _ in expected] == list(offsets[::3])
        else:
            assert expected == []


def test_what_an_earlier_run_wrote_is_checked_and_comes_too(open_store: OpenStore) -> None:
    store = filled(open_store)
    expected = read_through(store.get, 1, messages_max=32, bytes_max=1 << 18)
    store.close()
    again = open_store(settings=LARGE)
    assert again.get_many("T", 1, 0, 300, 1 << 20).count > 200
    assert read_through(again.get_many, 1, messages_max=300, bytes_max=1 << 20) == expected


def test_a_damaged_record_of_an_earlier_run_is_left_out_as_in_a_pull(open_store: OpenStore) -> None:
    store = open_store(settings=LARGE)
    for number in range(10):
        put(store, body=b"body%d" % number)
    store.close()
    log = next((store.root / "commitlog").iterdir())
    data = log.read_bytes()
    log.write_bytes(data.replace(b"body4", b"bodyX"))
    (store.root / "abort").unlink(missing_ok=True)
    again = open_store(settings=LARGE)
    many = again.get_many("T", 0, 0, 300, 1 << 20)
    few = again.get("T", 0, 0, 32, 1 << 20)
    bodies = [each.body for each in decode_all(b"".join(many.records))]
    assert bodies == [each.body for each in decode_all(b"".join(few.records))]
    assert b"bodyX" not in bodies
    assert b"body3" in bodies


@pytest.mark.parametrize(("queue_id", "offset"), [(0, -1), (0, 667), (0, 10_000), (9, 0)], ids=str)
def test_where_nothing_is_the_answer_is_that_of_a_pull(
    open_store: OpenStore, queue_id: int, offset: int
) -> None:
    store = filled(open_store)
    few = store.get("T", queue_id, offset, 32, 1 << 18)
    assert few.status != status.FOUND
    assert store.get_many("T", queue_id, offset, 8_192, 1 << 20) == few


def test_what_is_on_the_disk_alone_comes_in_smaller_answers(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(open_store)
    near = store.get_many("T", 0, 0, 8_192, 8_000)
    monkeypatch.setattr(store.state, "memory_bytes", 10)
    far = store.get_many("T", 0, 0, 8_192, 8_000)
    assert 6_000 < near.size <= 8_000
    assert 1_000 < far.size <= 2_000
