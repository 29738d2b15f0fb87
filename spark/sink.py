"""The writers: `df.write.format("rocketmq")` and `df.writeStream.format("rocketmq")`.

At least once: a task that is tried again sends its rows again, under the same `ROW_ID`, to the same
queues, so that readers can tell (the source's option `dedup` does). With `transactions` the rows of
a task are seen by nobody before all of them are stored.
"""

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from ..client import Message, Producer
from ..client.producer_calls import TransactionState
from ..client.receipts import SendReceipt
from ..client.received import MessageView
from ..client.transactions import TransactionProducer
from .failing import plain_errors
from .schema import ROW_ID
from .sink_options import WriteOptions, row_fields

UNDER_WAY_MAX = 256  # rows of one task sent and not answered yet
QUERY_PROPERTY, BATCH_PROPERTY = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class Sent(WriterCommitMessage):
    """How many rows a task has sent."""

    rows: int


class RocketmqWriter(DataSourceArrowWriter):
    """A batch write; `job` is one id for all its tasks and their later tries."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.job = uuid.uuid4().hex

    @plain_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of one task."""
        rows = (row for batch in iterator for row in batch.to_pylist())
        return Sent(asyncio.run(send_rows(rows, self.options, _origin(self.job))))


class RocketmqStreamWriter(DataSourceStreamWriter):
    """A streaming write: every micro-batch through here."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.job = uuid.uuid4().hex

    @plain_errors()
    def write(self, iterator: Iterator[Any]) -> Sent:
        """Send the rows of one task of a micro-batch."""
        rows = (row.asDict() for row in iterator)
        return Sent(asyncio.run(send_rows(rows, self.options, _origin(self.job))))


async def send_rows(rows: Iterator[dict[str, Any]], options: WriteOptions, origin: str) -> int:
    """Send rows, many at a time; how many they were. Raises what the client raises.

    The queue of a row depends on its number alone, so a later try sends it to the same one.
    """
    if options.transactions:
        producer: Producer = TransactionProducer(
            options.name_server, group=options.group, check=_unknown, security=options.security
        )
    else:
        producer = Producer(options.name_server, group=options.group, security=options.security)
    async with producer:
        task = _Task(producer, options, origin)
        try:
            return await task.send(rows)
        except BaseException:
            await task.undo()
            raise


class _Task:
    """The rows of one task on their way."""

    def __init__(self, producer: Producer, options: WriteOptions, origin: str) -> None:
        self._producer = producer
        self._options = options
        self._origin = origin
        self._half: list[SendReceipt] = []

    async def send(self, rows: Iterator[dict[str, Any]]) -> int:
        under_way: set[asyncio.Task[None]] = set()
        count = 0
        try:
            for count, row in enumerate(rows, 1):
                under_way.add(asyncio.create_task(self._send(row, count - 1)))
                if len(under_way) >= UNDER_WAY_MAX:
                    done, under_way = await asyncio.wait(
                        under_way, return_when=asyncio.FIRST_COMPLETED
                    )
                    for each in done:
                        each.result()
            await asyncio.gather(*under_way)
        except BaseException:
            for each in under_way:
                each.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            raise
        await self._end(TransactionState.COMMIT)
        return count

    async def undo(self) -> None:
        """Take back what nobody has seen yet."""
        await self._end(TransactionState.ROLLBACK)

    async def _send(self, row: dict[str, Any], number: int) -> None:
        fields = row_fields(row, self._options)
        fields["properties"][ROW_ID] = f"{self._origin}/{number}"
        message = Message(**fields)
        producer = self._producer
        if isinstance(producer, TransactionProducer):
            self._half.append(await producer.begin(message))
            return
        queues = await producer.queues(message.topic)
        await producer.send(message, queue=queues[number % len(queues)])

    async def _end(self, state: TransactionState) -> None:
        half, self._half = self._half, []
        for receipt in half:
            assert isinstance(self._producer, TransactionProducer)
            await self._producer.end(receipt, state)


def _origin(job: str) -> str:
    """What the rows of this task have in common with those of its later tries."""
    context = TaskContext.get()
    if context is None:
        return f"{job}/0/0"
    query = context.getLocalProperty(QUERY_PROPERTY) or job
    batch = context.getLocalProperty(BATCH_PROPERTY) or "0"
    return f"{query}/{batch}/{context.partitionId()}"


def _unknown(message: MessageView) -> TransactionState:
    """A task that ended without a word: nobody knows. The broker gives up after some questions."""
    return TransactionState.UNKNOWN
