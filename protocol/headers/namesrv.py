"""Headers of the name server's requests. What Java lets be absent may be absent here."""

from ..wire import Header, Int32, Int64, field


class KVConfigItem(Header):
    """PUT_KV_CONFIG (100), GET_KV_CONFIG (101), DELETE_KV_CONFIG (102)."""

    namespace: str | None = None
    key: str | None = None
    value: str | None = None


class KVConfigResponse(Header):
    """The answer to GET_KV_CONFIG."""

    value: str | None = None


class KVNamespace(Header):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str | None = None


class BrokerIdentity(Header):
    """UNREGISTER_BROKER (104), QUERY_DATA_VERSION (322): one broker process."""

    broker_name: str = field(name="brokerName")
    broker_addr: str = field(name="brokerAddr")
    cluster: str = field(name="clusterName")
    broker_id: Int64 = field(name="brokerId")


class RegisterBroker(BrokerIdentity):
    """REGISTER_BROKER (103).

    `acting_master` None is an old broker, that knows nothing of acting masters. `body_crc32` 0 is
    not checked.
    """

    ha_addr: str | None = field(name="haServerAddr", default=None)
    timeout_ms: Int64 | None = field(name="heartbeatTimeoutMillis", default=None)
    acting_master: bool | None = field(name="enableActingMaster", default=None)
    compressed: bool = False
    body_crc32: Int32 = field(name="bodyCrc32", default=0)
    zone: str | None = field(name="__ZONE_NAME", default=None)


class RegisterBrokerResponse(Header):
    """The answer to REGISTER_BROKER: for a slave, where its master is."""

    ha_addr: str | None = field(name="haServerAddr", default=None)
    master_addr: str | None = field(name="masterAddr", default=None)


class QueryDataVersionResponse(Header):
    """The answer to QUERY_DATA_VERSION: whether the broker should register its topics."""

    changed: bool


class BrokerHeartbeat(Header):
    """BROKER_HEARTBEAT (904); only cluster and address matter to a name server."""

    cluster: str = field(name="clusterName")
    broker_addr: str = field(name="brokerAddr")
    broker_name: str | None = field(name="brokerName", default=None)
    broker_id: Int64 | None = field(name="brokerId", default=None)
    timeout_ms: Int64 | None = field(name="heartbeatTimeoutMills", default=None)


class GetRoute(Header):
    """GET_ROUTEINFO_BY_TOPIC (105). With `zone_mode` only brokers of `zone` are wanted."""

    topic: str | None = None
    standard_json: bool | None = field(name="acceptStandardJsonOnly", default=None)
    zone_mode: bool | None = field(name="__ZONE_MODE", default=None)
    zone: str | None = field(name="__ZONE_NAME", default=None)


class BrokerName(Header):
    """WIPE_WRITE_PERM_OF_BROKER (205), ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str = field(name="brokerName")


class WipeWritePermResponse(Header):
    """The answer to WIPE_WRITE_PERM_OF_BROKER: the number of topics touched."""

    topics: Int32 = field(name="wipeTopicCount")


class AddWritePermResponse(Header):
    """The answer to ADD_WRITE_PERM_OF_BROKER: the number of topics touched."""

    topics: Int32 = field(name="addTopicCount")


class DeleteTopicInNamesrv(Header):
    """DELETE_TOPIC_IN_NAMESRV (216); without a cluster everywhere."""

    topic: str
    cluster: str | None = field(name="clusterName", default=None)


class RegisterTopic(Header):
    """REGISTER_TOPIC_IN_NAMESRV (217)."""

    topic: str


class TopicsByCluster(Header):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


class MemberGroup(Header):
    """GET_BROKER_MEMBER_GROUP (901)."""

    cluster: str = field(name="clusterName")
    broker_name: str = field(name="brokerName")


class MinBrokerIdChange(Header):
    """NOTIFY_MIN_BROKER_ID_CHANGE (905), from a name server to brokers of one name."""

    min_broker_id: Int64 | None = field(name="minBrokerId", default=None)
    broker_name: str | None = field(name="brokerName", default=None)
    min_broker_addr: str | None = field(name="minBrokerAddr", default=None)
    offline_broker_addr: str | None = field(name="offlineBrokerAddr", default=None)
    ha_broker_addr: str | None = field(name="haBrokerAddr", default=None)
