"""Bodies of the control of cold data."""

from ..wire import Int64
from .body import Body


class ColdRead(Body):
    """What a group has read: bytes in this period, and when it read last and first, ms."""

    cold_acc: Int64 = 0
    last_cold_read_time_mills: Int64 = 0
    create_time_mills: Int64 = 0


class ColdDataFlowCtrInfo(Body):
    """GET_COLD_DATA_FLOW_CTR_INFO (2003). Thresholds and `global_acc` in bytes."""

    runtime_table: dict[str, ColdRead] = {}
    config_table: dict[str, Int64] = {}
    cg_cold_read_threshold: Int64 = 0
    global_cold_read_threshold: Int64 = 0
    global_acc: Int64 = 0


class RocksdbCheck(Body):
    """CHECK_ROCKSDB_CQ_WRITE_PROGRESS (354); status 2: it is being looked at."""

    check_result: str | None = None
    check_status: int = 2
