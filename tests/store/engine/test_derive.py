"""Queues and index out of records: repeated, with holes, in light and batch queues."""

from pathlib import Path

import pytest
from aerobee.store.base.settings import StoreSettings
from aerobee.store.engine.derive import Derive, QueueGap
from aerobee.store.index.index import Index
from aerobee.store.kernels.interpreted import InterpretedKernels
from aerobee.store.log.run import Passed
from aerobee.store.queues.consume_queue import FILLER
from aerobee.store.queues.queues import Queues

from ...clocks import Clock

KERNELS = InterpretedKernels()
SETTINGS = StoreSettings(
    segment_bytes=4096, queue_file_bytes=320, index_slots=16, index_entries=48, lmq_enable=True
)


@pytest.fixture
def queues(tmp_path: Path) -> Queues:
    return Queues(tmp_path, SETTINGS)


@pytest.fixture
def index(tmp_path: Path, clock: Clock) -> Index:
    return Index(tmp_path / "index", SETTINGS, clock, KERNELS)


def passed(
    offset: int, place: int, sys_flag: int = 0, raw: bytes = b"", topic: str = "T"
) -> Passed:
    return Passed(place, 100, topic, 0, offset, sys_flag, 1_700_000_000_000, raw)


def entries(queues: Queues, topic: str = "T") -> list[int]:
    queue = queues.simple[topic, 0]
    return [place for place, _, _ in queue.entries(0, 1000, queue.next)]


def test_dispatching_again_changes_nothing(queues: Queues, index: Index) -> None:
    derive = Derive(queues, index, SETTINGS, is_whole=False)
    for _ in range(3):
        for number in range(20):
            derive.queue(passed(number, number * 100))
    assert entries(queues) == list(range(0, 2_000, 100))


def test_a_gap_needs_the_whole_log(queues: Queues, index: Index) -> None:
    derive = Derive(queues, index, SETTINGS, is_whole=False)
    derive.queue(passed(0, 0))
    with pytest.raises(QueueGap):
        derive.queue(passed(2, 200))
    with pytest.raises(QueueGap):
        derive.queue(passed(1, 300, topic="Other"))
    assert entries(queues) == [0]


def test_with_the_whole_log_a_queue_begins_late_and_holes_are_filled(
    queues: Queues, index: Index
) -> None:
    derive = Derive(queues, index, SETTINGS, is_whole=True)
    derive.queue(passed(18, 0))
    derive.queue(passed(21, 100))
    queue = queues.simple["T", 0]
    assert (queue.min_offset, queue.next) == (18, 22)
    assert [queue.entry(offset) for offset in (18, 19, 20, 21)] == [
        (0, 100, 0),
        FILLER,
        FILLER,
        (100, 100, 0),
    ]


def test_a_wrong_entry_is_replaced_and_what_followed_it_goes(queues: Queues, index: Index) -> None:
    for number in range(30):
        queues.make("T", 0).append(9_000 + number, 50, 5)
    derive = Derive(queues, index, SETTINGS, is_whole=False)
    derive.queue(passed(12, 1_200))
    assert entries(queues) == [9_000 + number for number in range(12)] + [1_200]


def test_a_message_in_light_queues_has_an_entry_in_each(queues: Queues, index: Index) -> None:
    derive = Derive(queues, index, SETTINGS, is_whole=True)
    for number, names in enumerate(["%LMQ%a,%LMQ%b", "%LMQ%b", "no,%LMQ%a"]):
        offsets = ["0,0", "1", "7,1"][number]
        raw = f"INNER_MULTI_DISPATCH\x01{names}\x02INNER_MULTI_QUEUE_OFFSET\x01{offsets}\x02"
        derive.queue(passed(number, number * 100, raw=raw.encode()))
    assert entries(queues) == [0, 100, 200]
    assert entries(queues, "%LMQ%a") == [0, 200]
    assert entries(queues, "%LMQ%b") == [0, 100]
    assert ("no", 0) not in queues.simple


def test_without_the_option_light_queues_are_not_made(queues: Queues, index: Index) -> None:
    derive = Derive(queues, index, StoreSettings(), is_whole=True)
    raw = b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x010\x02"
    derive.queue(passed(0, 0, raw=raw))
    assert list(queues.simple) == [("T", 0)]


def test_an_inner_batch_has_a_unit_with_its_number(queues: Queues, index: Index) -> None:
    derive = Derive(queues, index, SETTINGS, is_whole=True)
    for _ in range(2):
        for number, base in enumerate([0, 3]):
            raw = b"INNER_BASE\x01%d\x02INNER_NUM\x013\x02" % base
            derive.queue(passed(base, number * 100, sys_flag=0xC0, raw=raw))
    units = queues.batch["T", 0].units(0, 10, 1_000)
    assert [(unit.log_offset, unit.base, unit.number) for unit in units] == [(0, 0, 3), (100, 3, 3)]


def test_messages_of_prepared_and_rolled_back_transactions_have_no_entry(
    queues: Queues, index: Index
) -> None:
    derive = Derive(queues, index, SETTINGS, is_whole=True)
    for place, kind in enumerate((0x4, 0xC, 0x8)):
        record = passed(0, place * 100, sys_flag=kind, raw=b"KEYS\x01k\x02")
        derive.queue(record)
        derive.index(record)
    assert entries(queues) == [200]
    assert [item[2] for item in index.pending] == [0, 200]
