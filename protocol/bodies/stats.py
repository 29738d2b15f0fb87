"""How far topics and groups are, and what a broker counts."""

from msgspec import field

from ..wire import Int64
from .body import Body, MessageQueue


class OffsetWrapper(Body):
    """One queue as a group sees it; `last_timestamp` in ms is of the message last consumed."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    pull_offset: Int64 = 0
    last_timestamp: Int64 = 0


class ConsumeStats(Body):
    """The progress of a group (208)."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class ConsumeStatsList(Body):
    """The progress of all groups of a broker (317): one map per group, from its name."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    broker_addr: str | None = None
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0


class TopicOffset(Body):
    """The bounds of one queue; `last_update_timestamp` in ms is of its last message."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0

    @property
    def messages(self) -> int:
        """The number of messages between the bounds. A bound below 0 is one of an empty queue."""
        return max(0, self.max_offset - max(0, self.min_offset))


class TopicStatsTable(Body):
    """The queues of a topic (202)."""

    offset_table: dict[MessageQueue, TopicOffset] = {}
    topic_put_tps: float = 0.0

    @property
    def messages(self) -> int:
        """The number of messages in all queues."""
        return sum(one.messages for one in self.offset_table.values())


class BrokerStatsItem(Body):
    """One counter over one span of time; `avgpt` is the mean per call."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body):
    """One counter over the last minute, hour and day (315)."""

    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)


class QueueTimeSpan(Body):
    """The times of a queue's first and last message, ms; the texts are the same in local time."""

    message_queue: MessageQueue = MessageQueue()
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class QueryConsumeTimeSpanBody(Body):
    """The answer of QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: list[QueueTimeSpan] = []


class ColdRead(Body):
    """The cold reads of a group: bytes in this period, and the times of its last and first read,
    ms."""

    cold_acc: Int64 = 0
    last_cold_read_time_mills: Int64 = 0
    create_time_mills: Int64 = 0


class ColdDataFlowCtrInfo(Body):
    """GET_COLD_DATA_FLOW_CTR_INFO (2003). Thresholds and `global_acc` in bytes."""

    runtime_table: dict[str, ColdRead] = {}
    config_table: dict[str, Int64] = {}
    cg_cold_read_threshold: Int64 = 0
    global_cold_read_threshold: Int64 = 0
    global_acc: Int64 = 0


class RocksdbCheck(Body):
    """CHECK_ROCKSDB_CQ_WRITE_PROGRESS (354); status 2: the check runs."""

    check_result: str | None = None
    check_status: int = 2
