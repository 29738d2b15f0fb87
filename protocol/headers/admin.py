"""Headers of administrative requests about offsets and clients that ask or tell consumers."""

from typing import ClassVar

from ..wire import Header, Int32, Int64, field


class ResetOffset(Header):
    """INVOKE_BROKER_TO_RESET_OFFSET (222), and 220 from the broker to its consumers.

    A `timestamp_ms` of -1 means the end of the queue. Without `force` no queue goes forward in a
    reset through the members; the broker's own (useServerSideResetOffset) doesn't ask for it.
    """

    may_miss: ClassVar = {"group": "", "timestamp": "0", "isForce": "false"}

    group: str
    topic: str
    timestamp_ms: Int64 = field(name="timestamp")
    force: bool = field(name="isForce")
    queue_id: Int32 = field(name="queueId", default=-1)
    offset: Int64 | None = None


class ConsumerStatus(Header):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), and 221 from the broker to its consumers.

    `client_id` (called clientAddr on the wire) names one of them, all are asked without.
    """

    topic: str
    group: str
    client_id: str | None = field(name="clientAddr", default=None)


class CorrectionOffset(Header):
    """QUERY_CORRECTION_OFFSET (308). `filter_groups` is a comma list of groups to leave out."""

    topic: str
    compare_group: str = field(name="compareGroup")
    filter_groups: str | None = field(name="filterGroups", default=None)


class MasterFlushOffset(Header):
    """RESET_MASTER_FLUSH_OFFSET (908)."""

    offset: Int64 = field(name="masterFlushOffset")


class HaAddresses(Header):
    """EXCHANGE_BROKER_HA_INFO (906), request and response. A request without fields asks a master,
    whose response has all three."""

    master_ha_address: str | None = field(name="masterHaAddress", default=None)
    master_flush_offset: Int64 | None = field(name="masterFlushOffset", default=None)
    master_address: str | None = field(name="masterAddress", default=None)


class GroupForbidden(Header):
    """UPDATE_AND_GET_GROUP_FORBIDDEN (353); without `readable` nothing is changed."""

    group: str
    topic: str
    readable: bool | None = None


class RuntimeInfoResponse(Header):
    """The header of our response to GET_BROKER_RUNTIME_INFO (28); a Java broker's has no fields."""

    aerobee_version: str | None = field(name="aerobeeVersion", default=None)
