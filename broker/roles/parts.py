"""The parts of a broker. `Broker` makes the parts, its role and its request table use them."""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.aio.audit import AuditLog
from ...protocol.aio.connection import host_text
from ...protocol.aio.rpc_latency import RpcLatency
from ...protocol.aio.server import Server
from ...protocol.aio.slices import Slices
from ...store.base.errors import StoreError
from ...store.engine.store import MessageStore
from ..access.access import Access
from ..acting.acting import ActingMaster
from ..acting.returning import ReturningMaster
from ..admin.topics import delete_topic
from ..controlled.member import Membership
from ..filters.filters import Filters
from ..groups.clients import Clients
from ..groups.groups import Groups
from ..groups.offsets import Offsets
from ..groups.permissions import Permissions
from ..groups.queue_locks import QueueLocks
from ..groups.waiting_groups import WaitingGroups
from ..naming.other_masters import OtherMasters
from ..naming.registration import Registration
from ..pop.service import PopParts
from ..pull.handlers import PullHandlers
from ..pull.long_polls import LongPolls
from ..replication.counted_acks import CountedAcks
from ..replication.log_position import LogPosition
from ..replication.master import HaMaster
from ..replication.replica import Replica
from ..replication.slave import HaSlave
from ..replication.sync_state import SyncState
from ..runtime.cleaner import Cleaner
from ..runtime.forwarding import Forwarding
from ..runtime.key_indexing import KeyIndexing
from ..runtime.log_prefault import LogPrefault
from ..runtime.periodic import Periodic
from ..runtime.spans import Spans
from ..runtime.stats import Stats
from ..runtime.syncer import Syncer
from ..runtime.table_saving import TableSaving
from ..runtime.threads import Threads
from ..scheduled.delays import Delays
from ..scheduled.delivery_policy import DeliveryPolicy
from ..scheduled.timers import Timers
from ..send.engine import CompiledEngine
from ..send.handlers import SendHandlers
from ..settings.config import BrokerConfig
from ..settings.dynamic import DynamicSettings
from ..topics.creation_times import CreationTimes
from ..topics.missed_deletions import MissedDeletions
from ..topics.static_cleaner import StaticCleaner
from ..topics.topics import Topics
from ..transactions.counts import TransactionCounts
from ..transactions.transactions import Transactions
from .role import Role

if TYPE_CHECKING:
    from ..send.fast_path import CompiledSends

log = logging.getLogger(__name__)

Clock = Callable[[], int]  # the time in ms


class Parts:
    """The parts of one broker, None for those that it lacks in its role or by its settings."""

    _closers: list[Callable[[], Awaitable[None]]]  # called at the stop, the last first

    config: BrokerConfig
    membership: Membership | None  # in controller mode
    role: Role
    root: Path  # of the store
    threads: Threads
    started_ms: int
    is_new: bool  # its log was empty at the start
    has_tables: bool  # it has run before, with a log or without
    opened_end: int  # of the log, at the start

    # Clocks: of messages, for timeouts of clients, for locks of queues, of clients.
    now_ms: Clock
    alive_ms: Clock
    lock_gate_ms: Clock
    client_ms: Clock

    # Ports
    server: Server
    port: int
    fast_port: int
    ha_port: int

    # The store and its tables
    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: Offsets
    waiting_groups: WaitingGroups
    delays: Delays
    filters: Filters
    transaction_counts: TransactionCounts
    missed_deletions: MissedDeletions
    saving: TableSaving
    dynamic_settings: DynamicSettings

    # What handlers use
    permissions: Permissions
    clients: Clients
    locks: QueueLocks
    delivery_policy: DeliveryPolicy
    timers: Timers | None
    transactions: Transactions
    syncer: Syncer
    forwarding: Forwarding
    access: Access | None
    audit: AuditLog | None
    spans: Spans | None  # with a collector of spans
    stored_spans: Spans | None  # the same where messages are stored
    stats: Stats
    latency: RpcLatency
    creation_times: CreationTimes

    # Handlers with parts of their own
    pulls: PullHandlers
    long_polls: LongPolls
    sends: SendHandlers
    pop: PopParts

    # Work besides requests
    engine: CompiledEngine
    compiled: "CompiledSends | None"  # once the engine has loaded them
    idle_end: int  # of the log, before the first message of this run
    periodic: Periodic
    slices: Slices
    cleaner: Cleaner
    static_cleaner: StaticCleaner
    key_indexing: KeyIndexing
    log_ahead: LogPrefault

    # The cluster
    registration: Registration
    other_masters: OtherMasters
    ha: HaMaster  # its slaves
    ha_slave: HaSlave | None  # follows the master's log
    replica: Replica | None  # a slave's work besides that
    acting: ActingMaster | None  # of a slave that may stand in for its master
    returning: ReturningMaster | None  # of a master with such a slave
    sync_state: SyncState | None  # of a master in controller mode

    @property
    def address(self) -> str:
        """The address of this broker for clients, as the name servers tell it."""
        return host_text((self.config.broker_ip1, self.port))

    @property
    def ha_address(self) -> str:
        """The address of this broker for slaves."""
        return host_text((self.config.broker_ip2, self.ha_port))

    @property
    def log_position(self) -> LogPosition:
        """The position of the log, as controllers compare it."""
        state, store = self.sync_state, self.store
        confirmed = store.whole_end if state is None else state.confirm_offset
        return LogPosition(max(0, store.epochs.last_epoch), store.log_end, confirmed)

    def at_stop(self, close: Callable[[], Awaitable[None]]) -> None:
        """Call `close` when the broker stops, before what was given earlier."""
        self._closers.append(close)

    def wake(self, key: tuple[str, int]) -> None:
        """Wake the readers of a message that the broker itself stored, at the end of the loop
        iteration."""
        self.long_polls.mark(key)
        self.server.scheduler.wake()

    def wake_all(self) -> None:
        """Run all parked pulls again at the end of the loop iteration."""
        self.long_polls.wake_all()
        self.server.scheduler.wake()

    def walk_transactions(self) -> Transactions:
        """A new walk over the half topic, from its cursor."""
        return Transactions(
            self.config,
            self.store,
            self.topics,
            self.offsets,
            self.clients,
            self.transaction_counts,
            self.stats,
            self.now_ms,
        )

    def counted_acks(self, ha: HaMaster) -> CountedAcks:
        """The acks for a log that as many slaves acknowledge as the settings say. They tell the
        syncer, which is made later, how far the slaves have it."""

        def on_shortage(why: str) -> None:
            if why:
                log.warning("%s", why)
            self.syncer.shortage = why

        return CountedAcks(ha, lambda end: self.syncer.replicated(end), on_shortage)

    async def save_offsets(self) -> bool:
        """Write the groups' consumed offsets; returns whether the file is up to date."""
        return await self.saving.save(self.offsets)

    async def sync_timers(self) -> None:
        """Write how far the timers came, without blocking the loop."""
        timers = self.timers
        if timers is None:
            return
        timers.sample(self.now_ms())
        await self.saving.save(timers.metrics)
        progress = timers.state.unsynced()
        if progress is not None:
            await self.saving.in_thread(timers.state.sync)
            timers.state.synced(progress)

    async def delete_missed(self, topic: str) -> None:
        """Delete a topic that the other brokers of a group deleted while this one was away."""
        try:
            forget_pops = self.pop.meters.forget_topic
            delete_topic(topic, self.store, self.topics, self.offsets, self.stats, forget_pops)
            await self.save_offsets()
            log.warning("topic %s is deleted: it was deleted while this broker was away", topic)
        except StoreError as wrong:
            log.error(
                "topic %s was deleted while this broker was away, and is back: %s; delete it again",
                topic,
                wrong,
            )
        self.missed_deletions.done(topic)
