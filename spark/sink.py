"""The writers: `df.write.format("rocketmq")` and `df.writeStream.format("rocketmq")`.

At least once: a task that is tried again sends its rows again, under the same `ROW_ID`, to the same
queues, so that readers can tell (the source's option `dedup` does). With `transactions` the rows
are half messages, which nobody sees; when Spark says that all tasks are done, the driver commits
them. A task can't do that: the rows of one that fails look to it as if they had come to their end.
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
from .failing import plain_errors
from .schema import ROW_ID
from .sink_options import WriteOptions, row_fields

UNDER_WAY_MAX = 256  # rows of one task sent and not answered yet
TRANSACTION_ROWS_MAX = 1_000_000  # of one task; a receipt has about 200 bytes
QUERY_PROPERTY, BATCH_PROPERTY = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class Sent(WriterCommitMessage):
    """How many rows a task has sent, and those of them that are half messages."""

    rows: int
    half: list[SendReceipt] = field(default_factory=list)


class RocketmqWriter(DataSourceArrowWriter):
    """A batch write; `job` is one id for all its tasks and their later tries."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.job = uuid.uuid4().hex

    @plain_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of one task."""
        rows = (row for batch in iterator for row in batch.to_pylist())
        return asyncio.run(send_rows(rows, self.options, _origin(self.job)))

    @plain_errors()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done: let their rows be seen."""
        asyncio.run(end_rows(messages, self.options, TransactionState.COMMIT))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task has failed for good: take back what the others have sent."""
        asyncio.run(end_rows(messages, self.options, TransactionState.ROLLBACK))


class RocketmqStreamWriter(DataSourceStreamWriter):
    """A streaming write: every micro-batch through here."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.job = uuid.uuid4().hex

    @plain_errors()
    def write(self, iterator: Iterator[Any]) -> Sent:
        """Send the rows of one task of a micro-batch."""
        rows = (row.asDict() for row in iterator)
        return asyncio.run(send_rows(rows, self.options, _origin(self.job)))

    @plain_errors()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of the micro-batch are done: let their rows be seen."""
        asyncio.run(end_rows(messages, self.options, TransactionState.COMMIT))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task has failed for good: take back what the others have sent."""
        asyncio.run(end_rows(messages, self.options, TransactionState.ROLLBACK))


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

    Raises what kept a commit from its end. A row that is not rolled back is given up by the broker.
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
        """Take back what nobody has seen yet."""
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
