"""Comparing a table with the log finds each kind of difference, and where it is."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

import pyarrow as pa
import pyarrow.compute as pc
from aerobee.client.cluster.route import MessageQueue
from aerobee.lake import verify as verify_module
from aerobee.lake.errors import LakeError
from aerobee.lake.materializer import Materializer
from aerobee.lake.verify import QueueFindings, verify
from pyiceberg.table import Table

from ..spark.stored import STORE_MS
from .memory_log import MemoryLog
from .tables import catalog_in, rewrite

COUNT = 20  # messages of each queue


@pytest.fixture
def source() -> MemoryLog:
    found = MemoryLog()
    for queue in (0, 1):
        found.send(COUNT, queue)
    found.send(COUNT, broker="broker-b")
    return found


@pytest.fixture
def table(tmp_path: Path, source: MemoryLog) -> Table:
    """A copy of the log."""
    catalog = catalog_in(tmp_path)
    catalog.create("orders", "orders")
    Materializer(catalog, source, "orders", "orders").copy()
    return catalog.load("orders", "orders")


@pytest.fixture(params=[3, 250_000], ids=["small windows", "one window"], autouse=True)
def windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_module, "WINDOW", request.param)


def compared(table: Table, source: MemoryLog, since_ms: int | None = None) -> list[QueueFindings]:
    return list(verify(table, source, "orders", since_ms=since_ms))


def one_bad(found: list[QueueFindings]) -> QueueFindings:
    """The findings of the only queue that differs, broker-a:1."""
    assert [each.queue for each in found if not each.is_clean] == ["broker-a:1"]
    return next(each for each in found if not each.is_clean)


def at(rows: pa.Table, *offsets: int) -> pa.Array:
    """Which rows are those of queue 1 of broker-a at these offsets."""
    is_offset = pc.is_in(rows["offset"], pa.array(offsets))
    is_queue = pc.and_(pc.equal(rows["queueId"], 1), pc.equal(rows["brokerName"], "broker-a"))
    return pc.and_(is_offset, is_queue)


def replaced(column: str, value: object) -> Callable[[pa.Table], pa.Table]:
    """Puts a value into a column of the row at offset 7."""

    def change(rows: pa.Table) -> pa.Table:
        number = rows.schema.get_field_index(column)
        kind = rows.schema.field(column)
        values = rows[column].to_pylist()
        values[at(rows, 7).to_pylist().index(True)] = value
        return rows.set_column(number, kind, pa.array(values, kind.type))

    return change


def test_a_copy_is_clean(table: Table, source: MemoryLog) -> None:
    found = compared(table, source)
    assert [(each.queue, each.rows, each.compared) for each in found] == [
        (name, COUNT, COUNT) for name in ("broker-a:0", "broker-a:1", "broker-b:0")
    ]
    assert all(each.is_clean and each.first_bad == () for each in found)


def test_messages_that_are_not_copied_yet_are_no_difference(
    table: Table, source: MemoryLog
) -> None:
    source.send(5, 1)
    source.send(5, 4)
    assert all(each.is_clean for each in compared(table, source))


def test_missing_rows_are_found(table: Table, source: MemoryLog) -> None:
    rewrite(table, lambda rows: rows.filter(pc.invert(at(rows, 3, 4, 19))))
    found = one_bad(compared(table, source))
    assert (found.missing, found.twice, found.different, found.beyond) == (3, 0, 0, 0)
    assert (found.rows, found.first_bad) == (COUNT - 3, (3, 4, 19))


def test_rows_that_are_there_twice_are_found(table: Table, source: MemoryLog) -> None:
    def twice(rows: pa.Table) -> pa.Table:
        again = rows.filter(at(rows, 5, 6))
        return pa.concat_tables([rows, again, again])

    rewrite(table, twice)
    found = one_bad(compared(table, source))
    assert (found.missing, found.twice, found.different, found.beyond) == (0, 4, 0, 0)
    assert found.first_bad == (5, 6)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("value", b"another"),
        ("value", None),
        ("key", "another"),
        ("keys", ["k7"]),
        ("timestampType", 0),
        ("msgId", None),
        ("properties", [("KEYS", "another")]),
    ],
)
def test_a_row_that_differs_from_its_message_is_found(
    table: Table, source: MemoryLog, column: str, value: object
) -> None:
    rewrite(table, replaced(column, value))
    found = one_bad(compared(table, source))
    assert (found.missing, found.twice, found.different, found.beyond) == (0, 0, 1, 0)
    assert found.first_bad == (7,)


def test_rows_beyond_the_offset_of_the_table_are_found(table: Table, source: MemoryLog) -> None:
    source.send(5, 1)
    rewrite(table, lambda rows: pa.concat_tables([rows, rows.filter(at(rows, 7))]))
    rewrite(table, replaced("offset", COUNT + 2))  # the first of the two
    found = one_bad(compared(table, source))
    assert (found.missing, found.twice, found.different, found.beyond) == (0, 0, 0, 1)
    assert found.first_bad == (COUNT + 2,)


def test_where_the_log_has_deleted_its_messages_the_table_alone_is_looked_at(
    table: Table, source: MemoryLog
) -> None:
    source.delete(12, 1)
    found = {each.queue: each for each in compared(table, source)}
    assert all(each.is_clean for each in found.values())
    assert (found["broker-a:1"].rows, found["broker-a:1"].compared) == (COUNT, COUNT - 12)
    rewrite(table, lambda rows: rows.filter(pc.invert(at(rows, 5))))
    assert one_bad(compared(table, source)).first_bad == (5,)
    source.delete(COUNT - 12, 1)
    assert one_bad(compared(table, source)).missing == 1


def test_a_later_begin_leaves_out_what_is_before(table: Table, source: MemoryLog) -> None:
    rewrite(table, lambda rows: rows.filter(pc.invert(at(rows, 5))))
    assert all(each.is_clean for each in compared(table, source, since_ms=STORE_MS + 6))
    found = one_bad(compared(table, source, since_ms=STORE_MS + 5))
    assert (found.first, found.missing, found.compared) == (5, 1, COUNT - 6)
    assert [each.rows for each in compared(table, source, since_ms=STORE_MS + 99)] == [0, 0, 0]


def test_the_comparison_begins_at_the_oldest_row(table: Table, source: MemoryLog) -> None:
    """A retention of the table may have deleted the rows before."""
    rewrite(table, lambda rows: rows.filter(pc.greater_equal(rows["offset"], 15)))
    assert [(each.first, each.rows) for each in compared(table, source)] == [(15, 5)] * 3


def test_a_broker_that_does_not_answer_is_named(table: Table, source: MemoryLog) -> None:
    source.absent[MessageQueue("orders", "broker-b", 0)] = "broker-b:0: no answer"
    with pytest.raises(
        LakeError, match=r"not every queue of topic orders .* broker-b:0: no answer"
    ):
        compared(table, source)


def test_a_topic_that_was_made_again_is_named(table: Table) -> None:
    again = MemoryLog(epoch=1)
    for queue in (0, 1):
        again.send(COUNT - 1, queue)
    with pytest.raises(LakeError, match=r"broker-a:0 .* ends at offset 19, .*: the topic was"):
        compared(table, again)
