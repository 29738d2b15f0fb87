"""The streaming reader as Spark calls it: with a start and a limit since 4.2, without them before.

The order of calls was observed with PySpark 4.0 and 4.1. A restart first plans the tasks from the
last end to the last end. A query that reads the available messages and stops asks for one end only.
"""

import json

import pytest

pytest.importorskip("pyspark")

from aerobee.client.blocking import MessageQueue
from aerobee.lake.rows.columns import row_columns
from aerobee.lake.rows.ranges import DataLossError
from aerobee.spark import stream
from aerobee.spark.options import read_options
from aerobee.spark.progress import Progress, rows_between
from aerobee.spark.stream import RocketmqStreamReader

from .fakes import FakeReader

ONE, TWO = MessageQueue("a", "x", 0), MessageQueue("a", "x", 1)
END: Progress = {"a": {"x:0": 100, "x:1": 60}}


class Busy(FakeReader):
    """Each request for the end of a queue finds `more` new messages."""

    more = 0

    def max_offset(self, queue: MessageQueue) -> int:
        held = self.held[queue]
        self.held[queue] = range(held.start, held.stop + self.more)
        return super().max_offset(queue)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Busy:
    """A fake reader; `held` has the messages of each queue."""
    held = Busy({("a", "x", 0): range(100), ("a", "x", 1): range(50, 60)})
    monkeypatch.setattr(stream, "Reader", lambda *_, **__: held)
    return held


def reader(**said: str) -> RocketmqStreamReader:
    options = read_options({"subscribe": "a", **said}, stream=True)
    return RocketmqStreamReader(options, row_columns())


def taken(reader: RocketmqStreamReader, start: Progress, end: Progress) -> list[tuple[str, int]]:
    """The queue and the number of messages of each task."""
    found = [each.value for each in reader.partitions(start, end)]
    return [(f"{each.broker_name}:{each.queue_id}", len(each)) for each in found]


def test_a_micro_batch_keeps_its_limit_where_spark_passes_none(held: Busy) -> None:
    query = reader(startingOffsets="earliest", maxOffsetsPerTrigger="30")
    end = query.latestOffset()
    start = query.initialOffset()
    rows = []
    while end != start:
        rows.append(sum(count for _, count in taken(query, start, end)))
        start, end = end, query.latestOffset()
    assert start == END
    assert sum(rows) == 110
    assert max(rows) <= 30


def test_a_restart_keeps_its_limit_where_spark_passes_no_start(held: Busy) -> None:
    query = reader(startingOffsets="earliest", maxOffsetsPerTrigger="30")
    seen: Progress = {"a": {"x:0": 40, "x:1": 55}}
    assert taken(query, seen, seen) == []
    end = query.latestOffset()
    assert 0 < rows_between(seen, end, {}) <= 30


def test_the_first_request_without_a_start_does_not_wait_for_more_rows(held: Busy) -> None:
    query = reader(startingOffsets="earliest", minOffsetsPerTrigger="1000")
    assert query.latestOffset() == END
    assert taken(query, query.initialOffset(), END) == [("x:0", 100), ("x:1", 10)]
    held.held[ONE] = range(105)
    assert query.latestOffset() == END  # from now on it can wait for more rows
    held.held[ONE] = range(1_100)
    assert query.latestOffset() == {"a": {"x:0": 1_100, "x:1": 60}}


def test_a_reader_waits_for_its_minimum_of_rows_up_to_the_maximum_delay(
    held: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("aerobee.spark.stream.time.monotonic", lambda: now)
    query = reader(startingOffsets="earliest", minOffsetsPerTrigger="200", maxTriggerDelay="30s")
    start = query.initialOffset()
    assert query.latestOffset(start) == start
    now += 29
    assert query.latestOffset(start) == start
    now += 1
    assert query.latestOffset(start) == END
    assert query.latestOffset(END) == END
    held.held[ONE] = range(300)
    assert query.latestOffset(END) == {"a": {"x:0": 300, "x:1": 60}}


def test_a_queue_whose_broker_is_down_keeps_its_offset_where_spark_passes_no_start(
    held: Busy,
) -> None:
    query = reader(startingOffsets="earliest")
    taken(query, END, END)
    away = held.held.pop(TWO)
    end = query.latestOffset()
    assert end == END
    taken(query, END, end)
    held.held[TWO] = away
    assert taken(query, end, query.latestOffset()) == []  # not the whole queue again


@pytest.mark.parametrize("start", ["latest", json.dumps({"a": {"x:0": -1, "x:1": -1}})])
@pytest.mark.parametrize("is_told", [True, False], ids=["from 4.2 on", "before"])
def test_a_start_at_the_latest_offsets_is_the_end_of_the_first_micro_batch(
    held: Busy, is_told: bool, start: str
) -> None:
    held.more = 5
    query = reader(startingOffsets=start)
    if is_told:
        first = query.initialOffset()
        end = query.latestOffset(first, None)
    else:
        end = query.latestOffset()
        first = query.initialOffset()
    assert end == first
    assert taken(query, first, end) == []
    following = query.latestOffset(end if is_told else None)
    assert [queue for queue, _ in taken(query, end, following)] == ["x:0", "x:1"]
    again = reader(startingOffsets=start)  # the query was killed in its first micro-batch
    taken(again, end, end)
    assert again.initialOffset() == first
    assert taken(again, first, end) == []
    assert rows_between(end, again.latestOffset(end if is_told else None), {}) > 0


def test_a_repeated_first_micro_batch_with_deleted_messages_raises_an_error(
    held: Busy,
) -> None:
    again = reader(startingOffsets="earliest")
    end: Progress = {"a": {"x:0": 30, "x:1": 55}}
    taken(again, end, end)
    held.held[ONE] = range(50, 100)
    with pytest.raises(DataLossError, match="holds 50 to 100"):
        again.partitions(again.initialOffset(), end)


def test_a_start_before_the_latest_offsets_has_rows_in_its_first_micro_batch(held: Busy) -> None:
    query = reader(startingOffsets=json.dumps({"a": {"x:0": 98, "x:1": -2}}))
    end = query.latestOffset()
    assert taken(query, query.initialOffset(), end) == [("x:0", 2), ("x:1", 10)]


@pytest.mark.parametrize("is_ending", [True, False], ids=["available now", "going on"])
def test_offsets_that_decreased_raise_an_error(held: Busy, is_ending: bool) -> None:
    held.held[ONE] = range(7)  # the topic was deleted and created again
    query = reader(startingOffsets="earliest")
    if is_ending:
        query.prepareForTriggerAvailableNow()
    end = query.latestOffset(END)
    with pytest.raises(DataLossError, match=r"queue 0 of topic a on x .* holds 0 to 7.*replaced"):
        query.partitions(END, end)
    lax = reader(startingOffsets="earliest", failOnDataLoss="false")
    assert taken(lax, END, end) == [("x:0", 7)]
    held.held[ONE] = range(9)
    assert taken(lax, end, lax.latestOffset(end)) == [("x:0", 2)]
