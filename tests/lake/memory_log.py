"""A log in memory for a materializer: queues whose messages a test appends, deletes or replaces."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from aerobee.client.cluster.route import MessageQueue
from aerobee.lake.rows.columns import Column
from aerobee.lake.rows.decode import decode
from aerobee.lake.rows.ranges import DataLossError, QueueRange
from aerobee.lake.table_schema import COLUMNS
from aerobee.lake.topic_log import Bounds

from ..spark.stored import STORE_MS, stored

DAY_MS = 86_400_000
BATCH = 7  # messages in a batch of rows


@dataclass
class MemoryQueue:
    """The records of one queue; `first` is the offset of the first one."""

    first: int = 0
    records: list[bytes] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + len(self.records)


class MemoryLog:
    """Queues of the topic orders; `epoch` makes messages differ from those of another log."""

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.queues: dict[MessageQueue, MemoryQueue] = {}
        self.absent: dict[MessageQueue, str] = {}
        self.reads = 0
        self.groups: dict[tuple[str, MessageQueue], int] = {}
        self.refused: dict[MessageQueue, str] = {}  # where a group's offset can't be moved, and why
        self.moves = 0

    def send(
        self,
        count: int,
        queue: int = 0,
        *,
        broker: str = "broker-a",
        day: int = 0,
        body: bytes = b"",
    ) -> None:
        """Append messages whose bodies tell their queue and offset."""
        key = MessageQueue("orders", broker, queue)
        found = self.queues.setdefault(key, MemoryQueue())
        for _ in range(count):
            at = found.end
            found.records.append(
                stored(
                    at,
                    body or f"{broker}:{queue}:{at}".encode(),
                    {"UNIQ_KEY": f"{self.epoch}-{broker}-{queue}-{at}", "KEYS": f"k{at} all"},
                    queue_id=queue,
                    store_ms=STORE_MS + day * DAY_MS + at,
                )
            )

    def delete(self, count: int, queue: int = 0) -> None:
        """Delete the oldest messages, as retention does."""
        found = self.queues[MessageQueue("orders", "broker-a", queue)]
        del found.records[:count]
        found.first += count

    def bounds(self, topic: str) -> tuple[dict[MessageQueue, Bounds], tuple[str, ...]]:
        assert topic == "orders"
        found = {
            queue: Bounds(each.first, each.end)
            for queue, each in sorted(self.queues.items())
            if queue not in self.absent
        }
        return found, tuple(self.absent.values())

    def offsets_at(self, queues: list[MessageQueue], ms: int) -> dict[MessageQueue, int]:
        return {queue: ms - STORE_MS for queue in queues}

    def rows(
        self, wanted: QueueRange, columns: tuple[Column, ...] = COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        self.reads += 1
        found = self.queues[wanted.queue]
        if wanted.start < found.first:
            raise DataLossError(f"reading {wanted}: it begins at {found.first}")
        for start in range(wanted.start, wanted.end, BATCH):
            end = min(wanted.end, start + BATCH)
            yield decode(
                b"".join(found.records[start - found.first : end - found.first]),
                columns,
                broker_name=wanted.broker_name,
            )

    def move_group(
        self, group: str, offsets: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, str]:
        for queue, offset in offsets.items():
            if queue not in self.refused:
                self.moves += 1
                self.groups[group, queue] = max(offset, self.groups.get((group, queue), -1))
        return {queue: why for queue, why in self.refused.items() if queue in offsets}

    def ledger(self) -> dict[tuple[str, int, int], bytes]:
        """The bodies that a table must have, by broker, queue and offset."""
        found = {}
        for queue, each in self.queues.items():
            for batch in self.rows(
                QueueRange(queue.topic, queue.broker_name, queue.queue_id, each.first, each.end)
            ):
                for row in batch.to_pylist():
                    found[row["brokerName"], row["queueId"], row["offset"]] = row["value"]
        return found
