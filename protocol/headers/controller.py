"""Headers of the requests that a controller serves, and of the one that it sends (1008).

Times are in ms since 1970. An id is a controller id: a broker keeps it for life, from 1 on.
"""

from ..wire import Header, Int32, Int64, field

CONTROLLER_ITSELF = -1  # as a broker id: the controller asks for the election


class AlterSyncStateSet(Header):
    """CONTROLLER_ALTER_SYNC_STATE_SET (1001): a master proposes another sync state set."""

    broker_name: str = field(name="brokerName")
    master_broker_id: Int64 = field(name="masterBrokerId")
    master_epoch: Int32 = field(name="masterEpoch")
    invoke_time: Int64 = field(name="invokeTime", default=0)


class AlterSyncStateSetResponse(Header):
    """The response to 1001; 0 in a refusal."""

    new_sync_state_set_epoch: Int32 = field(name="newSyncStateSetEpoch", default=0)


class ElectMaster(Header):
    """CONTROLLER_ELECT_MASTER (1002). With `designate_elect` that broker or none is elected."""

    cluster_name: str = field(name="clusterName")
    broker_name: str = field(name="brokerName")
    broker_id: Int64 = field(name="brokerId")
    designate_elect: bool = field(name="designateElect")
    invoke_time: Int64 = field(name="invokeTime", default=0)


class ElectMasterResponse(Header):
    """The response to 1002; fields are absent while there is no master."""

    master_broker_id: Int64 | None = field(name="masterBrokerId", default=None)
    master_address: str | None = field(name="masterAddress", default=None)
    master_epoch: Int32 | None = field(name="masterEpoch", default=None)
    sync_state_set_epoch: Int32 | None = field(name="syncStateSetEpoch", default=None)


class RegisterBrokerToController(Header):
    """CONTROLLER_REGISTER_BROKER (1003): a broker that has its id tells its address."""

    broker_name: str = field(name="brokerName")
    broker_id: Int64 = field(name="brokerId")
    broker_address: str = field(name="brokerAddress")
    cluster_name: str = field(name="clusterName", default="")
    invoke_time: Int64 = field(name="invokeTime", default=0)


class RegisterBrokerToControllerResponse(Header):
    """The response to 1003; the master stands in it only while it is alive."""

    cluster_name: str | None = field(name="clusterName", default=None)
    broker_name: str | None = field(name="brokerName", default=None)
    master_broker_id: Int64 | None = field(name="masterBrokerId", default=None)
    master_address: str | None = field(name="masterAddress", default=None)
    master_epoch: Int32 | None = field(name="masterEpoch", default=None)
    sync_state_set_epoch: Int32 | None = field(name="syncStateSetEpoch", default=None)


class GetReplicaInfo(Header):
    """CONTROLLER_GET_REPLICA_INFO (1004)."""

    broker_name: str = field(name="brokerName")


class GetReplicaInfoResponse(Header):
    """The response to 1004."""

    master_broker_id: Int64 | None = field(name="masterBrokerId", default=None)
    master_address: str | None = field(name="masterAddress", default=None)
    master_epoch: Int32 | None = field(name="masterEpoch", default=None)


class GetMetadataResponse(Header):
    """The response to CONTROLLER_GET_METADATA_INFO (1005). `peers` is "id:host:port;" for each."""

    group: str | None = None
    controller_leader_id: str | None = field(name="controllerLeaderId", default=None)
    controller_leader_address: str | None = field(name="controllerLeaderAddress", default=None)
    is_leader: bool = field(name="isLeader", default=False)
    peers: str | None = None


class NotifyRoleChanged(Header):
    """NOTIFY_BROKER_ROLE_CHANGED (1008): a controller tells a broker of a new master."""

    master_address: str | None = field(name="masterAddress", default=None)
    master_epoch: Int32 | None = field(name="masterEpoch", default=None)
    sync_state_set_epoch: Int32 | None = field(name="syncStateSetEpoch", default=None)
    master_broker_id: Int64 | None = field(name="masterBrokerId", default=None)


class CleanBrokerData(Header):
    """CLEAN_BROKER_DATA (1011). `ids` is "1;2", or absent for all brokers of the name."""

    broker_name: str = field(name="brokerName")
    cluster_name: str | None = field(name="clusterName", default=None)
    ids: str | None = field(name="brokerControllerIdsToClean", default=None)
    is_clean_living_broker: bool = field(name="isCleanLivingBroker", default=False)
    invoke_time: Int64 = field(name="invokeTime", default=0)


class GetNextBrokerId(Header):
    """CONTROLLER_GET_NEXT_BROKER_ID (1012)."""

    broker_name: str = field(name="brokerName")
    cluster_name: str = field(name="clusterName", default="")


class GetNextBrokerIdResponse(Header):
    """The response to 1012."""

    cluster_name: str | None = field(name="clusterName", default=None)
    broker_name: str | None = field(name="brokerName", default=None)
    next_broker_id: Int64 | None = field(name="nextBrokerId", default=None)


class ApplyBrokerId(Header):
    """CONTROLLER_APPLY_BROKER_ID (1013). `check_code` is "address;ms", the broker's secret."""

    broker_name: str = field(name="brokerName")
    applied_broker_id: Int64 = field(name="appliedBrokerId")
    check_code: str = field(name="registerCheckCode")
    cluster_name: str = field(name="clusterName", default="")


class ApplyBrokerIdResponse(Header):
    """The response to 1013."""

    cluster_name: str | None = field(name="clusterName", default=None)
    broker_name: str | None = field(name="brokerName", default=None)


class ControllerHeartbeat(Header):
    """BROKER_HEARTBEAT (904) as a controller reads it: how far a broker's log is, each second.

    `timeout_ms` is how long the broker counts as alive without another heartbeat. A smaller
    `election_priority` is elected first among equal logs.
    """

    cluster: str = field(name="clusterName")
    broker_addr: str = field(name="brokerAddr")
    broker_name: str = field(name="brokerName")
    broker_id: Int64 | None = field(name="brokerId", default=None)
    epoch: Int32 | None = None
    max_offset: Int64 | None = field(name="maxOffset", default=None)
    confirm_offset: Int64 | None = field(name="confirmOffset", default=None)
    timeout_ms: Int64 | None = field(name="heartbeatTimeoutMills", default=None)
    election_priority: Int32 | None = field(name="electionPriority", default=None)
