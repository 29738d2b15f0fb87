"""Bodies about single queues: locks and contents."""

import msgspec

from ..wire import Int32, Int64
from .body import Body, MessageQueue
from .subscription import SubscriptionData


class LockBatchRequestBody(Body):
    """Queues that a client wants to hold alone (41)."""

    consumer_group: str = ""
    client_id: str = ""
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = []


class UnlockBatchRequestBody(Body):
    """Queues that a client gives back (42)."""

    consumer_group: str = ""
    client_id: str = ""
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = []


class LockBatchResponseBody(Body):
    """The queues that are held now."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)


class ConsumeQueueData(Body):
    """One entry of a consume queue; `eval` says whether the group's filter lets it pass."""

    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body):
    """Entries of a consume queue and its bounds (321)."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = []
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
