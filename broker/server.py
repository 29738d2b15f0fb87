"""The broker: creates its parts, connects them, starts and stops them in order.

This module takes no decisions. A request's path: `protocol/aio/connection` receives bytes, `table`
names the handler, the handler works on the parts below. The response leaves at the end of the loop
iteration, after the messages of the iteration are in the log (`_end_of_tick`).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ..conf import log_levels
from ..protocol.aio.audit import AuditLog, open_audit_log
from ..protocol.aio.clocks import steady_ms
from ..protocol.aio.connection import Connection, Row, host_text
from ..protocol.aio.memory_budget import MemoryBudget
from ..protocol.aio.rpc_latency import RpcLatency
from ..protocol.aio.server import Server
from ..protocol.aio.slices import Slices
from ..protocol.aio.tls import Tls
from ..protocol.message.message_id import UniqueIds
from ..store.base.errors import StoreError, WritesRefused
from ..store.engine.store import MessageStore
from ..store.files import json_file
from ..store.files.segment import make_folder
from ..store.log.commit_log import NOWHERE
from ..store.log.walk import Progress
from . import replicas
from .access.access import Access, open_access
from .access.gates import RequestGates
from .acting.acting import ActingMaster
from .acting.returning import ReturningMaster
from .acting.timers import ActingTimers
from .admin.topics import delete_topic
from .filters.filters import Filters
from .groups.clients import Clients, ConsumerGroup
from .groups.groups import Groups
from .groups.member_notices import MemberNotices
from .groups.offsets import Offsets
from .groups.permissions import Permissions
from .groups.queue_lock_gate import CLIENT_LOCK_MS, QueueLockGate
from .groups.queue_locks import LeftLocks, LockTable, QueueLocks
from .member.handlers import MemberHandlers
from .member.membership import Membership
from .member.topics import add_missing
from .naming.other_masters import OtherMasters
from .naming.registration import Registration
from .pop.service import PopParts
from .ports import listen_for_clients, listen_for_slaves
from .pull.handlers import PullHandlers
from .pull.static_handlers import StaticPulls
from .replication.auto_switch_master import AutoSwitchMaster
from .replication.auto_switch_slave import AutoSwitchSlave
from .replication.following_timers import FollowingTimers
from .replication.master import HaMaster
from .replication.pull_handlers import SlavePullHandlers
from .replication.replica import Replica
from .replication.slave import HaSlave
from .replication.sync_state import SyncState
from .runtime import key_indexing
from .runtime.cleaner import Cleaner
from .runtime.forwarding import Forwarding
from .runtime.key_indexing import KeyIndexing
from .runtime.log_prefault import LogPrefault
from .runtime.periodic import Periodic
from .runtime.spans import Spans
from .runtime.stats import Stats
from .runtime.syncer import Syncer
from .runtime.table_saving import TableSaving
from .runtime.threads import Threads
from .scheduled.delays import Delays
from .scheduled.delivery_policy import DeliveryPolicy
from .scheduled.timers import Timers, open_timers
from .send.engine import CompiledEngine
from .send.handlers import SendHandlers
from .send.router import Router
from .settings.config import BrokerConfig
from .settings.delay_levels import parse_levels
from .settings.dynamic import STORE_LIMITS, DynamicSettings
from .settings.store_host import store_host
from .table import fast_table, full_table
from .topics.creation_times import CreationTimes
from .topics.missed_deletions import MissedDeletions
from .topics.static_cleaner import PERIOD_SECONDS as CLEAN_STATIC_SECONDS
from .topics.static_cleaner import StaticCleaner
from .topics.topics import Topics
from .transactions.counts import TransactionCounts
from .transactions.transactions import Transactions

log = logging.getLogger(__name__)

HA_SECONDS = 0.1  # how late a slave may get bytes that no loop iteration has sent
SWEEP_SECONDS = 1.0  # how late a parked pull may be answered
EXPIRE_SECONDS = 10.0
AHEAD_SECONDS = 0.1  # how long the load must have been low before the log is prefaulted
CHECKPOINT_SECONDS = 1.0
TABLE_SECONDS = 1.0  # how long the files of topics and groups may be behind their journals
DELAY_SECONDS = 0.1  # how late the timeout of a send that waits for the disk may be
STATS_SECONDS = 10.0
FILTERS_SECONDS = 10.0
POP_SECONDS = 0.05  # how late a parked pop may be answered
POP_TIDY_SECONDS = 10.0
AUTHORITY_SECONDS = 0.1  # how late a master without authority may refuse a send
SETTLED_SECONDS = 0.5  # how long responses to sends may take before the role is handed over
AUTHORITY = "authority"  # the cause of a pause of the log
SLAVE_REASON = (
    "message store is in slave mode, so putMessage is forbidden; send to this broker's master"
)

if TYPE_CHECKING:
    from .send.fast_path import CompiledSends

# The wall clock in milliseconds, time_ns() // 1,000,000, made of built-in functions only: it is
# read for every message, and a Python function would cost twice as much.
wall_clock_ms: Callable[[], int] = map((10**6).__rfloordiv__, iter(time.time_ns, None)).__next__


class Broker:
    """One broker. `await start()` opens its ports; `await stop()` releases everything."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        alive_ms: Callable[[], int] | None = None,
        client_ms: Callable[[], int] | None = None,
        threads: Threads | None = None,
        progress: Progress | None = None,
        membership: Membership | None = None,
    ) -> None:
        """`now_ms` is the time of messages; `alive_ms` the time for timeouts of clients, by default
        the same; `client_ms` the time that the clocks of clients show, by default the same.

        `threads` are the system's by default. `progress` is called during a long recovery, as by
        `MessageStore.open`. `membership` is the role in controller mode: `member.Member` makes a
        broker for each role.
        """
        self._threads = threads = threads or Threads()
        self._progress = progress
        self.membership = membership
        self.sync_state: SyncState | None = None  # of a master in controller mode
        self._leaving = ""  # why changes are refused for good
        self.config = msgspec.structs.replace(config)  # a copy: `DynamicSettings` changes it
        self.now_ms = now_ms
        self.alive_ms = alive_ms or now_ms
        self.lock_gate_ms = alive_ms or steady_ms  # a wall clock that jumps gives no lock early
        self.client_ms = client_ms or now_ms
        self.started_ms = 0
        self.port = 0
        self.fast_port = 0
        self.stats = Stats(config.broker_cluster_name, now_ms)
        self.latency = RpcLatency()
        self.creation_times = CreationTimes()
        self.root = config.store_dir
        self.missed_deletions = MissedDeletions(self.root)
        self.engine = CompiledEngine(self._use_compiled)
        self._compiled: CompiledSends | None = None
        self._idle_end = NOWHERE  # the end of the log before the first message of this run
        self.periodic = Periodic()
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self.timers: Timers | None = None
        self.access: Access | None = None  # where there are users
        self.audit: AuditLog | None = None
        self.spans: Spans | None = None  # with a collector of spans
        self.ha_slave: HaSlave | None = None
        self.replica: Replica | None = None  # a slave's work besides following the log
        self.acting: ActingMaster | None = None  # of a slave that may stand in for its master
        self.returning: ReturningMaster | None = None  # of a master with such a slave
        self._lock_gate: QueueLockGate | None = None  # of a broker that locks queues

    @property
    def address(self) -> str:
        """Where clients find this broker, as the name servers tell them."""
        return host_text((self.config.broker_ip1, self.port))

    @property
    def ha_address(self) -> str:
        """Where slaves follow this broker."""
        return host_text((self.config.broker_ip2, self.ha_port))

    def at_stop(self, close: Callable[[], Awaitable[None]]) -> None:
        """Call `close` when the broker stops, before what was given earlier."""
        self._closers.append(close)

    async def start(self) -> None:
        """Open the store, listen, register. StoreError or OSError with one plain sentence."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Leave the name servers, respond to parked requests, write everything, close the store."""
        await self.periodic.stop()
        while self._closers:
            await self._closers.pop()()

    async def leave(self, reason: str) -> None:
        """Stop at once because of another role: responses that wait for other brokers are not sent,
        since another master may not have their messages."""
        self.refuse_changes(reason)
        self.syncer.drop()
        for connection in list(self.server.connections):
            connection.close()
        await self.stop()

    async def settled(self) -> None:
        """Wait for a moment until no response waits for other brokers."""
        await self.syncer.settle(SETTLED_SECONDS)

    def refuse_changes(self, reason: str) -> None:
        """From now on refuse whatever changes something; reads go on."""
        self._leaving = reason
        self._check_authority()

    def change_refusal(self) -> str | None:
        """Why a master in controller mode takes no changes at this moment; None while it does."""
        member, state = self.membership, self.sync_state
        if member is None or state is None:
            return None
        return self._leaving or member.authority.refusal(state.counted(), state.last_report_ms)

    @property
    def position(self) -> tuple[int, int, int]:
        """Newest epoch, end and confirmed end of the log, as controllers compare them."""
        state, end = self.sync_state, self.store.log_end
        confirmed = self.store.whole_end if state is None else state.confirm_offset
        return max(0, self.store.epochs.last_epoch), end, confirmed

    def take_sync_set(self, members: Iterable[int], set_epoch: int) -> None:
        """The controller says that the sync state set is this one."""
        if isinstance(self.ha, AutoSwitchMaster):
            self.ha.apply(members, set_epoch)

    async def catch_up(self) -> None:
        """Run all periodic work once, now.

        Call it after moving the clock: on return, everything that became due is done.
        """
        await self.periodic.catch_up()
        self._end_of_tick()

    def _use_compiled(self, compiled_sends: "type[CompiledSends]") -> None:
        """From now on, handle plain sends with compiled code; on a slave, the log of its master."""
        if self.config.is_slave:
            self.store.use(compiled_sends.kernels())
            return
        self._compiled = compiled_sends(
            self.config, self.store, self.sends.router, self.delivery_policy, self.long_polls,
            self.stats, self.syncer.for_responses,
            self.access if self.access is not None and self.access.is_enabled else None,
            self.latency, self.server.scheduler, self.now_ms,
        )  # fmt: skip
        self._compiled.write_templates(self.sends.suffix.encode())
        self._compiled.open()
        self.at_stop(self._compiled.close)

    async def _start(self) -> None:
        self.started_ms = self.now_ms()
        # The ports come first: the port is part of each record. Clients get in at the end.
        slaves = await self._open_ports()
        await self._open_store(slaves)
        self._open_tables()
        self._make_services()
        self._make_handlers()
        self._on_dynamic_settings()
        rows = self._request_table()
        await self.other_masters.check_start()
        if not self.config.is_slave:
            for topic in self.missed_deletions.topics():
                await self.delete_missed(topic)
        self._work_periodically()
        if isinstance(self.ha, AutoSwitchMaster):
            await self.ha.start()
        await self.server.accept({self.port: rows, self.fast_port: fast_table(rows)})
        await self._join_cluster()

    async def _open_ports(self) -> asyncio.Server:
        """Listen for clients and slaves; returns the server for slaves."""
        config = self.config
        self.server = Server(
            on_lost=self._on_lost,
            before_write=self._end_of_tick,
            idle_seconds=config.server_channel_max_idle_time_seconds,
            budget=MemoryBudget(config.client_memory_bytes_max),
            latency=self.latency,
            tls=Tls(
                config.tls_server_mode, config.tls_server_cert_path, config.tls_server_key_path
            ),
        )
        self.at_stop(self.server.stop)
        self.slices = Slices(self.server.scheduler, self.periodic.part)
        self.saving = TableSaving(
            self.slices,
            self._threads.executor("aerobee-files"),
            lambda: self.syncer.reach(self.store.log_end),
        )
        self.port, self.fast_port = await listen_for_clients(self)
        slaves, self.ha_port, close = await listen_for_slaves(self)
        self.at_stop(close)
        return slaves

    async def _open_store(self, slaves: asyncio.Server) -> None:
        config, now_ms = self.config, self.now_ms
        host = await store_host(config.broker_ip1, self.port)
        self.other_masters = OtherMasters(config, self.address)
        make_folder(self.root)  # reports a file in its place before the folder is read
        self.dynamic_settings = DynamicSettings(
            config, self.root / "config" / "hotKeys.json", now_ms
        )
        self.dynamic_settings.load()
        if config.log_level:
            log_levels.use(config.log_level)
        self._has_tables = json_file.exists(self.root / "config" / "topics.json")
        self.store = MessageStore(self.root, config.store_settings(), host, now_ms)
        self.store.open(self._progress)
        self._opened_end = self.store.log_end
        self._is_new = not (self._opened_end or self.store.epochs.last_epoch)
        self.at_stop(self._close_store)
        self.key_indexing = KeyIndexing(self.store, self.server.scheduler, self.periodic.part)
        self.log_ahead = LogPrefault(self.store, self._threads.executor("aerobee-ahead"))
        self.at_stop(self.log_ahead.stop)
        member = self.membership
        if member is not None and member.role.is_master:
            self.ha: HaMaster | AutoSwitchMaster = self._as_master(slaves, member)
        else:
            self.ha = HaMaster(
                config, self.store, slaves, self.alive_ms, self._on_acked, self._on_shortage
            )
        self.at_stop(self.ha.stop)
        self._slaves = self.ha.slaves
        # Whether it is told of each end of the log, also without a slave.
        self._tells_end = self.sync_state is not None or config.acks_needed > 0
        if config.spans_grpc_exporter_target:
            self.spans = Spans(config.broker_name, self.store.state.log, self.latency)
        if config.is_slave:
            self.store.follower.follow(SLAVE_REASON)
            self.ha_slave = self._as_slave(member)
        else:
            self.store.make_room()

    def _as_master(self, slaves: asyncio.Server, member: Membership) -> AutoSwitchMaster:
        """Begin the epoch of this master, before its first message."""
        config, role = self.config, member.role
        self.sync_state = SyncState(role.members, role.set_epoch)
        self.store.begin_epoch(role.epoch)
        return AutoSwitchMaster(
            self.store,
            broker_id=role.own_id,
            master_epoch=role.epoch,
            state=self.sync_state,
            alter=member.alter,
            config=config,
            server=slaves,
            now_ms=member.now_ms,
            replicas=member.replicas,
            all_ack=bool(config.all_ack_in_sync_state_set),
            on_acked=self._on_acked,
            on_confirmed=self._on_confirmed,
        )

    def _as_slave(self, member: Membership | None) -> HaSlave:
        if member is None:
            return HaSlave(self.config, self.store, self.alive_ms, self._on_followed)
        return AutoSwitchSlave(
            self.store,
            broker_id=member.role.own_id,
            master_ha_address="",
            config=self.config,
            now_ms=self.alive_ms,
            on_messages=self._on_followed,
            on_cut=self._on_cut,
            on_confirmed=self._on_confirmed,
            sync_to=self._sync_to,
        )

    def _open_tables(self) -> None:
        """The tables that are files in the folder config."""
        config, now_ms = self.config, self.now_ms
        folder = self.root / "config"
        self.topics = Topics(folder / "topics.json", config, self.stats, now_ms)
        self.store.queue_left = self.topics.queue_left
        self.store.state.batch_topics = self.topics.with_batch_queues
        self.store.state.topic_rules = self.topics.retention
        self.groups = Groups(folder / "subscriptionGroup.json", config, now_ms)
        self.permissions = Permissions(config, self.topics, self.groups)
        self.offsets = Offsets(folder / "consumerOffset.json", now_ms, light=config.lmq_enable)
        self.delays = Delays(
            folder / "delayOffset.json",
            self.store,
            parse_levels(config.message_delay_level),
            now_ms,
            self.wake,
            self.stats,
        )
        self.filters = Filters(folder / "consumerFilter.json", config, now_ms)
        for part in (self.topics, self.groups, self.offsets, self.delays, self.filters):
            part.load()
        for _ in self.store.cleaner.expire():
            pass  # so that no message comes back that had expired before the start
        self.saving.journaled = [self.topics, self.groups]
        self.at_stop(self.saving.close)
        # After a power cut the log may end before the last consumed message.
        self.offsets.cut_at(self.store.next_offset)
        self.delays.cut_at_log()
        if self.sync_state is not None:
            self._lead_tables()
        self.saving.tables += (self.offsets, self.delays, self.filters)
        self.transaction_counts = TransactionCounts(folder / "transactionMetrics.json", now_ms)
        self.transaction_counts.load()
        self.saving.tables.append(self.transaction_counts)

    def _lead_tables(self) -> None:
        """A new master has a topic for each queue of its log, and registers as the newest."""
        assert self.membership is not None
        made = add_missing(self.topics, self.store.queue_keys())
        if made:
            log.warning("topics that only the log knew: %s", ", ".join(made))
        self.topics.begin_epoch(self.membership.role.epoch)

    def _make_services(self) -> None:
        """The services that handlers use besides the tables."""
        config, now_ms = self.config, self.now_ms
        self.notices = MemberNotices(self.slices)
        self.at_stop(self.notices.stop)
        self.clients = Clients(self._on_members, self.filters.register)
        self.locks = QueueLocks()
        self.transactions = self.walk_transactions()
        self.at_stop(self._end_transactions)
        kind: type[Timers] = FollowingTimers if config.is_slave else Timers
        if config.is_slave and config.has_acting_master:
            kind = ActingTimers
        self.timers = open_timers(config, self.store, now_ms, self.wake, self.stats, kind)
        if self.timers is not None:
            self.saving.tables.append(self.timers.metrics)
        self.delivery_policy = DeliveryPolicy(config, self.delays, self.timers, now_ms)
        self.syncer = Syncer(
            self.store,
            interval_s=config.flush_interval_commit_log / 1000,
            timeout_ms=config.sync_flush_timeout,
            now_ms=now_ms,
            is_sync=config.flush_disk_type == "SYNC_FLUSH",
            has_slaves=config.acks_needed > 0 or self.sync_state is not None,
            slave_timeout_ms=config.slave_timeout,
            threads=self._threads,
        )
        self.syncer.start()
        self.syncer.on_synced(self._on_synced)
        self.at_stop(self.syncer.stop)
        self.cleaner = Cleaner(self.store, self._threads.executor("aerobee-cleaner"))
        self.at_stop(self.cleaner.stop)
        self.forwarding = Forwarding(config)
        self.at_stop(self.forwarding.close)
        self.static_cleaner = StaticCleaner(
            config, self.store, self.topics.static, self.forwarding, now_ms
        )
        self.access = open_access(config, now_ms)
        self.audit = open_audit_log(config.audit_log, config.broker_name)
        if self.audit is not None:
            self.at_stop(self.audit.close)
            if self.access is not None:
                self.access.refusals.audit = self.audit

    def _make_handlers(self) -> None:
        config, now_ms = self.config, self.now_ms
        pull_parts = (
            config, self.store, self.permissions, self.groups, self.offsets, self.clients,
            self.filters, self.stats, now_ms, self.spans,
            self.change_refusal if self.sync_state is not None else None,
        )  # fmt: skip
        self.pulls = (
            SlavePullHandlers(*pull_parts, is_master_there=self._is_master_there)
            if config.is_slave
            else PullHandlers(*pull_parts)
        )
        self.long_polls = self.pulls.long_polls
        router = Router(
            self.store, self.topics, self.groups, self.locks, self.delivery_policy, self.stats,
            now_ms,
        )  # fmt: skip
        self.sends = SendHandlers(
            config, self.store, self.topics, router, self.delivery_policy, self.long_polls,
            self.stats, self.syncer.for_responses, UniqueIds(self.store.host, now_ms),
            self.transaction_counts, self.latency, now_ms,
        )  # fmt: skip
        self.pop = PopParts(
            self.root / "config", config, self.store, self.topics, self.groups, self.permissions,
            self.offsets, self.clients, self.filters, self.stats, self.delivery_policy, self.timers,
            self.long_polls, self.wake, now_ms, self.client_ms, self.spans,
        )  # fmt: skip
        self.pop.load()
        self.saving.tables.append(self.pop.orders)
        self.at_stop(self.pop.close)

    def _request_table(self) -> dict[int, Row]:
        """The requests that the listen port serves, behind their gates."""
        member, access = self.membership, self.access
        rows = list(full_table(self).values())
        self._open_lock_gate()
        gates = RequestGates(
            self.creation_times.timed,
            self.audit,
            access.guard if access is not None and access.is_enabled else None,
            authority=self.change_refusal if self.sync_state is not None else None,
            locks=None if self._lock_gate is None else self._lock_gate.refusal,
        )
        if member is not None:
            rows += MemberHandlers(
                self.config,
                self.store,
                self.address,
                self.ha_address,
                member.look,
                member.handover,
            ).rows()
        if self.config.is_slave:
            rows += replicas.follow(self, gates)
        elif self.config.has_acting_master:
            left, knows_locks = self._left_locks, self._knows_locks
            rows += replicas.take_back(self, gates, left, knows_locks=knows_locks)
        self._serve_static_topics()
        return gates.table(rows)

    def _open_lock_gate(self) -> None:
        """Make the gate for a time in which consumers may have locks that this broker doesn't know:
        those of a master before it, or of its own last run. A slave, and a master that returns, get
        another one that opens when they act, or have returned."""
        member, config = self.membership, self.config
        if member is not None:
            self._lock_gate = gate = QueueLockGate(member.now_ms)
            if member.role.is_master:
                is_first = self._is_new and member.role.epoch == 1
                # The master before this one may give locks until its authority ends.
                gate.open(after_ms=0 if is_first else member.authority.limit_ms + CLIENT_LOCK_MS)
                member.handover.ask(self._take_locks)
            return
        self._left_locks = left = LeftLocks(self.root / "config" / "queueLocks.json")
        table = left.take()
        if table is not None and table.epoch:
            table = None
        is_first = self._is_new and not self._has_tables
        if config.is_slave or config.has_acting_master:
            is_young = table is not None and 0 <= self.now_ms() - table.at_ms < CLIENT_LOCK_MS
            if table is not None and is_young:  # later a slave may have acted, and stopped
                self.locks.restore(table, self.now_ms())
            self._knows_locks = is_first or is_young
            return
        self._lock_gate = gate = QueueLockGate(self.lock_gate_ms)
        gate.open(after_ms=0 if is_first else CLIENT_LOCK_MS)
        if table is not None:
            self._take_locks(table)
        self.at_stop(self._leave_locks)

    async def _leave_locks(self) -> None:
        """Keep the locks for the next start."""
        released = self.release_locks()
        if released is not None:
            self._left_locks.leave(released)

    def _take_locks(self, table: LockTable) -> None:
        """These are all locks that were given before, so others can be given from now on."""
        gate = self._lock_gate
        if gate is not None and gate.is_opening and not gate.is_open:
            self.locks.restore(table, self.now_ms())
            gate.close()
            gate.open(after_ms=0)

    def release_locks(self) -> LockTable | None:
        """Give no locks any more. Returns all locks, None while this broker doesn't know all."""
        gate, member = self._lock_gate, self.membership
        if gate is None or not gate.is_open:
            return None
        gate.close()
        epoch = 0 if member is None else member.role.epoch
        return self.locks.table(self.now_ms(), self.config.broker_name, epoch)

    async def _join_cluster(self) -> None:
        """Let slaves in, follow a master, register with the name servers."""
        config = self.config
        if isinstance(self.ha, HaMaster):
            await self.ha.accept()
        self.at_stop(self.engine.stop)
        if self._may_compile and config.is_slave:
            await self.engine.start_loaded()
        if self.ha_slave is not None:
            self.at_stop(self.ha_slave.stop)
            await self.ha_slave.start()
        on_master = None if self.replica is None else self.replica.on_master
        self.registration = Registration(
            config,
            self.topics,
            self.address,
            self.ha_address,
            self.other_masters,
            self.slices,
            on_master,
        )
        self.at_stop(self.registration.stop)
        if self.returning is not None:
            await self.returning.come_online()
            self.at_stop(self.returning.hand_over)  # before the slave learns that it is to act
        await self.registration.start()
        for stands_in in (self.acting, self.returning):
            if stands_in is not None:
                self.periodic.start(stands_in.run(self.registration.register_all), "acting master")
        if self._may_compile and not config.is_slave:
            self.engine.start()
            self._idle_end = self.store.log_end

    @property
    def _may_compile(self) -> bool:
        """Whether it uses machine code: a member of a set does once it has a role."""
        has_role = self.membership is None or self.membership.role.epoch > 0
        return self.config.compiled_sends and has_role

    def _work_periodically(self) -> None:
        config, every, in_turns = self.config, self.periodic.every, self.periodic.in_turns
        every(SWEEP_SECONDS, lambda: in_turns(self.long_polls.sweep_in_parts(self.now_ms())))
        every(SWEEP_SECONDS, self.pulls.sweep_cold)
        every(DELAY_SECONDS, self.syncer.sweep)
        every(EXPIRE_SECONDS, self._expire)
        every(key_indexing.PERIOD_SECONDS, self.key_indexing.run)
        every(AHEAD_SECONDS, self.log_ahead.step)
        every(CHECKPOINT_SECONDS, self.store.save_checkpoint)
        every(config.clean_resource_interval / 1000, self.cleaner.run)
        every(TABLE_SECONDS, self.saving.save_journaled)
        every(config.flush_consumer_offset_interval / 1000, lambda: self.saving.save(self.offsets))
        every(config.flush_delay_offset_interval / 1000, lambda: self.saving.save(self.delays))
        every(FILTERS_SECONDS, self._save_filters)
        if self.timers is not None:
            self.periodic.in_steps(self.server.scheduler, partial(self._time, self.timers))
            every(config.timer_flush_interval_ms / 1000, partial(self._sync, self.timers))
        every(POP_SECONDS, self.pop.sweep)
        every(POP_TIDY_SECONDS, self.pop.handlers.tidy)
        every(POP_TIDY_SECONDS, lambda: self.saving.save(self.pop.orders))
        if not config.is_slave:
            self._write_by_itself()
        if self.sync_state is not None:
            every(AUTHORITY_SECONDS, self._check_authority)
        if self.ha_slave is not None and self.membership is None:
            every(SWEEP_SECONDS, self.ha_slave.sweep)
        every(STATS_SECONDS, lambda: in_turns(self.stats.sample_in_parts(self.now_ms())))
        if isinstance(self.ha, HaMaster):
            every(HA_SECONDS, self.ha.sweep)

    def _write_by_itself(self) -> None:
        """A master's own writes; a slave's log gets them from the master."""
        config = self.config
        self.periodic.in_steps(
            self.server.scheduler,
            lambda most: self._delivers() and self.delays.deliver(self.now_ms(), most),
        )
        self.periodic.every(lambda: self.pop.revive.wait_ms() / 1000, self._revive)
        # Not on a slave, where a queue may be empty because it is behind.
        self.periodic.every(CLEAN_STATIC_SECONDS, self.static_cleaner.run)
        self.periodic.every_dynamic(
            self.dynamic_settings,
            "transactionOpBatchInterval",
            lambda: config.transaction_op_batch_interval,
            self.transactions.write_ended,
        )
        self.periodic.every_dynamic(
            self.dynamic_settings,
            "transactionMetricFlushInterval",
            lambda: config.transaction_metric_flush_interval,
            lambda: self.saving.save(self.transaction_counts),
        )
        self.periodic.every_dynamic(
            self.dynamic_settings,
            "transactionCheckInterval",
            lambda: config.transaction_check_interval,
            self._check_transactions,
        )

    def walk_transactions(self) -> Transactions:
        """A new walk over the half topic, from its cursor."""
        return Transactions(
            self.config, self.store, self.topics, self.offsets, self.clients,
            self.transaction_counts, self.stats, self.now_ms,
        )  # fmt: skip

    async def settle_due(self) -> None:
        """Have the timers' check point say how far they came."""
        if self.timers is not None and await self.syncer.reach(self.store.log_end):
            await self._sync(self.timers)

    def _delivers(self) -> bool:
        """Whether this broker delivers what is due: not before a return has ended."""
        return self.returning is None or self.returning.is_online

    def _is_master_there(self) -> bool:
        return self.replica is not None and self.replica.is_master_there()

    def _serve_static_topics(self) -> None:
        """Once there is a static topic, look at each pull for whether its topic is one."""
        static = self.topics.static
        logical = StaticPulls(
            self.pulls, static, self.offsets, self.forwarding, is_slave=self.config.is_slave
        )

        def changed(topic: str) -> None:
            self.pulls.logical = logical
            target = self.topics.targets.get(topic)
            for key in [] if target is None else target.keys:
                self.wake(key)  # pulls parked there may have to go to another broker

        self.topics.on_static = changed
        for topic in static.table:
            changed(topic)

    def _on_dynamic_settings(self) -> None:
        """Effects of changed settings beyond the value that every part reads when it needs it."""
        config, on_change = self.config, self.dynamic_settings.on_change
        store, scheduler = self.store, self.server.scheduler

        def limit_memory() -> None:
            scheduler.budget.bytes_max = config.client_memory_bytes_max

        def write_templates() -> None:
            self.sends.write_templates()
            if self._compiled is not None:
                self._compiled.write_templates(self.sends.suffix.encode())

        on_change(lambda: store.change_limits(config.store_settings()), *STORE_LIMITS)
        on_change(self.topics.add_system_topics, "autoCreateTopicEnable")
        on_change(self.topics.announce, "brokerPermission")
        on_change(write_templates, "traceOn")
        on_change(
            lambda: store.page_cache.read_log_ahead(wanted=config.data_read_ahead_enable),
            "dataReadAheadEnable",
        )
        on_change(limit_memory, "clientMemoryBytesMax")
        on_change(lambda: log_levels.use(config.log_level), "logLevel")

    async def _close_store(self) -> None:
        try:
            self.store.sync()
        except StoreError as wrong:
            log.error("what was consumed since the last save is not saved: %s", wrong)
        else:
            self.saving.save_all()
        if self.timers is not None:
            self._close_timers(self.timers)
        self.store.close()

    async def _end_transactions(self) -> None:
        try:
            self.transactions.write_ended()
        except StoreError as wrong:
            log.warning("transactions that ended will be asked about again: %s", wrong)

    async def _check_transactions(self) -> None:
        """A round of checks, in parts between which requests are served."""
        if not self._delivers():
            return
        check = partial(self.transactions.check, self.now_ms())
        await self.periodic.in_turns(iter(check, False))

    async def _revive(self) -> None:
        """A round of revival of popped messages, in parts between which requests are served."""
        if self._reads_all():
            await self.periodic.in_turns(iter(self.pop.revive.run, False))

    async def delete_missed(self, topic: str) -> None:
        """Delete a topic that the other brokers of a group deleted while this one was away."""
        try:
            delete_topic(topic, self.store, self.topics, self.offsets, self.stats)
            await self.save_offsets()
            log.warning("topic %s is deleted: it was deleted while this broker was away", topic)
        except StoreError as wrong:
            log.error(
                "topic %s was deleted while this broker was away, and is back: %s; delete it again",
                *(topic, wrong),
            )
        self.missed_deletions.done(topic)

    async def save_offsets(self) -> bool:
        """Write the groups' consumed offsets; returns whether the file is up to date."""
        return await self.saving.save(self.offsets)

    def _time(self, timers: Timers, most: int) -> bool:
        may = self._delivers() and self._reads_all()
        return may and timers.step(self.now_ms(), most)

    def _reads_all(self) -> bool:
        """Whether the whole log of the last run is readable: a master in controller mode must
        confirm it again. Timers and revivals would take what can't be read for lost."""
        return self.config.is_slave or self.store.readable_end >= self._opened_end

    async def _sync(self, timers: Timers) -> None:
        """Sync the timer's files to the disk without blocking the loop."""
        timers.sample(self.now_ms())
        await self.saving.save(timers.metrics)
        progress = timers.state.unsynced()
        if progress is not None:
            await self.saving.in_thread(timers.state.sync)
            timers.state.synced(progress)

    def _close_timers(self, timers: Timers) -> None:
        try:
            timers.state.close()
        except (OSError, StoreError) as wrong:
            log.warning("the next start makes the timer wheel again: %s", wrong)

    def _end_of_tick(self) -> None:
        """Write the iteration's messages to the log, then serve the pulls parked for them.

        The responses are sent after that. WritesRefused when messages were dropped.
        """
        store = self.store
        compiled = self._compiled
        if compiled is not None and compiled.batch.senders:
            compiled.take()
        self.sends.store_batch()
        try:
            store.write_staged()
        finally:
            dropped, store.state.dropped = store.state.dropped, False
        if store.log_end > self._idle_end:
            self._idle_end = NOWHERE
            self.engine.want()
        if dropped:
            # Some were dropped earlier in this iteration, for example when a file was full.
            raise WritesRefused(store.refusal or "messages were dropped")
        if self.spans is not None and not self.config.is_slave:
            self.spans.stored()
        if self._slaves or self._tells_end:
            self.ha.send()  # which also tells a master without slaves what is confirmed
        if self.syncer.is_due:
            self.syncer.end_of_tick()
        if store.state.light_arrived:
            for key in store.state.light_arrived:
                self.long_polls.mark(key)
            store.state.light_arrived.clear()
        if self.long_polls.marked:
            self.long_polls.serve()

    def wake(self, key: tuple[str, int]) -> None:
        """The broker itself stored a message: wake its readers at the end of the loop iteration."""
        self.long_polls.mark(key)
        self.server.scheduler.wake()

    def wake_all(self) -> None:
        self.long_polls.wake_all()
        self.server.scheduler.wake()

    def _on_acked(self, end: int) -> None:
        self.syncer.replicated(end)

    def _on_shortage(self, why: str) -> None:
        if why:
            log.warning("%s", why)
        self.syncer.shortage = why

    def _on_confirmed(self) -> None:
        """More of the log may be read: every member of the sync state set has it."""
        self.wake_all()

    async def _sync_to(self, end: int) -> bool:
        return await self.syncer.reach(end)

    def _on_cut(self, _: int) -> None:
        """The end of the log was cut, since another master never had it."""
        self.offsets.cut_at(self.store.next_offset)
        self.delays.cut_at_log()
        if self.timers is not None:
            self.timers.state.cut_at_log()

    def _check_authority(self) -> None:
        """A master without authority stores nothing, neither of its clients nor of its own."""
        why = self.change_refusal()
        commit_log = self.store.state.log
        if why is None:
            commit_log.resume(AUTHORITY)
        elif AUTHORITY not in commit_log.paused:
            log.warning("%s", why)
            commit_log.pause(AUTHORITY, why)

    def _on_followed(self, keys: Iterable[tuple[str, int]]) -> None:
        """The master's log brought new messages for these queues."""
        for key in keys:
            self.long_polls.mark(key)
            if self.topics.get(key[0]) is None and self.replica is not None:
                self.replica.sync.lacks_topic = True
        if self.long_polls.marked or self._slaves:
            self.server.scheduler.wake()

    def _on_synced(self) -> None:
        if isinstance(self.ha, AutoSwitchMaster):
            self.ha.confirm()
        elif self._slaves:
            self.ha.send()
        if self.store.readable_end_moves_with_sync:
            self.wake_all()

    def _on_lost(self, connection: Connection) -> None:
        self.clients.lost(connection)

    async def _save_filters(self) -> None:
        self.filters.clean(self.now_ms())
        await self.saving.save(self.filters)

    def _on_members(self, group: ConsumerGroup) -> None:
        if not group.members:
            self.filters.unregister(group.name)
        config = self.groups.get(group.name)
        if self.config.notify_consumer_ids_changed_enable and (
            config is None or config.notify_consumer_ids_changed_enable
        ):
            self.notices.tell(group)

    async def _expire(self) -> None:
        """Close the connections of clients that were silent for too long."""
        before_ms = self.alive_ms() - self.config.channel_expired_timeout

        def close() -> Generator[None, None, None]:
            for connection in self.clients.expire(before_ms):
                if connection is not None:
                    connection.close()
                yield

        await self.slices.run(close())
