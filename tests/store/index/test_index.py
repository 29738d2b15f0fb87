"""The index over several files: order, rolling, truncation, and which keys are indexed."""

from itertools import islice
from pathlib import Path

import pytest
from aerobee.store.base.errors import DamagedStore
from aerobee.store.base.settings import StoreSettings
from aerobee.store.index.index import TABLE_MESSAGES_MIN, Index
from aerobee.store.kernels.interpreted import InterpretedKernels
from aerobee.store.log.keys import index_keys

from ...clocks import Clock
from ..conftest import SMALL

ALL = 1 << 60
KERNELS = InterpretedKernels()


@pytest.fixture
def index(tmp_path: Path, clock: Clock) -> Index:
    return Index(tmp_path / "index", SMALL, clock, KERNELS)


def names(index: Index) -> list[str]:
    return [file.segment.path.name for file in index.files]


def found(index: Index, key: str) -> list[int]:
    """The log offsets under a key, ascending."""
    return sorted(set(index.find("T", key, 0, ALL)))


def fill(index: Index, count: int, clock: Clock, start: int = 0) -> None:
    """Adds one key per message; the messages are a second and 100 bytes of log apart."""
    for number in range(start, start + count):
        clock.ms += 1000
        index.pending.append(("T", b"KEYS\x01k%d\x02" % (number % 3), number * 100, clock.ms, None))
    index.flush((start + count) * 100)


RAW_AND_KEYS: list[tuple[bytes, list[bytes]]] = [
    (b"", []),
    (b"TAGS\x01t\x02", []),
    (b"UNIQ_KEY\x01u\x02", [b"u"]),
    (b"KEYS\x01a b\x02UNIQ_KEY\x01u\x02", [b"u", b"a", b"b"]),
    (b"KEYS\x01 a  b \x02", [b"a", b"b"]),
    (b"x\x01KEYS\x01no\x02KEYS\x01yes", [b"yes"]),
    (b"MY_UNIQ_KEY\x01no\x02", []),
    (b"UNIQ_KEY\x01old\x02UNIQ_KEY\x01new\x02", [b"new"]),
    (b"x\x01UNIQ_KEY\x01no\x02", []),
    (b"UNIQ_KEY\x01u\x02KEYS\x01 a  b\x02", [b"u", b"a", b"b"]),
    (b"MY_KEYS\x01no\x02UNIQ_KEY\x01u\x02", [b"u"]),
    (b"UNIQ_KEY\x01u\x02x\x01KEYS\x01no\x02", [b"u"]),
    (b"UNIQ_KEY\x01u\x02KEYS\x01last", [b"u", b"last"]),
    (
        "KEYS\x01größe 日本 \U0001f41d\x02".encode(),
        ["größe".encode(), "日本".encode(), "\U0001f41d".encode()],
    ),
]


@pytest.mark.parametrize(("raw", "keys"), RAW_AND_KEYS)
def test_the_keys_of_a_message_are_its_unique_key_and_the_words_of_its_keys(
    index: Index, raw: bytes, keys: list[bytes]
) -> None:
    assert index_keys(raw) == keys
    # The fast path for batches indexes the same keys.
    index.pending.append(("T", raw, 7, 1_700_000_000_000, None))
    index.flush(100)
    assert sum(file.count - 1 for file in index.files) == len(keys)
    for key in keys:
        assert found(index, key.decode()) == [7]


def test_a_full_file_is_followed_by_one_that_sorts_behind_it(index: Index, clock: Clock) -> None:
    fill(index, 60, clock)
    clock.ms -= 86_400_000 * 400
    fill(index, 60, clock, start=60)
    assert len(index.files) == 3
    assert names(index) == sorted(names(index))
    clock.ms += 86_400_000 * 800
    assert found(index, "k1") == list(range(100, 12_000, 300))
    assert [*islice(index.find("T", "k1", 0, ALL), 3)] == [11_800, 11_500, 11_200]


def test_a_batch_across_a_file_end_equals_single_messages(tmp_path: Path, clock: Clock) -> None:
    one, many = (Index(tmp_path / name, SMALL, clock, KERNELS) for name in ("one", "many"))
    items = [("T", b"KEYS\x01a b c\x02", number, clock.ms + number, None) for number in range(40)]
    many.pending += items
    many.flush(100)
    for item in items:
        one.pending.append(item)
        one.flush(100)
    assert len(many.files) == 3
    assert [file.segment.view[:] for file in one.files] == [
        file.segment.view[:] for file in many.files
    ]


def test_many_messages_are_indexed_like_single_ones(tmp_path: Path, clock: Clock) -> None:
    settings = StoreSettings(index_slots=64, index_entries=4_096)
    one, many = (Index(tmp_path / name, settings, clock, KERNELS) for name in ("one", "many"))
    for number in range(TABLE_MESSAGES_MIN):
        raw, keys = RAW_AND_KEYS[number % len(RAW_AND_KEYS)]
        only = keys[0] if keys == [b"u"] and number % 2 else None
        item = (f"T{number % 3}", raw, number * 100, clock.ms + number * 500, only)
        many.pending.append(item)
        one.pending.append(item)
        one.flush(ALL)
    many.flush(ALL)
    assert many.files[0].count > TABLE_MESSAGES_MIN
    assert one.files[0].segment.view[:] == many.files[0].segment.view[:]


def test_keys_that_the_caller_passes_are_indexed_like_parsed_ones(
    tmp_path: Path, clock: Clock
) -> None:
    known, looked, mixed = (Index(tmp_path / name, SMALL, clock, KERNELS) for name in "abc")
    for number in range(20):
        raw = b"UNIQ_KEY\x01u%d\x02" % (number % 7)
        topic = "T" if number < 18 else "other"
        item = (topic, raw, number * 100, clock.ms + number)
        known.pending.append((*item, raw[9:-1]))
        looked.pending.append((*item, None))
        mixed.pending.append((*item, raw[9:-1] if number % 2 else None))
        if number == 15:
            known.flush(1_501)  # only messages of one topic
    for index in (known, looked, mixed):
        index.flush(ALL)
    assert found(known, "u3") == [300, 1000, 1700]
    for one, two, three in zip(known.files, looked.files, mixed.files, strict=True):
        assert one.segment.view[:] == two.segment.view[:] == three.segment.view[:]


def test_only_messages_before_the_end_are_added(index: Index) -> None:
    for place in (0, 100, 200):
        index.pending.append(("T", b"KEYS\x01k\x02", place, 1_700_000_000_000, None))
    index.flush(200)
    assert found(index, "k") == [0, 100]
    assert [item[2] for item in index.pending] == [200]
    index.flush(201)
    assert found(index, "k") == [0, 100, 200]
    assert index.pending == []


def test_a_limited_flush_takes_the_oldest_messages_and_returns_their_number(index: Index) -> None:
    for place in (0, 100, 200):
        index.pending.append(("T", b"KEYS\x01k\x02", place, 1_700_000_000_000, None))
    assert index.flush(1_000, 2) == 2
    assert found(index, "k") == [0, 100]
    assert index.flush(200, 2) == 0, "beyond the end"
    assert index.flush(1_000, 2) == 1
    assert index.pending == []


@pytest.mark.parametrize("end", [0, 1, 2_000, 4_700, 4_701, 9_000, 12_000])
def test_truncation_at_a_log_offset_drops_the_entries_behind_it(
    index: Index, clock: Clock, end: int
) -> None:
    fill(index, 120, clock)
    index.cut_at_log(end)
    assert found(index, "k0") == list(range(0, end, 300))
    fill(index, 3, clock, start=200)
    assert found(index, "k2")[-1] == 20_000


def test_truncation_in_a_file_drops_later_files_and_entries(index: Index, clock: Clock) -> None:
    fill(index, 120, clock)
    index.cut_at_file(names(index)[1], 11)
    assert len(index.files) == 2
    assert found(index, "k0") == list(range(0, 5_700, 300))
    index.cut_at_file("", 0)
    assert index.files == []


def test_files_before_the_start_of_the_log_are_deleted_except_the_last(
    index: Index, clock: Clock
) -> None:
    fill(index, 120, clock)
    first, second, third = names(index)
    assert index.take_before(4_600) is None
    taken = index.take_before(4_700)
    assert taken is not None
    assert taken.path.name == first
    assert index.take_before(4_700) is None
    assert names(index) == [second, third]
    assert index.take_before(1 << 40) is not None
    assert index.take_before(1 << 40) is None
    assert names(index) == [third]


def test_a_file_of_another_size_is_named_with_the_expected_size(
    tmp_path: Path, clock: Clock
) -> None:
    folder = tmp_path / "index"
    folder.mkdir()
    (folder / "20260101000000000").write_bytes(bytes(5))
    (folder / "20260101000000001").write_bytes(b"")
    with pytest.raises(DamagedStore, match=r"has 5 bytes, .*maxHashSlotNum.*delete the file"):
        Index(folder, SMALL, clock, KERNELS).load()


def test_a_disabled_index_keeps_nothing(tmp_path: Path, clock: Clock) -> None:
    index = Index(tmp_path / "index", StoreSettings(index_enable=False), clock, KERNELS)
    index.pending.append(("T", b"KEYS\x01k\x02", 0, clock.ms, None))
    index.flush(100)
    assert index.pending == []
    assert not (tmp_path / "index").exists()
