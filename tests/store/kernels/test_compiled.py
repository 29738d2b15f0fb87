"""Compiled and interpreted kernels return the same records and write the same index files."""

from itertools import cycle, product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")

from aerobee.store.base.kernels import Buffer, Kernels
from aerobee.store.engine.store import MessageStore
from aerobee.store.files.segment import Segment
from aerobee.store.index.index_file import IndexFile
from aerobee.store.kernels.compiled import CompiledKernels, gather
from aerobee.store.kernels.interpreted import InterpretedKernels

from ..conftest import OpenStore, put

BOTH: tuple[Kernels, Kernels] = (InterpretedKernels(), CompiledKernels())
SLOTS, CAPACITY = 50, 500  # of an index file
COUNT = 300  # of messages of different sizes, over several files of the log and of each queue


@pytest.fixture
def store(open_store: OpenStore) -> MessageStore:
    store = open_store()
    for number in range(COUNT):
        put(store, "T", number % 3, body=b"%d" % number * (1 + number * number % 400))
    assert len(list((store.root / "commitlog").iterdir())) > 2
    return store


def test_the_same_records_are_found(store: MessageStore) -> None:
    found = []
    for kernels in BOTH:
        store.use(kernels)
        got = []
        for queue_id, offset in product(range(3), range(0, COUNT // 3 + 2, 3)):
            for messages_max, bytes_max in product((1, 2, 9, 32), (1, 700, 5_000, 1 << 20)):
                one = store.get("T", queue_id, offset, messages_max, bytes_max)
                got.append(
                    (one.status, one.next_offset, one.count, one.size, b"".join(one.records))
                )
        found.append(got)
    assert found[0] == found[1]
    assert max(count for _, _, count, _, _ in found[0]) > 8


class Watched(CompiledKernels):
    """Compiled kernels that note what they return."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Buffer | None] = []

    def gather(
        self, queue: Segment, at: int, count: int, log: Segment, bytes_max: int
    ) -> Buffer | None:
        records = super().gather(queue, at, count, log, bytes_max)
        assert records is None or (type(records) is memoryview) is (count == 1)  # of three queues
        self.found.append(records)
        return records


def test_records_of_several_files_and_too_many_bytes_are_read_one_by_one(
    store: MessageStore,
) -> None:
    watched = Watched()
    store.use(watched)
    for offset in range(COUNT // 3):
        assert store.get("T", 0, offset, 9, 5_000).records
    assert None in watched.found
    assert max(len(records or b"") for records in watched.found) > 1_000


@pytest.mark.parametrize(
    ("place", "size"), [(-1, 8), (1 << 40, 8), (60, 8), (0, -8), (0, 1 << 30), (-(1 << 63), 8)]
)
def test_an_entry_that_leads_out_of_the_file_is_refused(place: int, size: int) -> None:
    entry = place.to_bytes(8, "big", signed=True) + size.to_bytes(4, "big", signed=True) + bytes(8)
    queue = np.frombuffer(entry, np.uint8)
    log = np.frombuffer(bytes(64), np.uint8)
    assert gather(queue, 0, 1, log, 0, np.empty(64, np.uint8)) == (-1, -1)


def test_neighbours_are_not_copied(open_store: OpenStore) -> None:
    store = open_store()
    for number in range(9):
        put(store, "T", 0, body=b"%d" % number * 20)
    store.use(CompiledKernels())
    found = store.get("T", 0, 2, 5, 5_000)
    (records,) = found.records
    assert type(records) is memoryview
    assert len(records) == found.size
    store.use(InterpretedKernels())
    assert store.get("T", 0, 2, 5, 5_000).records == [records]
    assert store.get("T", 0, 0, 1, 5_000).count == 1


hashes = some.lists(some.integers(0, (1 << 31) - 1), min_size=1, max_size=90)


@settings(max_examples=50)
@given(blocks=some.lists(some.tuples(hashes, some.integers(0, 3_000)), min_size=1, max_size=20))
def test_the_same_keys_make_the_same_index_file(blocks: list[tuple[list[int], int]]) -> None:
    files: list[tuple[bytes, int, int]] = []
    for kernels in BOTH:
        with TemporaryDirectory() as folder:
            file = IndexFile.create(Path(folder) / "0", SLOTS, CAPACITY)
            moment_ms, offset, added = 1_700_000_000_000, 0, 0
            for keys, pause_ms in cycle(blocks):
                if file.is_full:
                    break
                offsets = np.arange(offset, offset + len(keys)) << 20
                columns = np.array(keys), offsets, np.full(len(keys), moment_ms)
                added += file.insert(*columns, kernels)
                moment_ms += pause_ms
                offset += len(keys)
            assert added == CAPACITY - 1
            files.append((bytes(file.segment.view), file.used_slots, file.count))
    assert files[0] == files[1]
