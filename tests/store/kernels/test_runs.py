"""Compiled and interpreted kernels read the same runs of records, whole ones and damaged ones."""

from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")

from aerobee.protocol.message.record import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from aerobee.store.engine.derive_runs import by_queue
from aerobee.store.engine.store import MessageStore
from aerobee.store.files.segment import Segment
from aerobee.store.kernels.compiled import CompiledKernels
from aerobee.store.kernels.runs import CompiledRuns
from aerobee.store.log.run import Run, read_run

from ..conftest import SMALL, OpenStore, put

V6_HOST = bytes(range(16)) + bytes(4)
BIG_FILES = replace(SMALL, segment_bytes=1 << 20)
LONG_TOPIC = "topic-" * 20


def fill(store: MessageStore, count: int) -> None:
    """Messages of all kinds."""
    for number in range(count):
        topic = ("T", "other", LONG_TOPIC)[number % 3]
        properties = b"UNIQ_KEY\x01%032X\x02" % number
        if number % 2:
            properties += b"TAGS\x01tag%d\x02" % (number % 5)
        if number % 4 == 1:
            properties += b"KEYS\x01a b%d  c\x02" % number
        if number % 7 == 3:
            properties = "TAGS\x01größe\x02KEYS\x01schlüssel\x02".encode()
        if number % 11 == 5:
            properties = b""
        body = b"" if number % 13 == 2 else bytes([number % 256]) * (number % 90)
        kinds: dict[int, dict[str, Any]] = {
            1: {"born_host": V6_HOST},
            2: {"sys_flag": TRANSACTION_PREPARED},
            3: {"sys_flag": TRANSACTION_ROLLBACK},
        }
        more = kinds.get(number % 17, {})
        put(store, topic, number % 4, body, properties, **more)
    store.write_staged()


@pytest.fixture
def log(open_store: OpenStore) -> tuple[bytes, int]:
    """The first file of a log up to its end, and where it ends."""
    store = open_store(settings=BIG_FILES)
    fill(store, 120)
    return store.raw(0, store.log_end), store.log_end


def run_of(data: bytes, compiled: CompiledRuns | None, base: int = 0) -> Run | None:
    return read_run(cast(Segment, SimpleNamespace(view=data, base=base)), base, 1 << 20, compiled)


def contents(run: Run | None) -> object:
    """Everything that queues and index are made from."""
    if run is None:
        return None
    queues = [
        (topic, number, rows.tolist(), entries.tobytes())
        for topic, number, rows, entries in by_queue(run, np.arange(len(run)))
    ]
    rows, hashes = run.keys()
    return run.end, run.log_offsets.tolist(), queues, rows.tolist(), hashes.tolist()


def test_messages_of_all_kinds_give_the_same_entries_and_keys(log: tuple[bytes, int]) -> None:
    data, end = log
    found = run_of(data, CompiledRuns())
    assert found is not None
    assert (len(found), found.end) == (120, end)
    assert contents(found) == contents(run_of(data, None))


def test_a_run_ends_before_a_record_that_is_cut_off_or_lies_elsewhere(
    log: tuple[bytes, int],
) -> None:
    data, _ = log
    compiled = CompiledRuns()
    for end in range(0, 1_000, 7):
        assert contents(run_of(data[:end], compiled)) == contents(run_of(data[:end], None)), end
    assert run_of(data, compiled, base=8) is None
    assert run_of(data, None, base=8) is None


def test_any_damaged_byte_ends_both_runs_at_the_same_record(log: tuple[bytes, int]) -> None:
    data, _ = log
    compiled, random = CompiledRuns(), Random(1)
    some = bytearray(data[:400])
    shorter = 0
    for at in range(len(some)):
        damaged = some.copy()
        damaged[at] ^= random.randrange(1, 256)
        one, other = run_of(bytes(damaged), compiled), run_of(bytes(damaged), None)
        assert contents(one) == contents(other), at
        shorter += one is None or one.end <= at
    assert shorter > 30  # most fields have nothing that tells a change


def test_a_slave_with_compiled_kernels_makes_the_same_files(
    open_store: OpenStore, tmp_path: Path
) -> None:
    names = "master", "interpreted", "compiled"
    master, interpreted, compiled = (open_store(tmp_path / name, BIG_FILES) for name in names)
    compiled.use(CompiledKernels())
    fill(master, 600)
    files = []
    for slave in (interpreted, compiled):
        slave.follower.follow("a slave")
        slave.follower.append_raw(0, master.raw(0, master.log_end))
        assert slave.follower.derive_new()
        assert slave.whole_end == master.log_end
        for number in (6, 300):
            assert len(list(slave.query("T", f"{number:032X}", 0, 1 << 62))) == 1
        slave.close()
        paths = sorted(each for each in slave.root.rglob("*") if each.is_file())
        files.append(
            {
                str(path.relative_to(slave.root)): path.read_bytes()
                for path in paths
                if path.parts[-2] != "index"
                and path.name not in ("checkpoint", "lock", "abort")
                and "config" not in path.parts
            }
        )
    assert files[0] == files[1]
    assert any("consumequeue" in name for name in files[0])
