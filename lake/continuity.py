"""What tells whether a log goes on where a table ends, and the errors where it does not."""

import pyarrow as pa

from ..client.cluster.route import MessageQueue
from .errors import LakeError
from .progress import mark_of, queue_key
from .table_schema import STORE_TIME

_REMADE = (
    "the topic was deleted and made again, or a broker lost messages that it had shown; both are "
    "kept as they are. For the new messages: aerobee lake add {} --table NAME"
)


def mark_of_row(row: pa.RecordBatch) -> str:
    """The mark of the first row, by its columns msgId and timestamp."""
    store_us = row.column(STORE_TIME).slice(0, 1).cast(pa.int64())[0].as_py()
    return mark_of(row.column("msgId")[0].as_py(), store_us)


def ends_before(queue: MessageQueue, end: int, at: int, table: str) -> LakeError:
    """The queue ends at offset `end`, and the table has its messages up to `at`."""
    return LakeError(
        f"queue {queue_key(queue)} of topic {queue.topic} ends at offset {end}, and table {table} "
        f"has its messages up to {at}: {_REMADE.format(queue.topic)}"
    )


def differs(queue: MessageQueue, offset: int, table: str) -> LakeError:
    """The message at an offset is not the one that the table has there."""
    return LakeError(
        f"the message at offset {offset} of queue {queue_key(queue)} of topic {queue.topic} is "
        f"another one than in table {table}: {_REMADE.format(queue.topic)}"
    )


def gone(queue: MessageQueue, at: int, first: int) -> str:
    """The words for messages that were deleted before they were read."""
    return (
        f"{first - at} messages of queue {queue_key(queue)} of topic {queue.topic}, offsets {at} "
        f"to {first - 1}, were deleted at the broker before they were read"
    )
