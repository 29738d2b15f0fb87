"""The writers: `df.write.format("rocketmq")` and `df.writeStream.format("rocketmq")`.

Delivery is at least once: a retried task sends its rows again, with the same `ROW_ID` and to the
same queues, so that readers can drop repeats (option `dedup` of the source). With `transactions`
the rows are half messages, invisible until the driver commits them when all tasks are done. Tasks
can't commit: a task that fails sees its rows end as if they were complete.
"""

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from ..client import Message, Producer
from ..client.base.message_view import MessageView
from ..client.base.receipts import SendReceipt
from ..client.producer.broker_requests import TransactionState
from ..client.producer.transactions import TransactionProducer
from ..lake.rows.columns import ROW_ID
from .errors import readable_errors
from .sink_options import WriteOptions, row_fields

UNDER_WAY_MAX = 256  # rows of one task sent and not answered yet
TRANSACTION_ROWS_MAX = 1_000_000  # of one task; a receipt has about 200 bytes
QUERY_PROPERTY, BATCH_PROPERTY = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class Sent(WriterCommitMessage):
    """The number of rows that a task has sent, and the receipts of those that are half messages."""

    rows: int
    half: list[SendReceipt] = field(default_factory=list)


class _Writer:
    """A write; `job` is one id for all its tasks and their later tries. Only a stream's write has
    a `batchId`."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.job = uuid.uuid4().hex

    @readable_errors()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:
        """Commit the rows of all tasks, because all are done."""
        asyncio.run(end_rows(messages, self.options, TransactionState.COMMIT))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:
        """Roll back the rows of all other tasks, because a task has failed for good."""
        asyncio.run(end_rows(messages, self.options, TransactionState.ROLLBACK))


class RocketmqWriter(_Writer, DataSourceArrowWriter):
    """A batch write."""

    @readable_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of one task."""
        rows = (row for batch in iterator for row in batch.to_pylist())
        return asyncio.run(send_rows(rows, self.options, _origin(self.job)))


class RocketmqStreamWriter(_Writer, DataSourceStreamWriter):
    """A streaming write: every micro-batch through here."""

    @readable_errors()
    def write(self, iterator: Iterator[Any]) -> Sent:
        """Send the rows of one task of a micro-batch."""
        rows = (row.asDict() for row in iterator)
        return asyncio.run(send_rows(rows, self.options, _origin(self.job)))


async def send_rows(rows: Iterator[dict[str, Any]], options: WriteOptions, origin: str) -> Sent:
    """Send rows, many at a time. Raises what the client raises.

    The queue of a row depends on its number alone, so a later try sends it to the same one.
    """
    async with _producer(options) as producer:
        task = _Task(producer, options, origin)
        try:
            return await task.send(rows)
        except BaseException:
            await task.undo()
            raise


async def end_rows(
    messages: Sequence[WriterCommitMessage | None], options: WriteOptions, state: TransactionState
) -> None:
    """End the transactions of all rows that tasks have sent; there may be none.

    Raises the error of a failed commit. The broker gives up rows that are not rolled back.
    """
    half = [each for sent in messages if isinstance(sent, Sent) for each in sent.half]
    if not half:
        return
    async with _producer(options) as producer:
        assert isinstance(producer, TransactionProducer)
        for at in range(0, len(half), UNDER_WAY_MAX):
            some = half[at : at + UNDER_WAY_MAX]
            ends = (producer.end_confirmed(each, state) for each in some)
            for wrong in await asyncio.gather(*ends, return_exceptions=True):
                if wrong is not None and state is TransactionState.COMMIT:
                    raise wrong


def _producer(options: WriteOptions) -> Producer:
    if options.transactions:
        return TransactionProducer(
            options.name_server, group=options.group, check=_unknown, security=options.security
        )
    return Producer(options.name_server, group=options.group, security=options.security)


class _Task:
    """The rows of one task on their way."""

    def __init__(self, producer: Producer, options: WriteOptions, origin: str) -> None:
        self._producer = producer
        self._options = options
        self._origin = origin
        self._half: list[SendReceipt] = []

    async def send(self, rows: Iterator[dict[str, Any]]) -> Sent:
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
        return Sent(count, self._half)

    async def undo(self) -> None:
        """Roll the half messages back."""
        if isinstance(self._producer, TransactionProducer):
            for receipt in self._half:
                await self._producer.end(receipt, TransactionState.ROLLBACK)

    async def _send(self, row: dict[str, Any], number: int) -> None:
        fields = row_fields(row, self._options)
        fields["properties"][ROW_ID] = f"{self._origin}/{number}"
        message = Message(**fields)
        producer = self._producer
        if isinstance(producer, TransactionProducer):
            if number >= TRANSACTION_ROWS_MAX:
                raise ValueError(
                    f"a task has more than {TRANSACTION_ROWS_MAX} rows, the limit for transactions "
                    "(the driver holds a receipt of each); repartition the rows, or write without"
                )
            self._half.append(await producer.begin(message))
            return
        queues = await producer.queues(message.topic)
        await producer.send(message, queue=queues[number % len(queues)])


def _origin(job: str) -> str:
    """The part of the row id that a task and its retries share."""
    context = TaskContext.get()
    if context is None:
        return f"{job}/0/0"
    query = context.getLocalProperty(QUERY_PROPERTY) or job
    batch = context.getLocalProperty(BATCH_PROPERTY) or "0"
    return f"{query}/{batch}/{context.partitionId()}"


def _unknown(message: MessageView) -> TransactionState:
    """The state of a row whose task is gone: unknown. The broker gives up after some checks."""
    return TransactionState.UNKNOWN
