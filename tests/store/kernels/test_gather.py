"""Compiled or with views, a pull finds the same records."""

from itertools import product
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")

from aerobee.store.engine.store import MessageStore
from aerobee.store.kernels.gather import gather

from ..conftest import OpenStore, put

COUNT = 300  # of messages of different sizes, over several files of the log and of each queue


@pytest.fixture
def store(open_store: OpenStore) -> MessageStore:
    store = open_store()
    for number in range(COUNT):
        put(store, "T", number % 3, body=b"%d" % number * (1 + number * number % 400))
    assert len(list((store.root / "commitlog").iterdir())) > 2
    return store


def test_the_same_records_are_found(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for way in (None, gather):
        monkeypatch.setattr(store.reader, "gather", way)
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


def test_records_of_several_files_and_too_many_bytes_are_left_to_the_other_way(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def told_gather(*given: Any) -> tuple[int, bool]:
        size, is_row = gather(*given)
        assert is_row is (given[2] == 1)  # there are three queues
        told.append(size)
        return size, is_row

    monkeypatch.setattr(store.reader, "gather", told_gather)
    for offset in range(COUNT // 3):
        assert store.get("T", 0, offset, 9, 5_000).records
    assert -1 in told
    assert max(told) > 1_000


@pytest.mark.parametrize(
    ("place", "size"), [(-1, 8), (1 << 40, 8), (60, 8), (0, -8), (0, 1 << 30), (-(1 << 63), 8)]
)
def test_an_entry_that_leads_out_of_the_file_is_refused(place: int, size: int) -> None:
    entry = place.to_bytes(8, "big", signed=True) + size.to_bytes(4, "big", signed=True) + bytes(8)
    queue = np.frombuffer(entry, np.uint8)
    log = np.frombuffer(bytes(64), np.uint8)
    assert gather(queue, 0, 1, log, 0, np.empty(64, np.uint8))[0] == -1


def test_records_side_by_side_are_not_copied(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    for number in range(9):
        put(store, "T", 0, body=b"%d" % number * 20)
    monkeypatch.setattr(store.reader, "gather", gather)
    found = store.get("T", 0, 2, 5, 5_000)
    (records,) = found.records
    assert type(records) is memoryview
    assert len(records) == found.size
    monkeypatch.undo()
    assert store.get("T", 0, 2, 5, 5_000).records == [records]
    assert store.get("T", 0, 0, 1, 5_000).count == 1
