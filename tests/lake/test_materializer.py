"""A topic's table holds each message once: passes, queues, days, starts, writers side by side."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

import pyarrow as pa
import pyarrow.compute as pc
from aerobee.client.cluster.route import MessageQueue
from aerobee.lake import commits
from aerobee.lake import materializer as materializer_module
from aerobee.lake.catalog import LakeCatalog
from aerobee.lake.commits import Conflict, Unconfirmed, commit
from aerobee.lake.errors import LakeError
from aerobee.lake.materializer import Materializer
from aerobee.lake.progress import ACCEPTED_KEY, OFFSETS_KEY
from aerobee.lake.rows.ranges import QueueRange
from aerobee.lake.verify import verify
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from ..spark.stored import STORE_MS
from .memory_log import MemoryLog
from .tables import contents, rewrite


def writer(catalog: LakeCatalog, source: MemoryLog, **options: Any) -> Materializer:
    return Materializer(catalog, source, "orders", "orders", **options)


def test_a_table_has_each_message_of_all_queues_and_brokers_once(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    for broker in ("broker-a", "broker-b"):
        for queue in range(3):
            source.send(20 + queue, queue, broker=broker)
    done = writer(catalog, source).copy()
    assert (done.rows, done.lag) == (126, 0)
    assert contents(catalog.load("orders", "orders")) == source.ledger()


def test_a_row_has_all_columns_of_the_spark_source(catalog: LakeCatalog, source: MemoryLog) -> None:
    source.send(1)
    writer(catalog, source).copy()
    (row,) = catalog.load("orders", "orders").scan().to_arrow().to_pylist()
    (queue,) = source.queues
    (expected,) = next(source.rows(_whole(source, queue))).to_pylist()
    assert row | {"properties": dict(row["properties"])} == expected | {
        "properties": dict(expected["properties"])
    }


def _whole(source: MemoryLog, queue: MessageQueue) -> QueueRange:
    each = source.queues[queue]
    return QueueRange(queue.topic, queue.broker_name, queue.queue_id, each.first, each.end)


def test_a_pass_goes_on_where_the_table_ends_whoever_wrote_it(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    first, second = writer(catalog, source), writer(catalog, source)
    for round_ in range(4):
        source.send(10, round_)
        source.send(10, 0)
        (first, second)[round_ % 2].copy()
    assert second.copy().rows == first.copy().rows == 0
    assert contents(catalog.load("orders", "orders")) == source.ledger()


def test_nothing_new_makes_no_snapshot(catalog: LakeCatalog, source: MemoryLog) -> None:
    source.send(5)
    copier = writer(catalog, source)
    made = copier.copy().snapshot_id
    assert copier.copy().snapshot_id is None
    assert writer(catalog, source).copy().snapshot_id is None
    snapshot = catalog.load("orders", "orders").current_snapshot()
    assert snapshot is not None
    assert snapshot.snapshot_id == made


def test_a_commit_has_a_file_for_each_day_sorted_by_queue_and_offset(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    for queue in (0, 1):
        for day in (0, 1, 2):
            source.send(10, queue, day=day)
    writer(catalog, source).copy()
    table = catalog.load("orders", "orders")
    files = [task.file for task in table.scan().plan_files()]
    assert len(files) == 3
    assert len({str(file.partition) for file in files}) == 3
    for file in files:
        with table.io.new_input(file.file_path).open() as stream:
            rows = pa.parquet.read_table(stream).select(["queueId", "offset"]).to_pylist()
        assert len(rows) == 20
        keys = [(row["queueId"], row["offset"]) for row in rows]
        assert keys == sorted(keys)


def test_a_commit_takes_some_of_each_queue_when_there_is_too_much(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    for queue in (0, 1, 2):
        source.send(30, queue, body=bytes(1000))
    copier = writer(catalog, source, commit_bytes=30_000)
    done = copier.copy()
    assert 0 < done.rows < 90
    assert done.is_behind
    assert {key[1] for key in contents(catalog.load("orders", "orders"))} == {0, 1, 2}
    while copier.copy().is_behind:
        pass
    assert contents(catalog.load("orders", "orders")) == source.ledger()


@pytest.mark.parametrize(
    ("start", "offsets"),
    [("earliest", range(5, 20)), ("latest", range(20, 20)), (STORE_MS + 12, range(12, 20))],
)
def test_the_first_commit_begins_where_it_is_told(
    catalog: LakeCatalog, source: MemoryLog, start: str | int, offsets: range
) -> None:
    source.send(20)
    source.delete(5)
    copier = writer(catalog, source, start=start)
    copier.copy()
    source.send(3)
    source.send(3, 1)  # a new queue is read from its oldest message
    copier.copy()
    have = sorted(key[1:] for key in contents(catalog.load("orders", "orders")))
    assert have == [(0, at) for at in (*offsets, 20, 21, 22)] + [(1, 0), (1, 1), (1, 2)]


def test_a_broker_that_does_not_answer_stops_only_its_own_queues(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    source.send(5)
    source.send(5, broker="broker-b")
    away = MessageQueue("orders", "broker-b", 0)
    source.absent[away] = "broker-b is away"
    copier = writer(catalog, source)
    done = copier.copy()
    assert (done.rows, done.failures) == (5, ("broker-b is away",))
    source.absent.clear()
    copier.copy()
    assert contents(catalog.load("orders", "orders")) == source.ledger()


def test_a_table_keeps_its_newest_snapshots_and_the_rows_of_all(
    catalog: LakeCatalog, source: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "SNAPSHOTS_MAX", 5)
    copier = writer(catalog, source)
    made = []
    for _ in range(12):
        source.send(2)
        made.append(copier.copy().snapshot_id)
    table = catalog.load("orders", "orders")
    assert {each.snapshot_id for each in table.snapshots()} == set(made[-5:])
    assert contents(table) == source.ledger()


def test_files_of_a_first_commit_in_doubt_stay_when_the_first_snapshots_are_expired(
    catalog: LakeCatalog, source: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit was made, its answer was lost, and its writer slept until nobody could know."""
    monkeypatch.setattr(commits, "SNAPSHOTS_MAX", 3)
    source.send(20)
    sleeper, rival = writer(catalog, source), writer(catalog, source)
    inner = catalog._catalog.commit_table

    def unanswered(*arguments: Any) -> None:
        monkeypatch.setattr(catalog._catalog, "commit_table", inner)
        inner(*arguments)
        raise ConnectionError("no answer")

    monkeypatch.setattr(catalog._catalog, "commit_table", unanswered)
    with pytest.raises(Unconfirmed):
        sleeper.copy()
    for _ in range(6):
        source.send(2)
        rival.copy()
    source.send(1)
    sleeper.copy()
    assert contents(catalog.load("orders", "orders")) == source.ledger()


# --- what is gone, or another log -------------------------------------------------------------


def test_messages_that_were_deleted_unread_stop_the_table(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    source.send(10)
    writer(catalog, source).copy()
    source.send(10)
    source.delete(13)
    with pytest.raises(LakeError, match=r"3 messages of queue broker-a:0 .* offsets 10 to 12"):
        writer(catalog, source).copy()
    assert len(contents(catalog.load("orders", "orders"))) == 10


def test_messages_that_were_deleted_unread_are_skipped_and_counted_where_that_is_wanted(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    source.send(10)
    writer(catalog, source).copy()
    source.send(10)
    source.delete(13)
    writer(catalog, source, on_gone="skip").copy()
    table = catalog.load("orders", "orders")
    assert sorted(key[2] for key in contents(table)) == [*range(10), *range(13, 20)]
    (found,) = verify(table, source, "orders")
    assert (found.gone, found.missing, found.is_clean) == (3, 0, True)
    source.delete(20)
    (found,) = verify(table, source, "orders")
    assert (found.gone, found.missing, found.is_clean) == (3, 0, True)
    rewrite(table, lambda rows: rows.filter(pc.not_equal(rows["offset"], 15)))
    (found,) = verify(catalog.load("orders", "orders"), source, "orders")
    assert (found.gone, found.missing, found.first_bad) == (3, 1, (10, 11, 12, 15))


@pytest.mark.parametrize("count", [4, 10, 25])
def test_a_topic_that_was_made_again_stops_the_table(
    catalog: LakeCatalog, source: MemoryLog, count: int
) -> None:
    source.send(10)
    writer(catalog, source).copy()
    again = MemoryLog(epoch=1)
    again.send(count)
    if count == 10:
        again.send(1)
    with pytest.raises(LakeError, match="deleted and made again"):
        writer(catalog, again).copy()
    assert contents(catalog.load("orders", "orders")) == source.ledger()


# --- the table and its writers ----------------------------------------------------------------


def test_two_writers_that_read_the_same_state_append_it_once(
    catalog: LakeCatalog, source: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.send(20)
    first, second = writer(catalog, source), writer(catalog, source)

    def after_the_rival(*arguments: Any) -> None:
        monkeypatch.setattr(materializer_module, "commit", commit)
        second.copy()
        commit(*arguments)

    monkeypatch.setattr(materializer_module, "commit", after_the_rival)
    with pytest.raises(Conflict):
        first.copy()
    assert first.copy().rows == 0
    table = catalog.load("orders", "orders")
    assert contents(table) == source.ledger()
    referenced = {task.file.file_path for task in table.scan().plan_files()}
    assert referenced == _parquet_files(table)


def _parquet_files(table: Table) -> set[str]:
    folder = Path(table.location().removeprefix("file://"))
    return {f"file://{path}" for path in folder.rglob("*.parquet")}


@pytest.mark.parametrize("outcome", ["made", "not made", "made late"])
def test_an_answer_that_never_came_makes_no_row_twice_and_loses_none(
    catalog: LakeCatalog, source: MemoryLog, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    """The catalog may have made the commit, or make it later."""
    source.send(20)
    copier = writer(catalog, source)
    inner = catalog._catalog.commit_table
    late: list[Callable[[], object]] = []

    def unanswered(*arguments: Any) -> None:
        monkeypatch.setattr(catalog._catalog, "commit_table", inner)
        if outcome == "made":
            inner(*arguments)
        elif outcome == "made late":
            late.append(lambda: inner(*arguments))
        raise ConnectionError("no answer")

    monkeypatch.setattr(catalog._catalog, "commit_table", unanswered)
    with pytest.raises(Unconfirmed, match="no answer"):
        copier.copy()
    source.send(5)
    copier.copy()
    for each in late:
        with pytest.raises(CommitFailedException):
            each()
    copier.copy()
    table = catalog.load("orders", "orders")
    assert contents(table) == source.ledger()
    assert {task.file.file_path for task in table.scan().plan_files()} == _parquet_files(table)


def test_a_commit_that_a_catalog_denies_though_it_made_it_stays_readable(
    catalog: LakeCatalog, source: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog that gets one request twice makes the commit, and then says that it has failed."""
    source.send(20)
    copier = writer(catalog, source)
    inner = catalog._catalog.commit_table

    def twice(*arguments: Any) -> object:
        monkeypatch.setattr(catalog._catalog, "commit_table", inner)
        inner(*arguments)
        return inner(*arguments)

    monkeypatch.setattr(catalog._catalog, "commit_table", twice)
    with pytest.raises(Conflict):
        copier.copy()
    assert copier.copy().rows == 0
    assert contents(catalog.load("orders", "orders")) == source.ledger()


def test_rows_of_another_writer_stop_the_table_until_they_are_accepted(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    source.send(5)
    writer(catalog, source).copy()
    table = catalog.load("orders", "orders")
    (task,) = table.scan().plan_files()
    with table.transaction() as change, change.update_snapshot().fast_append() as rows:
        rows.append_data_file(task.file)
    source.send(5)
    with pytest.raises(LakeError, match="is no commit of aerobee"):
        writer(catalog, source).copy()
    head = catalog.load("orders", "orders").current_snapshot()
    assert head is not None
    with catalog.load("orders", "orders").transaction() as change:
        change.set_properties({ACCEPTED_KEY: str(head.snapshot_id)})
    assert writer(catalog, source).copy().rows == 5


def test_rows_that_an_operator_deletes_do_not_stop_the_table_and_do_not_come_back(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    source.send(5)
    writer(catalog, source).copy()
    catalog.load("orders", "orders").delete("offset >= 0")
    source.send(5)
    assert writer(catalog, source).copy().rows == 5
    assert sorted(key[2] for key in contents(catalog.load("orders", "orders"))) == [5, 6, 7, 8, 9]


def test_a_table_that_is_rolled_back_gets_the_same_rows_again(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    source.send(5)
    first = writer(catalog, source).copy().snapshot_id
    source.send(5)
    writer(catalog, source).copy()
    assert first is not None
    catalog.load("orders", "orders").manage_snapshots().rollback_to_snapshot(first).commit()
    source.send(5)
    assert writer(catalog, source).copy().rows == 10
    assert contents(catalog.load("orders", "orders")) == source.ledger()


def test_a_table_that_was_dropped_and_made_again_is_not_filled_without_a_word(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    source.send(5)
    copier = writer(catalog, source)
    copier.copy()
    catalog._catalog.drop_table(catalog.identifier("orders"))
    source.send(1)
    with pytest.raises(LakeError, match=r"has no table rocketmq\.orders: it was dropped"):
        copier.copy()
    catalog.create("orders", "orders")
    with pytest.raises(LakeError, match="dropped and made again"):
        copier.copy()
    assert writer(catalog, source).copy().rows == 6


def test_offsets_that_cant_be_read_stop_the_table(catalog: LakeCatalog, source: MemoryLog) -> None:
    source.send(5)
    writer(catalog, source).copy()
    table = catalog.load("orders", "orders")
    with table.transaction() as change:
        change.append(
            table.scan().to_arrow().slice(0, 0),
            snapshot_properties={OFFSETS_KEY: '{"broker-a:0":-4}', "aerobee.version": "1"},
        )
    source.send(5)
    with pytest.raises(LakeError, match="offsets that can't be read"):
        writer(catalog, source).copy()
