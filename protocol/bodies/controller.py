"""What brokers, controllers and mqadmin say about replicas, in JSON."""

from msgspec import field

from ..wire import Int32, Int64
from .body import Body
from .cluster import BrokerMemberGroup


class SyncStateSet(Body):
    """The brokers whose logs have every acknowledged message, and the number of that set."""

    sync_state_set: list[Int64] = []
    sync_state_set_epoch: Int32 = 0


class ElectMasterResponseBody(Body):
    """The response to CONTROLLER_ELECT_MASTER; without a group when nothing changed."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[Int64] = []


class ReplicaIdentity(Body):
    """One broker of a name, as mqadmin shows it."""

    alive: bool = False
    broker_address: str | None = None
    broker_id: Int64 = 0
    broker_name: str | None = None


class ReplicasInfo(Body):
    """All brokers of a name."""

    in_sync_replicas: list[ReplicaIdentity] = []
    master_address: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 = 0
    not_in_sync_replicas: list[ReplicaIdentity] = []
    sync_state_set_epoch: Int32 = 0


class BrokerReplicasInfo(Body):
    """The response to CONTROLLER_GET_SYNC_STATE_DATA: replicas by broker name."""

    replicas_info_table: dict[str, ReplicasInfo] = field(default_factory=dict)
