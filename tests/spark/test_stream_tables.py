"""A stream that begins in a table: each message once, from the table or the log."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyiceberg")
pytest.importorskip("pyspark.sql.streaming.datasource")

from aerobee.client.blocking import MessageQueue, Pulled
from aerobee.client.pull import reader
from aerobee.lake import history
from aerobee.lake.errors import LakeError, NoTable
from aerobee.lake.history import History
from aerobee.lake.materializer import Materializer
from aerobee.lake.rows.columns import row_columns
from aerobee.lake.rows.ranges import DataLossError
from aerobee.lake.union import TopicTable
from aerobee.protocol import codes
from aerobee.spark import stream
from aerobee.spark.options import read_options
from aerobee.spark.progress import Progress
from aerobee.spark.stream import RocketmqStreamReader
from pyspark.sql.streaming import datasource as admission

from ..lake.memory_log import MemoryLog
from ..lake.tables import catalog_in
from .fakes import FakePuller, FakeReader
from .stored import STORE_MS

Keys = list[tuple[str, int, int]]


class Held(FakeReader):
    def offset_at(self, queue: MessageQueue, ms: int) -> int:
        return super().offset_at(queue, ms - STORE_MS + 1000)


class Lake:
    """A broker's log, and the table that a lake makes of it; the broker may delete messages."""

    def __init__(self, folder: Path) -> None:
        self.catalog = catalog_in(folder)
        self.catalog.create("orders", "orders")
        self.log = MemoryLog()
        self.reader = Held({})
        self.puller = FakePuller({})
        self.loads = 0

    def send(self, count: int, queue: int = 0, broker: str = "broker-a") -> None:
        self.log.send(count, queue, broker=broker)
        self._show()

    def delete(self, count: int, queue: int = 0) -> None:
        self.log.delete(count, queue)
        self._show()

    def commit(self) -> None:
        Materializer(self.catalog, self.log, "orders", "orders").copy()

    def remove(self, queue: MessageQueue) -> None:
        """The queue's broker goes away for good."""
        del self.log.queues[queue]
        self._show()

    def history_of(self, config: str, topic: str, security: object) -> History:
        assert config == "lake.yaml"
        if topic != "orders":
            raise NoTable(f"the settings have no table for topic {topic}")
        self.loads += 1
        table = TopicTable(self.catalog.load("orders", "orders"), self.log, "orders")
        _ = table.ranges
        return History(table)

    def _show(self) -> None:
        held = {queue: range(each.first, each.end) for queue, each in self.log.queues.items()}
        self.reader.held = self.puller.held = held


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    lake = Lake(tmp_path)
    monkeypatch.setattr(history, "history_of", lake.history_of)
    monkeypatch.setattr(stream, "Reader", lambda *_, **__: lake.reader)
    monkeypatch.setattr(reader, "Reader", lambda *_, **__: lake.puller)
    return lake


def query(**said: str) -> RocketmqStreamReader:
    given = {"subscribe": "orders", "lakeConfig": "lake.yaml", "startingOffsets": "earliest"}
    if any(name.startswith("starting") for name in said):
        del given["startingOffsets"]
    options = read_options(given | said, stream=True)
    return RocketmqStreamReader(options, row_columns(full=True))


def micro_batch(query: RocketmqStreamReader, start: Progress, end: Progress) -> Keys:
    """The keys of its rows."""
    keys = []
    for partition in query.partitions(start, end):
        for batch in query.read(partition):
            keys += [(r["brokerName"], r["queueId"], r["offset"]) for r in batch.to_pylist()]
    return keys


def run(query: RocketmqStreamReader, start: Progress) -> tuple[Keys, Progress]:
    """Read up to what is there now: the keys of all rows, and the end."""
    keys: Keys = []
    limit = query.getDefaultReadLimit()
    while (end := query.latestOffset(start, limit)) != start:
        keys += micro_batch(query, start, end)
        start = end
    return keys, start


def every(queue: int, offsets: range, broker: str = "broker-a") -> Keys:
    return [(broker, queue, offset) for offset in offsets]


def test_messages_that_the_broker_deleted_come_from_the_table_and_new_ones_from_the_log(
    lake: Lake,
) -> None:
    lake.send(50)
    lake.send(30, queue=1)
    lake.commit()
    lake.delete(45)
    lake.send(9)
    asked = query()
    keys, end = run(asked, asked.initialOffset())
    assert sorted(keys) == every(0, range(59)) + every(1, range(30))
    lake.send(3)
    keys, _ = run(asked, end)
    assert keys == every(0, range(59, 62))
    assert lake.loads == 1


def test_a_table_that_grows_a_query_that_restarts_and_a_broker_that_deletes_change_no_row(
    lake: Lake,
) -> None:
    for seed in range(5):
        random = Random(seed)
        keys: Keys = []
        at: Progress | None = None
        asked = query(maxOffsetsPerTrigger="13")
        first = {queue: each.end for queue, each in lake.log.queues.items()}
        if seed:
            at = {"orders": {f"broker-a:{queue.queue_id}": end for queue, end in first.items()}}
        for _ in range(12):
            for number in range(3):
                lake.send(random.randrange(15), number)
            if random.random() < 0.6:
                lake.commit()
                for number in range(3):
                    held = lake.log.queues[MessageQueue("orders", "broker-a", number)]
                    lake.delete(random.randrange(len(held.records) + 1), number)
            if random.random() < 0.4:
                asked = query(maxOffsetsPerTrigger=str(random.randrange(1, 40)))
            if at is None:
                at = asked.initialOffset()
            following = asked.latestOffset(at, asked.getDefaultReadLimit())
            rows = micro_batch(asked, at, following)
            if random.random() < 0.3:  # killed before its end is in the checkpoint
                lake.commit()
                asked = query()
                assert sorted(micro_batch(asked, at, following)) == sorted(rows)
            keys += rows
            at = following
        assert at is not None
        rest, _ = run(query(), at)
        found = sorted(keys + rest)
        expected: Keys = []
        for queue, each in sorted(lake.log.queues.items()):
            expected += every(queue.queue_id, range(first.get(queue, 0), each.end))
        assert found == expected


def test_a_stream_reads_what_the_log_lost_behind_the_table_it_knows_from_a_newer_one(
    lake: Lake,
) -> None:
    lake.send(20)
    lake.commit()
    asked = query()
    keys, end = run(asked, asked.initialOffset())
    lake.send(30)
    lake.commit()
    lake.delete(50)
    lake.send(4)
    more, _ = run(asked, end)
    assert keys + more == every(0, range(54))
    assert lake.loads == 2


def test_messages_that_neither_table_nor_log_has_end_the_query(lake: Lake) -> None:
    lake.send(20)
    lake.commit()
    asked = query()
    _, end = run(asked, asked.initialOffset())
    lake.send(30)
    lake.delete(40)
    with pytest.raises(LakeError, match=r"20 messages .* offsets 20 to 39, were deleted"):
        run(asked, end)


def test_a_micro_batch_behind_the_log_reports_the_loss(lake: Lake) -> None:
    lake.send(20)
    lake.commit()
    with pytest.raises(DataLossError, match=r"offsets 20 to 25 .* the broker holds 0 to 20"):
        micro_batch(query(), {"orders": {"broker-a:0": 20}}, {"orders": {"broker-a:0": 25}})


def test_queues_that_are_in_the_table_alone_are_read_and_end_there(lake: Lake) -> None:
    lake.send(10)
    lake.send(10, broker="broker-b")
    lake.commit()
    lake.remove(MessageQueue("orders", "broker-b", 0))
    asked = query()
    keys, end = run(asked, asked.initialOffset())
    assert sorted(keys) == every(0, range(10)) + every(0, range(10), "broker-b")
    ahead = {"orders": {**end["orders"], "broker-b:0": 14}}  # had read live messages
    assert asked.latestOffset(ahead, asked.getDefaultReadLimit()) == ahead


def test_a_time_before_the_logs_first_message_is_found_in_the_table(lake: Lake) -> None:
    lake.send(50)
    lake.commit()
    lake.delete(40)
    asked = query(startingTimestamp=str(STORE_MS + 17))
    keys, _ = run(asked, asked.initialOffset())
    assert keys == every(0, range(17, 50))


def test_a_topic_without_a_table_is_refused_unless_a_pattern_found_it(lake: Lake) -> None:
    lake.send(5)
    held = {MessageQueue("bills", "broker-a", 0): range(3), **lake.reader.held}
    lake.reader.held = lake.puller.held = held
    with pytest.raises(NoTable, match="no table for topic bills"):
        query(subscribe="bills").initialOffset()
    options = {"subscribePattern": "bills|orders", "lakeConfig": "lake.yaml"}
    asked = RocketmqStreamReader(
        read_options({**options, "startingOffsets": "earliest"}, stream=True),
        row_columns(full=True),
    )
    keys, _ = run(asked, asked.initialOffset())
    assert len(keys) == 3 + 5


def test_tags_select_rows_of_the_table_too(lake: Lake) -> None:
    lake.send(5)
    lake.commit()
    asked = query(subExpression="paid")
    keys, _ = run(asked, asked.initialOffset())
    assert keys == []


def sized(lake: Lake, sizes: dict[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pull of a queue give records of this size."""

    def pull(queue: MessageQueue, offset: int, *_: Any, **__: Any) -> Any:
        count = min(32, lake.reader.held[queue].stop - offset)
        body = bytes(sizes[queue.queue_id] * count)
        return Pulled(codes.SUCCESS, offset + count, 0, 0, body)

    monkeypatch.setattr(lake.reader, "pull", pull)


def test_a_micro_batch_has_about_as_many_bytes_as_it_may(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.send(2000)
    lake.send(2000, queue=1)
    sized(lake, {0: 100, 1: 900}, monkeypatch)
    asked = query(maxBytesPerTrigger="200k", lakeConfig="")
    start = asked.initialOffset()
    limit = asked.getDefaultReadLimit()
    assert limit == admission.ReadMaxBytes(200 << 10)
    end = asked.latestOffset(start, limit)
    taken = [count for queue, count in sorted(end["orders"].items())]
    assert 190_000 < 100 * taken[0] + 900 * taken[1] <= 200 << 10
    both = query(maxBytesPerTrigger="200k", maxOffsetsPerTrigger="50", lakeConfig="")
    end = both.latestOffset(start, both.getDefaultReadLimit())
    assert sum(end["orders"].values()) == 50
    everything = both.latestOffset(start, admission.ReadAllAvailable())
    assert sum(everything["orders"].values()) == 4000


def test_bytes_of_a_table_are_those_of_its_files(lake: Lake) -> None:
    lake.send(3000)
    lake.commit()
    lake.delete(3000)
    asked = query(maxBytesPerTrigger="1k")
    keys, end = [], asked.initialOffset()
    batches = 0
    while (following := asked.latestOffset(end, asked.getDefaultReadLimit())) != end:
        keys += micro_batch(asked, end, following)
        end = following
        batches += 1
    assert keys == every(0, range(3000))
    assert batches > 3
