"""The values that brokers and the route table exchange: registrations, and lost brokers."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from ..protocol.bodies.data_version import DataVersion
from ..protocol.bodies.topic import TopicConfig
from ..protocol.bodies.topic_queue_mapping import TopicQueueMappingInfo

Address = tuple[str, str]  # cluster and "ip:port"


@dataclass(frozen=True, slots=True)
class Registration:
    """The registration of a broker.

    `acting_master` None marks an old broker. `filter_servers` None keeps the known ones.
    """

    cluster: str
    broker_name: str
    broker_id: int
    addr: str
    topics: dict[str, TopicConfig]
    version: DataVersion
    ha_addr: str | None = None
    zone: str | None = None
    timeout_ms: int | None = None
    acting_master: bool | None = None
    filter_servers: list[str] | None = None
    mappings: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)  # of static topics


@dataclass(frozen=True, slots=True)
class Notice:
    """The smallest broker id of a name changed: the brokers at `targets` should hear of it."""

    min_broker_id: int
    min_broker_addr: str
    targets: list[str]
    offline_addr: str | None = None
    ha_addr: str | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """A registration that was taken: for a slave, where its master is.

    `other_masters` are the addresses that also registered as master of this name and are alive,
    with their cluster where it is another one; it is filled when the master of the name changes.
    """

    ha_addr: str | None = None
    master_addr: str | None = None
    notice: Notice | None = None
    other_masters: tuple[str, ...] = ()


@dataclass(slots=True)
class Live:
    """A live address: when it was last heard of, and on which connection it registered."""

    heard_ms: int
    timeout_ms: int
    version: DataVersion
    connection: Hashable
    ha_addr: str | None
    broker_name: str
    broker_id: int


@dataclass(slots=True)
class Removed:
    """Addresses that were dropped, connections to be closed, and what others should hear."""

    addresses: list[Address] = field(default_factory=list)
    connections: list[Hashable] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
