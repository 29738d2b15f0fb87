"""Compiled or by numpy, keys make the same file of the index."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")

from aerobee.store.index.index_file import IndexFile
from aerobee.store.kernels.index_insert import link

SLOTS, CAPACITY = 50, 2_000


@pytest.mark.parametrize("seed", range(3))
def test_the_same_keys_make_the_same_file(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []
    for way in (None, link):
        monkeypatch.setattr(IndexFile, "link", None if way is None else staticmethod(way))
        chance = np.random.default_rng(seed)
        file = IndexFile.create(tmp_path / f"{len(files)}", SLOTS, CAPACITY)
        moment_ms, added = 1_700_000_000_000, 0
        while not file.is_full:
            count = int(chance.integers(1, 90))
            hashes = chance.integers(0, 1 << 31, count)
            offsets = np.sort(chance.integers(0, 1 << 40, count))
            added += file.insert(hashes, offsets, np.full(count, moment_ms))
            moment_ms += int(chance.integers(0, 3_000))
        assert added == CAPACITY - 1
        files.append((bytes(file.segment.view), file.used_slots, file.count))
    assert files[0] == files[1]
    assert files[0][1] == SLOTS
