"""What a name server says about clusters, broker groups and its key-value tables."""

from ..wire import Int64
from .body import Body
from .route import BrokerData

# What our brokers add to their runtime info.
DIFFERING_PREFIX = "subscriptionsDiffer_"  # a group's name follows
NOT_STORED = "notStored"  # why messages are not taken, or not synced, only while they are not
OTHER_MASTERS = "otherMasters"  # addresses with ; between them, only while there are some
# Files past their time that stay for a group of retainUntilConsumedBy, only while there are some:
LOG_HELD_BYTES = "logHeldBytes"
LOG_HELD_SINCE = "logHeldSince"  # ms
LOG_HELD_BY = "logHeldBy"  # group;topic;queue id
HOLDING_NOTHING = "groupsHoldingNothing"  # of that setting, without offsets; ; between them


class ClusterInfo(Body):
    """All broker names, and which of them belong to each cluster (106)."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class BrokerMemberGroup(Body):
    """The live members of a broker name, addresses by broker id."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[Int64, str] = {}


class GetBrokerMemberGroupResponseBody(Body):
    """The answer of GET_BROKER_MEMBER_GROUP (901)."""

    broker_member_group: BrokerMemberGroup | None = None


class KVTable(Body):
    """One namespace of the key-value config; also a broker's runtime info."""

    table: dict[str, str] = {}
