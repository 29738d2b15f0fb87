"""Headers about topics: making, deleting and describing them."""

from typing import ClassVar

from ..wire import Header, Int32, Int64, field


class UpdateTopic(Header):
    """UPDATE_AND_CREATE_TOPIC (17), UPDATE_AND_CREATE_STATIC_TOPIC (513)."""

    topic: str
    read_queues: Int32 = field(name="readQueueNums")
    write_queues: Int32 = field(name="writeQueueNums")
    perm: Int32
    filter_type: str = field(name="topicFilterType", default="SINGLE_TAG")
    default_topic: str = field(name="defaultTopic", default="TBW102")
    sys_flag: Int32 | None = field(name="topicSysFlag", default=None)
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class TopicName(Header):
    """105, 215, 300: one topic."""

    topic: str


class GetTopicStats(Header):
    """GET_TOPIC_STATS_INFO (202)."""

    topic: str
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class GetTopicConfig(Header):
    """GET_TOPIC_CONFIG (351): with `lo` its logical queues, too."""

    topic: str
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class QueryConsumeQueue(Header):
    """QUERY_CONSUME_QUEUE (321)."""

    may_miss: ClassVar = {"queueId": "0", "index": "0", "count": "0"}

    topic: str
    queue_id: Int32 = field(name="queueId")
    index: Int64
    count: Int32
    group: str | None = field(name="consumerGroup", default=None)


class QueryConsumeTimeSpan(Header):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str


class QueryMessage(Header):
    """QUERY_MESSAGE (12). `unique_key` says that `key` is a UNIQ_KEY."""

    topic: str
    key: str
    max_messages: Int32 = field(name="maxNum")
    begin_ms: Int64 = field(name="beginTimestamp")
    end_ms: Int64 = field(name="endTimestamp")
    unique_key: str | None = field(name="_UNIQUE_KEY_QUERY", default=None)


class QueryMessageResponse(Header):
    """The answer to QUERY_MESSAGE: how far the index has come."""

    index_ms: Int64 = field(name="indexLastUpdateTimestamp")
    index_log_offset: Int64 = field(name="indexLastUpdatePhyoffset")


class ViewMessage(Header):
    """VIEW_MESSAGE_BY_ID (33): the log offset out of an offset message id."""

    offset: Int64
    topic: str | None = None
