"""Rows sent to a running broker: when they are seen, and what a repeated task sends."""

import asyncio
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from aerobee.client import blocking
from aerobee.client.errors import AerobeeError
from aerobee.lake.rows.columns import ROW_ID, row_columns
from aerobee.spark import sink
from aerobee.spark.batch import RocketmqReader
from aerobee.spark.options import read_options
from aerobee.spark.sink import UNDER_WAY_MAX, RocketmqWriter, send_rows
from aerobee.spark.sink_options import write_options
from aerobee.testing import LocalCluster

ROWS = UNDER_WAY_MAX + 50
TOPIC = "written"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        with blocking.Admin(cluster.name_server) as admin:
            admin.create_topic(TOPIC, queues=2)
        yield cluster


def seen(cluster: LocalCluster) -> int:
    """How many messages of the topic consumers can have."""
    with blocking.Reader(cluster.name_server) as reader:
        return sum(map(reader.max_offset, reader.queues(TOPIC)))


def rows_of(cluster: LocalCluster, **more: str) -> list[dict[str, Any]]:
    said = {"subscribe": TOPIC, "nameServer": cluster.name_server, **more}
    reader = RocketmqReader(read_options(said), row_columns(full=True))
    return [
        row
        for part in reader.partitions()
        for each in reader.read(part)
        for row in each.to_pylist()
    ]


def written(cluster: LocalCluster, transactions: str) -> RocketmqWriter:
    given = {"topic": TOPIC, "nameServer": cluster.name_server, "transactions": transactions}
    return RocketmqWriter(write_options(given))


def batches(count: int) -> Iterator[pa.RecordBatch]:
    for at in range(0, count, 100):
        bodies = [b"%d" % number for number in range(at, min(count, at + 100))]
        yield pa.RecordBatch.from_pydict({"value": bodies})


def test_in_transactions_no_row_is_seen_before_all_tasks_have_stored_theirs(
    cluster: LocalCluster,
) -> None:
    pickled = pickle.dumps(written(cluster, "true"))
    sent = [pickle.loads(pickled).write(batches(ROWS)) for _ in range(2)]
    assert seen(cluster) == 0
    pickle.loads(pickled).commit(pickle.loads(pickle.dumps([*sent, None])))
    assert seen(cluster) == 2 * ROWS


def test_in_transactions_rows_of_a_job_that_fails_are_taken_back(cluster: LocalCluster) -> None:
    writer = written(cluster, "true")
    sent = writer.write(batches(20))
    counts = cluster.brokers[0].transaction_counts
    assert dict(cluster.call(counts.waiting)) == {TOPIC: 20}
    writer.abort([sent, None])
    assert dict(cluster.call(counts.waiting)) == {TOPIC: 0}
    assert seen(cluster) == 0


def test_a_commit_that_does_not_reach_the_broker_fails_the_write(cluster: LocalCluster) -> None:
    writer = written(cluster, "true")
    sent = writer.write(batches(20))
    cluster.stop()
    with pytest.raises(AerobeeError):
        writer.commit([sent])


def test_without_transactions_rows_are_seen_at_once(cluster: LocalCluster) -> None:
    writer = written(cluster, "false")
    sent = writer.write(batches(20))
    assert seen(cluster) == 20
    writer.commit([sent])
    assert seen(cluster) == 20


def test_a_task_with_too_many_rows_for_a_transaction_is_told(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "TRANSACTION_ROWS_MAX", 10)
    with pytest.raises(ValueError, match="more than 10 rows, the limit for transactions"):
        written(cluster, "true").write(batches(11))
    assert seen(cluster) == 0


def test_in_transactions_the_rows_of_a_task_that_fails_are_never_seen(
    cluster: LocalCluster,
) -> None:
    given = {"topic": TOPIC, "nameServer": cluster.name_server, "transactions": "true"}

    def rows() -> Iterator[dict[str, Any]]:
        yield from ({"value": b"%d" % number} for number in range(ROWS))
        raise RuntimeError("the task fails")

    with pytest.raises(RuntimeError, match="the task fails"):
        asyncio.run(send_rows(rows(), write_options(given), "job/0/0"))
    assert seen(cluster) == 0


def test_a_writer_that_is_run_again_sends_the_same_ids_to_the_same_queues(
    cluster: LocalCluster,
) -> None:
    options = write_options({"topic": TOPIC, "nameServer": cluster.name_server})
    pickled = pickle.dumps(RocketmqWriter(options))  # what Spark gives to each try of a task
    batch = pa.RecordBatch.from_pydict({"value": [b"%d" % number for number in range(20)]})
    for _ in range(2):
        assert pickle.loads(pickled).write(iter([batch])).rows == 20
    rows = rows_of(cluster)
    assert len(rows) == 40
    places = {(row["partition"], dict(row["properties"])[ROW_ID], row["value"]) for row in rows}
    assert len(places) == 20
    assert len({row_id for _, row_id, _ in places}) == 20
    assert len(rows_of(cluster, dedup="true")) == 20
    RocketmqWriter(options).write(iter([batch]))  # another job
    assert len(rows_of(cluster, dedup="true")) == 40
