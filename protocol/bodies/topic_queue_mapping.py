"""Static topics: the logical queues of a topic, and the broker queues that each consists of.

RocketMQ calls the map of such a topic its queue mapping. A logical queue keeps its id and its
offsets while it moves from broker to broker: it is a list of items, one for each physical queue
that it has lived in, oldest first.
"""

from msgspec import field

from ..wire import Int32, Int64
from .body import Body
from .data_version import DataVersion

SCOPE_GLOBAL = "__global__"


class TopicQueueMappingInfo(Body):
    """The logical queues that one broker leads: what it tells the name servers.

    `curr_id_map` leads from the id of a logical queue to that of the physical queue behind it.
    """

    topic: str | None = None
    scope: str | None = SCOPE_GLOBAL
    total_queues: Int32 = 0
    bname: str | None = None
    epoch: Int64 = 0
    dirty: bool = False
    curr_id_map: dict[Int32, Int32] = {}


class LogicQueueMappingItem(Body):
    """A stretch of a logical queue: one physical queue of broker `bname`, from `start_offset` on.

    `logic_offset` is the logical offset of its first message, -1 while that is not decided.
    """

    gen: Int32 = 0
    queue_id: Int32 = 0
    bname: str | None = None
    logic_offset: Int64 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = -1
    time_of_start: Int64 = -1
    time_of_end: Int64 = -1


class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """All that a broker knows of a static topic: the items of each logical queue that it leads, or
    led before. The broker of the last item leads the queue."""

    hosted_queues: dict[Int32, list[LogicQueueMappingItem]] = {}


class TopicQueueMappingSerializeWrapper(Body):
    """The file topicQueueMapping.json."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = {}
    data_version: DataVersion = field(default_factory=DataVersion)
