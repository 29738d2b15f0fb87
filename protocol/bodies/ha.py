"""How a master and its slaves stand to each other (907, 1007)."""

from msgspec import field

from ..wire import Int32, Int64
from .body import Body


class HAConnectionRuntimeInfo(Body):
    """One slave as its master sees it. `diff` is how many bytes it is behind."""

    addr: str | None = None
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    transfer_from_where: Int64 = 0


class HAClientRuntimeInfo(Body):
    """A master as its slave sees it; all zero on a master. Times in ms."""

    master_addr: str | None = None
    transferred_byte_in_second: Int64 = 0
    max_offset: Int64 = 0
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_flush_offset: Int64 = 0


class HARuntimeInfo(Body):
    """The answer of GET_BROKER_HA_STATUS (907)."""

    master: bool = False
    master_commit_log_max_offset: Int64 = 0
    in_sync_slave_nums: Int32 = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = []
    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)


class EpochSpan(Body):
    """The part of a log that one master wrote, in log offsets."""

    epoch: Int32 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = 0


class EpochEntryCache(Body):
    """The answer of GET_BROKER_EPOCH_CACHE (1007). `broker_id` is that of the role, 0 of a master;
    the last epoch ends at the largest int64."""

    broker_id: Int64 = 0
    broker_name: str | None = None
    cluster_name: str | None = None
    epoch_list: list[EpochSpan] = []
    max_offset: Int64 = 0
