"""What monitoring sees of a broker."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ...protocol.aio.rpc_latency import RpcLatency
from ...protocol.aio.server import Server
from ...protocol.aio.slices import Slices
from ...store.engine.store import MessageStore
from ..groups.clients import Clients
from ..groups.groups import Groups
from ..groups.offsets import Offsets
from ..naming.other_masters import OtherMasters
from ..naming.registration import Registration
from ..pop.service import PopParts
from ..pull.long_polls import LongPolls
from ..replication.master import HaMaster
from ..replication.slave import HaSlave
from ..roles.role import Role
from ..runtime.stats import Stats
from ..runtime.syncer import Syncer
from ..scheduled.timers import Timers
from ..settings.config import BrokerConfig
from ..topics.creation_times import CreationTimes
from ..topics.topics import Topics
from ..transactions.counts import TransactionCounts


class GroupsView(Protocol):
    """Topics, groups, and how far these are behind: what `Broker` has of that."""

    config: BrokerConfig
    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: Offsets
    clients: Clients
    stats: Stats
    pop: PopParts
    slices: Slices
    now_ms: Callable[[], int]


class BrokerView(GroupsView, Protocol):
    """The rest that pages and metrics show."""

    role: Role
    root: Path
    started_ms: int
    port: int
    fast_port: int
    server: Server
    registration: Registration
    other_masters: OtherMasters
    ha: HaMaster
    ha_slave: HaSlave | None
    syncer: Syncer
    long_polls: LongPolls
    timers: Timers | None
    transaction_counts: TransactionCounts
    latency: RpcLatency
    creation_times: CreationTimes

    @property
    def address(self) -> str:
        """Where clients find the broker."""
        ...
