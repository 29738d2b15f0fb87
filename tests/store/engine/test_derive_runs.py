"""Queues and index out of runs: byte for byte what single messages make, whatever is in them."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from aerobee.protocol.message.record import (
    INNER_BATCH,
    NEED_UNWRAP,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Record,
    encode_record,
)
from aerobee.store.engine.derive import QueueGap
from aerobee.store.engine.derive_runs import RunDerive, stable_order
from aerobee.store.files import checkpoint
from aerobee.store.files.checkpoint import Checkpoint
from aerobee.store.files.segment import Segment
from aerobee.store.index.index import Index
from aerobee.store.kernels.interpreted import InterpretedKernels
from aerobee.store.log import walk
from aerobee.store.log.key_hash import key_hash
from aerobee.store.log.run import Run, read_run
from aerobee.store.queues.consume_queue import SCHEDULE_TOPIC
from aerobee.store.queues.queues import Queues

from ...clocks import Clock
from ..conftest import BORN_HOST, HOST, SMALL, OpenStore, put
from .test_recovery import contents, crash, files_of, fill

KERNELS = InterpretedKernels()
SETTINGS = replace(SMALL, queue_file_bytes=400, index_slots=7, index_entries=60)
BYTES = 1 << 20
TOPICS = ["T", "Topic", SCHEDULE_TOPIC, "%RETRY%group", "x" * 140]
PROPERTIES = [
    b"",
    b"TAGS\x01a\x02",
    b"KEYS\x01k1 k2  k3\x02TAGS\x01b",
    b"UNIQ_KEY\x01%032d\x02WAIT\x01true\x02",
    b"UNIQ_KEY\x01u\x02KEYS\x01 \x02",
    "KEYS\x01schlüssel 键\x02TAGS\x01größe😀\x02".encode(),
    b"TAGS\x01old\x02TAGS\x01new\x02TAGS\x01\x02",
    b"XTAGS\x01no\x02KEYS\x01\x01odd\x02\x02",
    b"DELAY\x013\x02TAGS\x01d\x02",
    b"KEYS\x01\xff\xfe bad\x02",
    b"TAGS\x01%s\x02" % (b"t" * 60),
    b"no pair",
]


class Written:
    """A log file with records of all kinds."""

    def __init__(self, folder: Path, seed: int, count: int = 400) -> None:
        chance = random.Random(seed)
        self.next: dict[tuple[str, int], int] = {}
        data = b""
        for number in range(count):
            topic, queue_id = chance.choice(TOPICS), chance.randrange(3)
            flag = chance.choice([0, 0, 0, 0, *KINDS])
            raw = chance.choice(PROPERTIES)
            if b"%032d" in raw:
                raw %= number
            offset = 0
            if flag & INNER_BATCH:
                topic = "Batch"
                offset = self.next.get((topic, queue_id), 0)
                raw = b"INNER_BASE\x01%d\x02INNER_NUM\x013\x02" % offset
                self.next[topic, queue_id] = offset + 3
            elif flag in (0, TRANSACTION_COMMIT):
                offset = self.next.get((topic, queue_id), 17 if queue_id == 2 else 0)
                self.next[topic, queue_id] = offset + 1
            hosts = [HOST, bytes(20)] if chance.random() < 0.1 else [HOST]
            record = Record(
                0, 0, 0, queue_id, 0, offset, len(data), flag, 1, BORN_HOST,
                1_700_000_000_000 + 400 * number, chance.choice(hosts), 0, 0,
                chance.randbytes(chance.randrange(90)), topic, raw,
            )  # fmt: skip
            data += encode_record(record)
        self.end = len(data)
        folder.mkdir(exist_ok=True)
        path = folder / "log"
        path.write_bytes(data.ljust(BYTES, b"\0"))
        self.segment = Segment(path, 0, BYTES, writable=False)

    def runs(self, sizes: random.Random | None = None) -> list[Run]:
        """All of it as runs of whatever length."""
        found, place = [], 0
        while place < self.end:
            run = read_run(self.segment, place, sizes.randrange(600, 9_000) if sizes else BYTES)
            assert run is not None
            found.append(run)
            place = run.end
        return found


KINDS = [
    TRANSACTION_PREPARED,
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    INNER_BATCH | NEED_UNWRAP,
]


def derived(root: Path, clock: Clock, runs: list[Run], *, singly: bool, lmq: bool) -> Path:
    settings = replace(SETTINGS, lmq_enable=lmq)
    queues, index = Queues(root, settings), Index(root / "index", settings, clock, KERNELS)
    derive = RunDerive(queues, index, settings, is_whole=True)
    for run in runs:
        if not singly:
            derive.queue_run(run)
            derive.index_run(run)
            continue
        for row in range(len(run)):
            derive.queue(run.passed(row))
            derive.index(run.passed(row))
    index.flush(BYTES)
    queues.release()
    index.release()
    return root


@pytest.mark.parametrize("seed", range(6))
def test_runs_make_what_single_messages_make(tmp_path: Path, clock: Clock, seed: int) -> None:
    log = Written(tmp_path / "log", seed)
    lmq = seed == 5
    singly = derived(tmp_path / "singly", clock, log.runs(), singly=True, lmq=lmq)
    expected = files_of(singly)
    assert len(expected) > 20
    for sizes in (None, random.Random(seed)):
        root = derived(tmp_path / f"{sizes}", clock, log.runs(sizes), singly=False, lmq=lmq)
        assert files_of(root) == expected


def test_a_run_dispatched_again_changes_nothing(tmp_path: Path, clock: Clock) -> None:
    log = Written(tmp_path / "log", 1)
    queues = Queues(tmp_path, SETTINGS)
    index = Index(tmp_path / "index", SETTINGS, clock, KERNELS)
    derive = RunDerive(queues, index, SETTINGS, is_whole=True)
    for run in log.runs():
        derive.queue_run(run)
    expected = files_of(tmp_path / "consumequeue")
    for run in log.runs(random.Random(2)):
        derive.queue_run(run)
    assert files_of(tmp_path / "consumequeue") == expected


def test_a_wrong_entry_is_replaced_by_a_run_and_a_hole_is_noticed(
    tmp_path: Path, clock: Clock
) -> None:
    log = Written(tmp_path / "log", 3)
    expected = derived(tmp_path / "right", clock, log.runs(), singly=False, lmq=False)
    queues = Queues(tmp_path, SETTINGS)
    index = Index(tmp_path / "index", SETTINGS, clock, KERNELS)
    for number in range(25):
        queues.make("T", 0).append(500_000 + number, 100, 0)
    derive = RunDerive(queues, index, SETTINGS, is_whole=False)
    (whole,) = log.runs()
    with pytest.raises(QueueGap):
        derive.queue_run(whole)
    derive = RunDerive(queues, index, SETTINGS, is_whole=True)
    derive.queue_run(whole)
    assert files_of(tmp_path / "consumequeue") == files_of(expected / "consumequeue")


def test_messages_of_a_topic_before_its_deletion_get_no_entry(tmp_path: Path, clock: Clock) -> None:
    log = Written(tmp_path / "log", 4)
    queues = Queues(tmp_path, SETTINGS)
    index = Index(tmp_path / "index", SETTINGS, clock, KERNELS)
    middle = log.end // 2
    derive = RunDerive(queues, index, SETTINGS, is_whole=True, deleted={"T": middle})
    for run in log.runs():
        derive.queue_run(run)
    entries = queues.simple["T", 0].entries(0, 1_000, queues.simple["T", 0].next)
    places = [place for place, size, _ in entries if size < 1 << 20]
    assert places
    assert min(places) >= middle


def test_the_index_is_not_filled_twice_when_the_queues_are_made_twice(
    open_store: OpenStore, tmp_path: Path, clock: Clock
) -> None:
    store = open_store()
    for number in range(90):
        clock.ms += 10_000
        put(store, "T", number % 3, bytes(1_000), b"UNIQ_KEY\x01u%d\x02" % number)
    expected = contents(store)
    root = crash(store, tmp_path / "copy")
    assert len(list((root / "commitlog").iterdir())) == 2
    # As Java's: it is safe to begin with the second file. But a queue has lost what was before.
    checkpoint.save(root / "checkpoint", Checkpoint(log_ms=clock.ms, queues_ms=clock.ms))
    shutil.rmtree(root / "consumequeue" / "T" / "1")
    shutil.rmtree(root / "index", ignore_errors=True)
    again = open_store(root)
    assert contents(again) == expected
    again.close()
    with_all = open_store(root)
    for number in range(90):
        key = key_hash(f"T#u{number}")
        found = [list(file.find(key, 0, 1 << 62)) for file in with_all.state.index.files]
        assert sum(map(len, found)) == 1, number


def test_the_walk_goes_by_runs_as_long_as_it_can(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    fill(store, 300)
    expected = contents(store)
    store.close()
    shutil.rmtree(store.root / "consumequeue")
    singly: list[int] = []
    whole_record = walk.whole_record

    def counted(segment: Segment, place: int) -> object:
        singly.append(place)
        return whole_record(segment, place)

    monkeypatch.setattr(walk, "whole_record", counted)
    assert contents(open_store()) == expected
    # Only where a file ends is a record looked for singly.
    assert len(singly) <= 2 * len(list((store.root / "commitlog").iterdir()))


def test_sorting_is_stable_for_small_and_for_large_numbers() -> None:
    import numpy as np

    for factor in (1, 1 << 40):
        numbers = np.array([3, 1, 3, 1, 2, 3, 1]) * factor
        assert stable_order(numbers).tolist() == [1, 3, 6, 4, 0, 2, 5]
