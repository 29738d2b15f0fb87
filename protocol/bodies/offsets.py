"""Consume offsets on their way: resets, corrections and whole tables of them."""

from ..wire import Int32, Int64
from .body import Body, MessageQueue
from .data_version import DataVersion


class ResetOffsetBody(Body):
    """The offset in each queue at which a group goes on (220, 222)."""

    offset_table: dict[MessageQueue, Int64] = {}


class MessageQueueForC(Body):
    """A queue and its offset side by side."""

    topic: str = ""
    broker_name: str = ""
    queue_id: Int32 = 0
    offset: Int64 = 0


class ResetOffsetBodyForC(Body):
    """The same for clients that can't read objects as keys (header field isC)."""

    offset_table: list[MessageQueueForC] = []


class GetConsumerStatusBody(Body):
    """Offsets as a client has them (221), or all clients of a group by client id (223)."""

    message_queue_table: dict[MessageQueue, Int64] = {}
    consumer_table: dict[str, dict[MessageQueue, Int64]] = {}


class QueryCorrectionOffsetBody(Body):
    """The least offset of other groups by queue id (308)."""

    correction_offsets: dict[Int32, Int64] = {}


class ConsumerOffsetSerializeWrapper(Body):
    """All offsets of a broker (43): by "topic@group", then by queue id.

    In lmqConsumerOffset.json those of groups whose name begins with %LMQ% are in a table of their
    own, without queue ids.
    """

    offset_table: dict[str, dict[Int32, Int64]] = {}
    data_version: DataVersion | None = None
    lmq_offset_table: dict[str, Int64] | None = None
