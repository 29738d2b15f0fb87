"""A batch of keys changes an index file exactly as its keys one by one would."""

import random
import struct
from itertools import accumulate, count, cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from aerobee.store.base.errors import DiskFull
from aerobee.store.files.segment import Segment
from aerobee.store.index import index_file
from aerobee.store.index.index_file import (
    ENTRY_BYTES,
    HEADER_BYTES,
    IndexFile,
    file_bytes,
    file_name,
)
from aerobee.store.kernels.interpreted import InterpretedKernels
from hypothesis import given, settings
from hypothesis import strategies as some

SLOTS, ENTRIES = 7, 64


class OneByOne:
    """The plain way to put keys, after the book, over a bytearray."""

    def __init__(self, begin_ms: int = 0, begin_offset: int = 0) -> None:
        self.data = bytearray(file_bytes(SLOTS, ENTRIES))
        self.head = [begin_ms, begin_ms, begin_offset, begin_offset, 0, 0]
        struct.pack_into(">qqqqii", self.data, 0, *self.head)

    def put(self, key: int, offset: int, store_ms: int) -> bool:
        head = self.head
        count = max(1, head[5])
        if count >= ENTRIES:
            return False
        slot_at = HEADER_BYTES + 4 * (key % SLOTS)
        (newest,) = struct.unpack_from(">i", self.data, slot_at)
        if newest <= 0 or newest > count:
            newest = 0
        seconds = (store_ms - head[0]) // 1000
        if head[0] <= 0 or seconds < 0:
            seconds = 0
        seconds = min(seconds, 0x7FFFFFFF)
        at = HEADER_BYTES + 4 * SLOTS + ENTRY_BYTES * count
        struct.pack_into(">iqii", self.data, at, key, offset, seconds, newest)
        struct.pack_into(">i", self.data, slot_at, count)
        if count <= 1:
            head[0], head[2] = store_ms, offset
        head[4] += newest == 0
        head[1], head[3], head[5] = store_ms, offset, count + 1
        struct.pack_into(">qqqqii", self.data, 0, *head)
        return True


def made(folder: Path, name: str = "20260101000000000", **more: object) -> IndexFile:
    return IndexFile.create(folder / name, SLOTS, ENTRIES, **more)  # type: ignore[arg-type]


def insert(file: IndexFile, keys: list[tuple[int, int, int]]) -> int:
    columns = np.array(keys, np.int64).reshape(-1, 3)
    return file.insert(columns[:, 0], columns[:, 1], columns[:, 2], InterpretedKernels())


def random_keys(seed: int, count: int = 100) -> list[tuple[int, int, int]]:
    draw = random.Random(seed)
    moment = 1_700_000_000_000
    keys = []
    for number in range(count):
        moment += draw.choice([0, 1, 400, 5_000, -3_000])
        keys.append((draw.randrange(1 << 31), number * 100, moment))
    return keys


@settings(max_examples=20)
@given(
    hashes=some.lists(some.integers(0, (1 << 31) - 1), min_size=100, max_size=100),
    pauses_ms=some.lists(some.sampled_from([0, 1, 400, 5_000, -3_000]), min_size=100, max_size=100),
    sizes=some.lists(some.sampled_from([1, 2, 3, 10, 50]), min_size=1),
)
def test_batches_of_any_size_equal_keys_one_by_one(
    hashes: list[int], pauses_ms: list[int], sizes: list[int]
) -> None:
    moments_ms = accumulate(pauses_ms, initial=1_700_000_000_000)
    keys = list(zip(hashes, count(0, 100), moments_ms, strict=False))
    plain = OneByOne()
    taken = sum(plain.put(*key) for key in keys)
    assert taken == ENTRIES - 1
    with TemporaryDirectory() as folder:
        file = made(Path(folder))
        rest, size = keys, cycle(sizes)
        while rest and not file.is_full:
            batch = rest[: next(size)]
            insert(file, batch)
            rest = rest[len(batch) :]
        assert file.count == ENTRIES
        assert file.segment.view[:] == bytes(plain.data)


def test_a_file_behind_a_full_one_counts_its_first_key_from_that_ones_end(tmp_path: Path) -> None:
    full = made(tmp_path)
    insert(full, random_keys(1))
    keys = [(9, 50_000, full.end_ms + 7_500), (16, 50_001, full.end_ms + 9_500)]
    plain = OneByOne(full.end_ms, full.end_offset)
    fresh = made(tmp_path, "20260101000000001", previous=full)
    assert fresh.segment.view[:] == bytes(plain.data)
    for key in keys:
        plain.put(*key)
    insert(fresh, keys)
    assert fresh.segment.view[:] == bytes(plain.data)


def test_a_stale_number_in_a_slot_counts_as_none(tmp_path: Path) -> None:
    plain, file = OneByOne(), made(tmp_path)
    for data in (plain.data, file.segment.view):
        struct.pack_into(">i", data, HEADER_BYTES + 4 * 3, 50)
        struct.pack_into(">i", data, HEADER_BYTES + 4 * 4, -5)
    keys = [(3, 0, 1_000_000), (4, 1, 1_000_000), (3, 2, 1_000_000)]
    for key in keys:
        plain.put(*key)
    insert(file, keys)
    assert file.segment.view[:] == bytes(plain.data)


def test_a_look_up_goes_from_new_to_old_within_the_time(tmp_path: Path) -> None:
    file = made(tmp_path)
    start = 1_700_000_000_000
    insert(file, [(key, number, start + number * 1000) for number, key in enumerate([3, 10, 3, 3])])
    assert list(file.find(3, 0, 1 << 60)) == [3, 2, 0]
    assert list(file.find(3, start + 1000, start + 2000)) == [2]
    assert list(file.find(10, 0, 1 << 60)) == [1]
    assert list(file.find(17, 0, 1 << 60)) == []
    assert file.covers(0, start - 1) is False
    assert file.covers(start + 3000, start + 9000) is True


def test_a_loop_in_a_damaged_file_ends(tmp_path: Path) -> None:
    file = made(tmp_path)
    insert(file, [(3, 1, 1_000_000), (3, 2, 1_000_000)])
    at = HEADER_BYTES + 4 * SLOTS + ENTRY_BYTES * 1
    struct.pack_into(">iqii", file.segment.view, at, 3, 1, 0, 2)
    assert list(file.find(3, 0, 1 << 60)) == [2, 1]


def test_cutting_leaves_what_the_first_keys_alone_would_have_made(tmp_path: Path) -> None:
    keys = random_keys(3, 40)
    keys = [(key, offset, 1_700_000_000_000 + offset * 10) for key, offset, _ in keys]
    short, long = made(tmp_path), made(tmp_path, "20260101000000002")
    insert(short, keys[:25])
    insert(long, keys)
    assert long.count_before(2_500) == 26
    long.cut(26)
    assert long.segment.view[:] == short.segment.view[:]
    insert(short, keys[25:])
    insert(long, keys[25:])
    assert long.segment.view[:] == short.segment.view[:]


def test_an_existing_file_goes_on_where_it_was(tmp_path: Path) -> None:
    keys = random_keys(4, 40)
    first = made(tmp_path)
    insert(first, keys[:20])
    again = IndexFile(
        Segment(first.segment.path, 0, first.segment.size, writable=True), SLOTS, ENTRIES
    )
    assert again.count == 21
    insert(again, keys[20:])
    whole = made(tmp_path, "20260101000000003")
    insert(whole, keys)
    assert again.segment.view[:] == whole.segment.view[:]


def test_a_full_disk_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = made(tmp_path)
    before = file.segment.view[:]

    def full(fd: int, at: int, size: int) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr("aerobee.store.files.disk.current.allocate", full)
    with pytest.raises(DiskFull):
        insert(file, random_keys(5, 10))
    assert file.segment.view[:] == before
    assert file.count == 1


def test_a_file_is_named_by_the_local_time() -> None:
    name = file_name(1_700_000_000_123)
    assert len(name) == 17
    assert name.isdigit()
    assert name.endswith("123")
    assert name.startswith("202311")


@pytest.mark.parametrize("steps", [0, 1, 2, 7, 10_000])
def test_a_long_chain_is_left_for_a_look_at_all_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(index_file, "CHAIN_STEPS_MAX", steps)
    monkeypatch.setattr(index_file, "SCAN_ENTRIES", 5)
    start = 1_700_000_000_000
    keys = [(3 + SLOTS * (n % 3), n, start + 400 * n) for n in range(ENTRIES - 1)]
    file = made(tmp_path)
    insert(file, keys)
    for key in (3, 3 + SLOTS, 3 + 2 * SLOTS, 4):
        for begin, end in ((0, 1 << 60), (start + 2_000, start + 5_000), (0, start), (0, 5)):
            expected = [
                n for hashed, n, stored in reversed(keys)
                if hashed == key and begin <= start + (stored - start) // 1000 * 1000 <= end
            ]  # fmt: skip
            assert list(file.find(key, begin, end)) == expected


@pytest.mark.parametrize("steps", [0, 10_000])
def test_the_first_message_of_a_following_file_has_its_own_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(index_file, "CHAIN_STEPS_MAX", steps)
    full = made(tmp_path)
    insert(full, [(3, n, 1_000_000) for n in range(ENTRIES - 1)])
    following = made(tmp_path, "20260101000000009", previous=full)
    insert(following, [(3, 100, 1_060_000), (3, 101, 1_061_000)])
    assert list(following.find(3, 1_059_500, 1_060_500)) == [100]
    assert list(following.find(3, 1_061_000, 1_200_000)) == [101]
