"""Acknowledgements, check points and batches in order of pop; most wire names are letters."""

from msgspec import field

from ..wire import Int32, Int64
from .body import Body


class BatchAck(Body):
    """Acknowledged messages of one pop.

    `bits` is base64 of a little-endian bit set, in which bit i stands for `start_offset` + i.
    `retry` is "1" when the messages came from the retry topic. Times in ms.
    """

    consumer_group: str = field(name="c", default="")
    topic: str = field(name="t", default="")
    retry: str = field(name="r", default="0")
    start_offset: Int64 = field(name="so", default=0)
    queue_id: Int32 = field(name="q", default=0)
    revive_queue_id: Int32 = field(name="rq", default=0)
    pop_time: Int64 = field(name="pt", default=0)
    invisible_time: Int64 = field(name="it", default=0)
    bits: str = field(name="b", default="")


class BatchAckMessageRequestBody(Body):
    """The body of BATCH_ACK_MESSAGE (200151)."""

    broker_name: str | None = None
    acks: list[BatchAck] = []


class PopCheckPoint(Body):
    """The messages of a pop, and the time until which they are invisible: a message of the revive
    topic.

    `queue_offset_diff` are the distances of the `num` messages from `start_offset`; `bit_map`
    marks the acknowledged ones. Times in ms.
    """

    start_offset: Int64 = field(name="so", default=0)
    pop_time: Int64 = field(name="pt", default=0)
    invisible_time: Int64 = field(name="it", default=0)
    bit_map: Int32 = field(name="bm", default=0)
    num: Int32 = field(name="n", default=0)
    queue_id: Int32 = field(name="q", default=0)
    topic: str | None = field(name="t", default=None)
    consumer_group: str | None = field(name="c", default=None)
    revive_offset: Int64 = field(name="ro", default=0)
    queue_offset_diff: list[Int32] | None = field(name="d", default=None)
    broker_name: str | None = field(name="bn", default=None)
    re_put_times: str | None = field(name="rp", default=None)
    revive_time: Int64 = 0

    def __post_init__(self) -> None:
        self.revive_time = self.pop_time + self.invisible_time


class AckMsg(Body):
    """One acknowledgement: a message of the revive topic."""

    ack_offset: Int64 = field(name="ao", default=0)
    start_offset: Int64 = field(name="so", default=0)
    consumer_group: str | None = field(name="c", default=None)
    topic: str | None = field(name="t", default=None)
    queue_id: Int32 = field(name="q", default=0)
    pop_time: Int64 = field(name="pt", default=0)
    broker_name: str | None = field(name="bn", default=None)


class BatchAckMsg(AckMsg):
    """Several acknowledgements of one check point; their `ack_offset` is -1."""

    ack_offset_list: list[Int64] = field(name="aol", default=[])


class OrderInfo(Body):
    """The batch of one queue that was popped last. Times in ms.

    `offsets` has the first queue offset, then distances from it; `acked` has a bit for each. The
    maps by queue offset say when a message is visible again (if not with the batch), and how often
    it was popped before.
    """

    pop_time: Int64 = 0
    invisible_time: Int64 | None = field(name="i", default=None)
    offsets: list[Int64] | None = field(name="o", default=None)
    next_visible_times: dict[Int64, Int64] | None = field(name="ot", default=None)
    consumed_counts: dict[Int64, Int32] | None = field(name="oc", default=None)
    last_consume_time: Int64 = field(name="l", default=0)
    acked: Int64 = field(name="cm", default=0)
    attempt_id: str | None = field(name="a", default=None)


class ConsumerOrderInfoWrapper(Body):
    """The file: `topic@group` to queue id to batch."""

    table: dict[str, dict[Int32, OrderInfo]] = {}
