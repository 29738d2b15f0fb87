"""Headers of transactions: how one ends, and the question how it ended."""

from ..wire import Header, Int32, Int64, field


class EndTransaction(Header):
    """END_TRANSACTION (37). `queue_offset` is the half message's in the half topic."""

    group: str = field(name="producerGroup")
    queue_offset: Int64 = field(name="tranStateTableOffset")
    log_offset: Int64 = field(name="commitLogOffset")
    outcome: Int32 = field(name="commitOrRollback")
    msg_id: str | None = field(name="msgId", default=None)
    topic: str | None = None
    from_check: bool = field(name="fromTransactionCheck", default=False)
    transaction_id: str | None = field(name="transactionId", default=None)


class CheckTransactionState(Header):
    """CHECK_TRANSACTION_STATE (39), which a broker sends to a producer, oneway.

    Brokers before 5.0 send no topic.
    """

    queue_offset: Int64 = field(name="tranStateTableOffset")
    log_offset: Int64 = field(name="commitLogOffset")
    msg_id: str | None = field(name="msgId", default=None)
    transaction_id: str | None = field(name="transactionId", default=None)
    offset_msg_id: str | None = field(name="offsetMsgId", default=None)
    broker_name: str | None = field(name="bname", default=None)
    topic: str | None = None


class ResumeCheck(Header):
    """RESUME_CHECK_HALF_MESSAGE (323). `msg_id` is the offset message id."""

    msg_id: str = field(name="msgId")
    topic: str | None = None
