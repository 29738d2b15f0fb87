"""Routes: which brokers hold a topic, with how many queues, and where they listen."""

from ..wire import Int32, Int64
from .body import Body
from .topic_queue_mapping import TopicQueueMappingInfo

MASTER_ID = 0


class QueueData(Body):
    """The queues of one topic on one broker name."""

    broker_name: str | None = None
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0


class BrokerData(Body):
    """A broker name: the master (id 0) and slaves behind it, by id, as "ip:port"."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[Int64, str] = {}
    zone_name: str | None = None
    enable_acting_master: bool = False


class TopicRouteData(Body):
    """The answer of GET_ROUTEINFO_BY_TOPIC (105)."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None
