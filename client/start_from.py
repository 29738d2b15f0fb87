"""Where a group begins in a queue that it has never read.

Once a broker has an offset of the group, that one counts and nothing here does.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ..protocol import codes
from ..protocol.bodies.body import MessageQueue
from ..protocol.headers.offsets import OffsetAnswer, QueueAddress, SearchOffset
from ..protocol.names import RETRY_PREFIX
from .answers import header_of
from .cluster import Cluster
from .errors import ClientError
from .offsets import GroupOffsets

LAST = "CONSUME_FROM_LAST_OFFSET"
FIRST = "CONSUME_FROM_FIRST_OFFSET"
TIMESTAMP = "CONSUME_FROM_TIMESTAMP"

Start = Literal["latest", "earliest"] | datetime | int | float | str


@dataclass(frozen=True, slots=True)
class StartFrom:
    """RocketMQ's consumeFromWhere: `where` is its name, `ms` the time for TIMESTAMP."""

    where: str
    ms: int = 0

    @classmethod
    def read(cls, start: Start) -> "StartFrom":
        """From "latest", "earliest", a datetime, ms since the epoch, or an ISO 8601 text."""
        if start == "latest":
            return cls(LAST)
        if start == "earliest":
            return cls(FIRST)
        if isinstance(start, str):
            try:
                start = datetime.fromisoformat(start)
            except ValueError:
                raise ClientError(
                    f"start is {start!r}; give 'latest', 'earliest', a datetime, ms since the "
                    "epoch, or a time like 2030-01-31T12:00"
                ) from None
        if isinstance(start, datetime):
            return cls(TIMESTAMP, round(start.timestamp() * 1000))
        if isinstance(start, bool) or start < 0:
            raise ClientError(f"start is {start!r}; as a number it is ms since the epoch")
        return cls(TIMESTAMP, int(start))


async def first_offset(
    cluster: Cluster, offsets: GroupOffsets, queue: MessageQueue, start: StartFrom
) -> int:
    """The offset to pull first: the group's own, else as `start` says; retries from the oldest.

    Raises what the requests raise; the queue is then not taken this time.
    """
    known = await offsets.load(queue)
    if known is not None and known >= 0:
        return known
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if start.where == FIRST or (is_retry and start.where == LAST):
        return 0  # the broker corrects it when the oldest message has another offset
    address = cluster.address_of(queue.broker_name)
    if start.where == LAST or is_retry:
        code, header = codes.GET_MAX_OFFSET, QueueAddress(queue.topic, queue.queue_id)
        answer = await cluster.ask(address, code, header)
    else:
        code = codes.SEARCH_OFFSET_BY_TIMESTAMP
        search = SearchOffset(queue.topic, queue.queue_id, start.ms)
        answer = await cluster.ask(address, code, search)
    return header_of(answer, OffsetAnswer, code).offset
