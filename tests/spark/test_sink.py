"""Rows sent to a running broker: when they are seen, and what a repeated task sends."""

import asyncio
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from aerobee.client import blocking
from aerobee.spark.batch import RocketmqReader
from aerobee.spark.options import read_options
from aerobee.spark.schema import ROW_ID, row_columns
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


@pytest.mark.parametrize(("transactions", "early"), [("true", False), ("false", True)])
def test_in_transactions_no_row_is_seen_before_the_last_one_is_stored(
    cluster: LocalCluster, transactions: str, early: bool
) -> None:
    given = {"topic": TOPIC, "nameServer": cluster.name_server, "transactions": transactions}
    before_the_last: list[int] = []

    def rows() -> Iterator[dict[str, Any]]:
        for number in range(ROWS):
            if number == ROWS - 1:  # more have been sent than may be under way
                before_the_last.append(seen(cluster))
            yield {"value": b"%d" % number}

    assert asyncio.run(send_rows(rows(), write_options(given), "job/0/0")) == ROWS
    assert (before_the_last[0] > 0) == early
    assert seen(cluster) == ROWS


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
