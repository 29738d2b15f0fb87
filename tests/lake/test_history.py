"""A table by queue and offset: where it begins, and the files that have a range."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyiceberg")

from aerobee.client.cluster.route import MessageQueue
from aerobee.lake import history
from aerobee.lake.history import History
from aerobee.lake.materializer import Materializer
from aerobee.lake.rows.columns import row_columns
from aerobee.lake.rows.decode import schema_of
from aerobee.lake.union import TopicTable

from ..spark.stored import STORE_MS
from .memory_log import DAY_MS, MemoryLog
from .tables import catalog_in

QUEUES = [("broker-a", 0), ("broker-a", 1), ("broker-b", 1)]
COLUMNS = row_columns(full=True)

Ranges = dict[MessageQueue, tuple[int, int]]


@pytest.fixture
def made(tmp_path: Path) -> Callable[[MemoryLog, int], History]:
    """The history of a table to which a log's messages of some days were committed one by one."""
    catalog = catalog_in(tmp_path)
    catalog.create("orders", "orders")

    def make(log: MemoryLog, days: int) -> History:
        for day in range(days):
            for number, (broker, queue) in enumerate(QUEUES):
                log.send(20 + 7 * number, queue, broker=broker, day=day)
            Materializer(catalog, log, "orders", "orders").copy()
        return History(TopicTable(catalog.load("orders", "orders"), log, "orders"))

    return make


def rows(found: History, wanted: Ranges) -> list[tuple[str, int, int]]:
    """Broker, queue and offset of the rows that the parts of a range have, sorted."""
    keys = []
    for part in found.parts(wanted):
        for batch in part.rows(COLUMNS):
            assert batch.schema == schema_of(COLUMNS)
            keys += [(r["brokerName"], r["queueId"], r["offset"]) for r in batch.to_pylist()]
    return sorted(keys)


@pytest.mark.parametrize("part_bytes", [1, 1 << 30], ids=["a file each", "one part"])
def test_the_parts_of_a_range_have_its_rows_once(
    made: Callable[[MemoryLog, int], History], part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "PART_BYTES", part_bytes)
    found, random = made(MemoryLog(), 3), Random(7)
    assert sorted(found.ends.values()) == [60, 81, 102]
    for _ in range(12):
        wanted: Ranges = {}
        for queue, end in found.ends.items():
            if random.random() < 0.8:
                start, stop = sorted(random.sample(range(end + 1), 2))
                wanted[queue] = (start, stop)
        expected = [
            (queue.broker_name, queue.queue_id, offset)
            for queue, (start, end) in wanted.items()
            for offset in range(start, end)
        ]
        assert rows(found, wanted) == sorted(expected)


def test_files_without_a_wanted_offset_are_not_read(
    made: Callable[[MemoryLog, int], History], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "PART_BYTES", 1)
    found = made(MemoryLog(), 3)
    queue = MessageQueue("orders", "broker-a", 0)
    assert len(found.parts({queue: (0, 60)})) == 3
    assert len(found.parts({queue: (0, 5)})) == 1
    assert found.parts({}) == []


def test_a_queue_begins_at_the_least_offset_in_the_files(
    made: Callable[[MemoryLog, int], History],
) -> None:
    log = MemoryLog()
    log.send(10)
    log.delete(4)
    found = made(log, 2)
    first, second, third = sorted(found.ends)
    assert found.firsts() == {first: 4, second: 0, third: 0}
    later = found.firsts(STORE_MS + DAY_MS)
    assert later == {first: 30, second: 27, third: 34}
    assert found.firsts(STORE_MS + 9 * DAY_MS) == {}


def test_a_look_for_the_first_offsets_reads_no_more_files_than_it_must(
    made: Callable[[MemoryLog, int], History], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MemoryLog()
    log.send(0, queue=9)  # empty, so it is in no file
    found = made(log, 3)
    assert MessageQueue("orders", "broker-a", 9) in found.ends
    opened, read = [], pq.read_table

    def counted(*given: Any, **how: Any) -> Any:
        opened.append(given)
        return read(*given, **how)

    monkeypatch.setattr(pq, "read_table", counted)
    assert set(found.firsts().values()) == {0}
    assert len(opened) == 1
