"""The broker: creates its parts, connects them, starts and stops them in order.

What differs between a master and a slave its role decides (`roles/role`). A request's path:
`protocol/aio/connection` receives bytes, `table` names the handler, the handler works on the parts
below. The response leaves at the end of the loop iteration, after the messages of the iteration are
in the log (`_end_of_tick`).
"""

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from ..conf import log_levels
from ..protocol.aio.audit import open_audit_log
from ..protocol.aio.clocks import monotonic_ms
from ..protocol.aio.connection import Row
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
from .access.access import open_access
from .access.gates import RequestGates
from .controlled.member import Membership
from .filters.filters import Filters
from .groups.clients import Clients, ConsumerGroup
from .groups.groups import Groups
from .groups.member_notices import MemberNotices
from .groups.offsets import Offsets
from .groups.permissions import Permissions
from .groups.queue_locks import QueueLocks
from .groups.waiting_groups import WaitingGroups
from .naming.other_masters import OtherMasters
from .naming.registration import Registration
from .pop.service import PopParts
from .ports import listen_for_clients, listen_for_slaves
from .pull.handlers import PullHandlers
from .pull.static_handlers import StaticPulls
from .roles.choice import role_of
from .roles.parts import Parts
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
from .send.engine import CompiledEngine
from .send.finish import SendFinish
from .send.handlers import SendHandlers
from .send.router import Router
from .settings.config import BrokerConfig
from .settings.delay_levels import parse_levels
from .settings.dynamic import STORE_LIMITS, DynamicSettings
from .settings.store_host import store_host
from .table import fast_table, full_table
from .topics.creation_times import CreationTimes
from .topics.missed_deletions import MissedDeletions
from .topics.static_cleaner import StaticCleaner
from .topics.topics import Topics
from .transactions.counts import TransactionCounts
from .upkeep import jobs

log = logging.getLogger(__name__)

# The wall clock in milliseconds, time_ns() // 1,000,000, made of built-in functions only: it is
# read for every message, and a Python function would cost twice as much.
wall_clock_ms: Callable[[], int] = map((10**6).__rfloordiv__, iter(time.time_ns, None)).__next__


class Broker(Parts):
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
        `MessageStore.open`. `membership` gives the role in controller mode: `member.Member` makes a
        broker for each role.
        """
        self.threads = threads or Threads()
        self._progress = progress
        self.membership = membership
        self.config = msgspec.structs.replace(config)  # a copy: `DynamicSettings` changes it
        self.now_ms = now_ms
        self.alive_ms = alive_ms or now_ms
        self.lock_gate_ms = alive_ms or monotonic_ms  # a wall clock that jumps gives no lock early
        self.client_ms = client_ms or now_ms
        self.started_ms = 0
        self.port = 0
        self.fast_port = 0
        self.stats = Stats(config.broker_cluster_name, now_ms)
        self.latency = RpcLatency()
        self.creation_times = CreationTimes()
        self.root = config.store_dir
        self.missed_deletions = MissedDeletions(self.root)
        self.role = role_of(self)
        self.engine = CompiledEngine(self.role.use_compiled)
        self.compiled = None
        self.idle_end = NOWHERE
        self.periodic = Periodic()
        self._closers = []
        self.timers = self.access = self.audit = self.spans = self.stored_spans = None
        self.ha_slave = self.replica = self.acting = self.returning = self.sync_state = None

    async def start(self) -> None:
        """Open the store, listen, register. StoreError or OSError with one readable sentence."""
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
        self.role.refuse_changes(reason)
        self.syncer.drop()
        for connection in list(self.server.connections):
            connection.close()
        await self.stop()

    async def catch_up(self) -> None:
        """Run all periodic work once, now.

        Call it after moving the clock: on return, everything that became due is done.
        """
        await self.periodic.catch_up()
        self._end_of_tick()

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
        await self.role.prepare()
        self.periodic.run(jobs(self), self.server.scheduler, self.dynamic_settings.on_change)
        await self.server.accept({self.port: rows, self.fast_port: fast_table(rows)})
        self.registration = Registration(
            self.config,
            self.topics,
            self.address,
            self.ha_address,
            self.other_masters,
            self.slices,
            self.role.on_master,
        )
        await self.role.join()

    async def _open_ports(self) -> asyncio.Server:
        """Listen for clients and slaves; returns the server for slaves."""
        config = self.config
        self.server = Server(
            on_lost=lambda connection: self.clients.lost(connection),
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
            self.threads.executor("aerobee-files"),
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
        self.has_tables = json_file.exists(self.root / "config" / "topics.json")
        self.store = MessageStore(self.root, config.store_settings(), host, now_ms)
        self.store.open(self._progress)
        self.opened_end = self.store.log_end
        self.is_new = not (self.opened_end or self.store.epochs.last_epoch)
        self.at_stop(self._close_store)
        self.key_indexing = KeyIndexing(self.store, self.server.scheduler, self.periodic.part)
        self.log_ahead = LogPrefault(self.store, self.threads.executor("aerobee-ahead"))
        self.at_stop(self.log_ahead.stop)
        if config.spans_grpc_exporter_target:
            self.spans = Spans(config.broker_name, self.store.commit_log, self.latency)
        self.role.open(slaves)
        self.at_stop(self.ha.stop)
        self._slaves = self.ha.slaves

    def _open_tables(self) -> None:
        """The tables that are files in the folder config."""
        config, now_ms = self.config, self.now_ms
        folder = self.root / "config"
        self.topics = Topics(folder / "topics.json", config, self.stats, now_ms)
        topics = self.topics
        self.store.use_topics(topics.with_batch_queues, topics.retention, topics.queue_left)
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
        self.waiting_groups = WaitingGroups(config, self.store, self.offsets)
        self.waiting_groups.apply()
        for _ in self.store.cleaner.expire():
            pass  # so that no message comes back that had expired before the start
        self.saving.journaled = [self.topics, self.groups]
        self.at_stop(self.saving.close)
        # After a power cut the log may end before the last consumed message.
        self.offsets.cut_at(self.store.next_offset)
        self.delays.cut_at_log()
        self.saving.tables += (self.offsets, self.delays, self.filters)
        self.transaction_counts = TransactionCounts(folder / "transactionMetrics.json", now_ms)
        self.transaction_counts.load()
        self.saving.tables.append(self.transaction_counts)

    def _make_services(self) -> None:
        """The services that handlers use besides the tables."""
        config, now_ms = self.config, self.now_ms
        self.notices = MemberNotices(self.slices)
        self.at_stop(self.notices.stop)
        self.clients = Clients(self._on_members, self.filters.register)
        self.locks = QueueLocks()
        self.transactions = self.walk_transactions()
        self.at_stop(self._end_transactions)
        self.timers = self.role.open_timers()
        if self.timers is not None:
            self.saving.tables.append(self.timers.metrics)
        self.delivery_policy = DeliveryPolicy(config, self.delays, self.timers, now_ms)
        self.syncer = Syncer(
            self.store,
            interval_s=config.flush_interval_commit_log / 1000,
            timeout_ms=config.sync_flush_timeout,
            now_ms=now_ms,
            is_sync=config.flush_disk_type == "SYNC_FLUSH",
            has_slaves=self.ha.hears_each_end,
            slave_timeout_ms=config.slave_timeout,
            threads=self.threads,
        )
        self.syncer.start()
        self.syncer.on_synced(self._on_synced)
        self.at_stop(self.syncer.stop)
        self.cleaner = Cleaner(self.store, self.threads.executor("aerobee-cleaner"))
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
        self.pulls = PullHandlers(
            config,
            self.role.pull_role(),
            self.store,
            self.permissions,
            self.groups,
            self.offsets,
            self.clients,
            self.filters,
            self.stats,
            now_ms,
            self.spans,
            self.role.change_refusal if self.role.needs_authority else None,
        )
        self.long_polls = self.pulls.long_polls
        router = Router(
            self.store,
            self.topics,
            self.groups,
            self.locks,
            self.delivery_policy,
            self.stats,
            now_ms,
        )
        finish = SendFinish(
            self.long_polls, self.stats, self.delivery_policy, self.syncer.for_responses
        )
        self.sends = SendHandlers(
            config,
            self.store,
            self.topics,
            router,
            self.delivery_policy,
            self.stats,
            finish,
            UniqueIds(self.store.host, now_ms),
            self.transaction_counts,
            self.latency,
            now_ms,
        )
        self.pop = PopParts(
            self.root / "config",
            config,
            self.store,
            self.topics,
            self.groups,
            self.permissions,
            self.offsets,
            self.clients,
            self.filters,
            self.stats,
            self.delivery_policy,
            self.timers,
            self.long_polls,
            self.wake,
            now_ms,
            self.client_ms,
            self.spans,
        )
        self.pop.load()
        self.saving.tables.append(self.pop.orders)
        self.at_stop(self.pop.close)

    def _request_table(self) -> dict[int, Row]:
        """The requests that the listen port serves, behind their gates."""
        access, role = self.access, self.role
        gates = RequestGates(
            self.creation_times.timed,
            self.audit,
            access.guard if access is not None and access.is_enabled else None,
            authority=role.change_refusal if role.needs_authority else None,
        )
        rows = [*full_table(self).values(), *role.make_parts(gates)]
        self._serve_static_topics()
        return gates.table(rows)

    def _serve_static_topics(self) -> None:
        """Once there is a static topic, check for each pull whether its topic is one."""
        static = self.topics.static
        logical = StaticPulls(self.pulls, static, self.offsets, self.forwarding)

        def changed(topic: str) -> None:
            self.pulls.logical = logical
            target = self.topics.targets.get(topic)
            for key in [] if target is None else target.keys:
                self.wake(key)  # pulls parked there may have to go to another broker

        self.topics.on_static = changed
        for topic in static.table:
            changed(topic)

    def _on_dynamic_settings(self) -> None:
        """Apply effects of changed settings beyond the value that every part reads when it needs
        it."""
        config, on_change = self.config, self.dynamic_settings.on_change
        store, scheduler = self.store, self.server.scheduler

        def limit_memory() -> None:
            scheduler.budget.bytes_max = config.client_memory_bytes_max

        def write_templates() -> None:
            self.sends.write_templates()
            if self.compiled is not None:
                self.compiled.write_templates(self.sends.suffix.encode())

        on_change(lambda: store.change_limits(config.store_settings()), *STORE_LIMITS)
        on_change(self.topics.add_system_topics, "autoCreateTopicEnable")
        on_change(self.topics.announce, "brokerPermission")
        on_change(write_templates, "traceOn")
        on_change(
            lambda: store.page_cache.read_log_ahead(wanted=config.data_read_ahead_enable),
            "dataReadAheadEnable",
        )
        on_change(limit_memory, "clientMemoryBytesMax")
        on_change(self.waiting_groups.apply, "retainUntilConsumedBy")
        on_change(lambda: log_levels.use(config.log_level), "logLevel")

    async def _close_store(self) -> None:
        try:
            self.store.sync()
        except StoreError as wrong:
            log.error("what was consumed since the last save is not saved: %s", wrong)
        else:
            self.saving.save_all()
        if self.timers is not None:
            try:
                self.timers.state.close()
            except (OSError, StoreError) as wrong:
                log.warning("the next start makes the timer wheel again: %s", wrong)
        self.store.close()

    async def _end_transactions(self) -> None:
        try:
            self.transactions.write_ended()
        except StoreError as wrong:
            log.warning("transactions that ended will be asked about again: %s", wrong)

    def _end_of_tick(self) -> None:
        """Write the iteration's messages to the log, then serve the pulls parked for them.

        The responses are sent after that. WritesRefused when messages were dropped.
        """
        store = self.store
        compiled = self.compiled
        if compiled is not None and compiled.batch.senders:
            compiled.take()
        self.sends.store_batch()
        try:
            store.write_staged()
        finally:
            dropped = store.take_dropped()
        if store.log_end > self.idle_end:
            self.idle_end = NOWHERE
            self.engine.want()
        if dropped:
            # Some were dropped earlier in this iteration, for example when a file was full.
            raise WritesRefused(store.refusal or "messages were dropped")
        if self.stored_spans is not None:
            self.stored_spans.stored()
        if self._slaves or self.ha.hears_each_end:
            self.ha.send()  # which also tells a master without slaves what is confirmed
        if self.syncer.is_due:
            self.syncer.end_of_tick()
        for key in store.take_light_arrived():
            self.long_polls.mark(key)
        if self.long_polls.marked:
            self.long_polls.serve()

    def _on_synced(self) -> None:
        self.ha.acks.synced()
        if self.store.readable_end_moves_with_sync:
            self.wake_all()

    def _on_members(self, group: ConsumerGroup) -> None:
        if not group.members:
            self.filters.unregister(group.name)
        config = self.groups.get(group.name)
        if self.config.notify_consumer_ids_changed_enable and (
            config is None or config.notify_consumer_ids_changed_enable
        ):
            self.notices.tell(group)
