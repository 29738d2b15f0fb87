"""Headers about offsets: a group's progress, a queue's bounds, a time's place in a queue.

Where `lo` (logical) is false, queue id and offset are physical, also of a static topic: so one
broker asks another, which `broker_name` names.
"""

from typing import ClassVar

from .. import codes
from ..wire import Header, Int32, Int64, field


class GroupQueue(Header):
    """A queue of a topic, for a consumer group: with these fields many headers begin."""

    group: str = field(name="consumerGroup")
    topic: str
    queue_id: Int32 = field(name="queueId")


class QueryConsumerOffset(GroupQueue):
    """QUERY_CONSUMER_OFFSET (14)."""

    zero_if_missing: bool = field(name="setZeroIfNotFound", default=True)
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class UpdateConsumerOffset(GroupQueue):
    """UPDATE_CONSUMER_OFFSET (15)."""

    refused_with: ClassVar = codes.INVALID_PARAMETER
    may_miss: ClassVar = {"consumerGroup": ""}

    commit_offset: Int64 = field(name="commitOffset")
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class QueueAddress(Header):
    """GET_MAX_OFFSET (30), GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: Int32 = field(name="queueId")
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class SearchOffset(Header):
    """SEARCH_OFFSET_BY_TIMESTAMP (29). `boundary` is LOWER or UPPER in any case."""

    topic: str
    queue_id: Int32 = field(name="queueId")
    timestamp_ms: Int64 = field(name="timestamp")
    boundary: str = field(name="boundaryType", default="LOWER")
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class OffsetResponse(Header):
    """The answer to 14, 29, 30, 31."""

    offset: Int64


class TimestampResponse(Header):
    """The answer to 32: store time in ms, -1 for an empty queue."""

    timestamp_ms: Int64 = field(name="timestamp")
