"""Bodies about connected clients: the producers and consumers that a broker knows."""

import msgspec

from ..wire import Int32, Int64
from .body import Body
from .subscription import SubscriptionData


class Connection(Body):
    """One client of a group; `version` is its MQVersion ordinal."""

    client_id: str = ""
    client_addr: str = ""
    language: str = "JAVA"
    version: Int32 = 0


class ConsumerConnection(Body):
    """The consumers of a group (203)."""

    connection_set: list[Connection] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnection(Body):
    """The producers of a group (204)."""

    connection_set: list[Connection] = []


class ProducerInfo(Body):
    """One producer; `last_update_timestamp` in ms is its last heartbeat."""

    client_id: str = ""
    remote_ip: str = msgspec.field(name="remoteIP", default="")
    language: str = "JAVA"
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


class ProducerTableInfo(Body):
    """All producers by group (328)."""

    data: dict[str, list[ProducerInfo]] = {}


class GetConsumerListByGroupResponseBody(Body):
    """Client ids of a group (38)."""

    consumer_id_list: list[str] = []


class GroupList(Body):
    """Names of consumer groups (300)."""

    group_list: list[str] = []


class QuerySubscriptionResponseBody(Body):
    """The subscription of a group to a topic (345)."""

    subscription_data: SubscriptionData | None = None
    group: str | None = None
    topic: str | None = None
