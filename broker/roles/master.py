"""A master: it stores messages, delivers what is due, and locks queues for consumers."""

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...protocol.aio.connection import Row
from ..access.gates import RequestGates
from ..groups.queue_locks import CLIENT_LOCK_MS, LockTable, QueueLockGate
from ..pull.role import MasterPullRole, PullRole
from ..replication.master import Acks, HaMaster
from ..runtime.periodic import STEP_SECONDS, Cut, DynamicPeriod, Job
from ..scheduled.delivering import open_master_timers
from ..scheduled.timers import Timers
from ..topics.static_cleaner import PERIOD_SECONDS as CLEAN_STATIC_SECONDS
from .locks import is_first_start, left_locks, taken
from .parts import Parts
from .role import Facts, Role

if TYPE_CHECKING:
    from ..send.fast_path import CompiledSends

log = logging.getLogger(__name__)


class Master(Role):
    """A master without another broker of its name that may act for it."""

    _epoch = 0  # of the locks; without a controller there are no epochs

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._left_locks = left_locks(parts)
        self._lock_gate: QueueLockGate | None = None
        self._ha_ms = parts.alive_ms  # the clock of replication

    def open(self, slaves: asyncio.Server) -> None:
        b = self._parts
        b.ha = HaMaster(b.config, b.store, slaves, self._ha_ms, self._make_acks)
        b.store.make_room()
        b.stored_spans = b.spans

    def open_timers(self) -> Timers | None:
        b = self._parts
        return open_master_timers(b.config, b.store, b.now_ms, b.wake, b.stats)

    def pull_role(self) -> PullRole:
        return MasterPullRole()

    def make_parts(self, gates: RequestGates) -> list[Row]:
        b = self._parts
        self._lock_gate = gate = QueueLockGate(b.lock_gate_ms)
        gates.locks = gate.refusal
        # Consumers may have locks of the last run that this one doesn't know.
        gate.open(after_ms=0 if is_first_start(b) else CLIENT_LOCK_MS)
        table = taken(self._left_locks)
        if table is not None:
            self._take_locks(table)
        b.at_stop(self._leave_locks)
        return []

    async def prepare(self) -> None:
        b = self._parts
        for topic in b.missed_deletions.topics():
            await b.delete_missed(topic)
        await b.ha.start()

    def jobs(self) -> Iterator[Job]:
        b, config = self._parts, self._parts.config
        yield Job(
            STEP_SECONDS,
            lambda most: self.may_deliver() and b.delays.deliver(b.now_ms(), most),
            Cut.STEPS,
        )
        yield Job(lambda: b.pop.revive.wait_ms() / 1000, self._revivals, Cut.PARTS)
        # Not on a slave, where a queue may be empty because it is behind.
        yield Job(CLEAN_STATIC_SECONDS, b.static_cleaner.run)
        yield Job(
            DynamicPeriod(
                "transactionOpBatchInterval", lambda: config.transaction_op_batch_interval
            ),
            b.transactions.write_ended,
        )
        yield Job(
            DynamicPeriod(
                "transactionMetricFlushInterval", lambda: config.transaction_metric_flush_interval
            ),
            lambda: b.saving.save(b.transaction_counts),
        )
        yield Job(
            DynamicPeriod("transactionCheckInterval", lambda: config.transaction_check_interval),
            self._transaction_checks,
            Cut.PARTS,
        )

    async def join(self) -> None:
        b = self._parts
        b.at_stop(b.engine.stop)
        b.at_stop(b.registration.stop)
        await b.registration.start()
        self._compile()

    def use_compiled(self, compiled: "type[CompiledSends]") -> None:
        b = self._parts
        b.compiled = compiled(
            b.config,
            b.store,
            b.sends.router,
            b.sends.finish,
            b.access if b.access is not None and b.access.is_enabled else None,
            b.latency,
            b.server.scheduler,
            b.now_ms,
        )
        b.compiled.write_templates(b.sends.suffix.encode())
        b.compiled.open()
        b.at_stop(b.compiled.close)

    def reads_all(self) -> bool:
        return self._parts.store.readable_end >= self._parts.opened_end

    def facts(self) -> Facts:
        b, config = self._parts, self._parts.config
        return {
            "role": config.broker_role,
            "slaves_waited_for": config.acks_needed,
            "ha_port": b.ha_port,
        }

    def release_locks(self) -> LockTable | None:
        gate, b = self._lock_gate, self._parts
        if gate is None or not gate.is_open:
            return None
        gate.close()
        return b.locks.table(b.now_ms(), b.config.broker_name, self._epoch)

    # --- inside ---------------------------------------------------------------------------------

    def _make_acks(self, ha: HaMaster) -> Acks:
        """The object that decides how far slaves acknowledge the log."""
        return self._parts.counted_acks(ha)

    def _compile(self) -> None:
        """Have machine code made, which the first message loads."""
        b = self._parts
        if b.config.compiled_sends:
            b.engine.start()
            b.idle_end = b.store.log_end

    def _revivals(self) -> Iterator[object]:
        """A round of revival of popped messages, in parts."""
        return iter(self._parts.pop.revive.run, False) if self.reads_all() else iter(())

    def _transaction_checks(self) -> Iterator[object]:
        """A round of checks, in parts."""
        b, now_ms = self._parts, self._parts.now_ms()
        if not self.may_deliver():
            return iter(())
        return iter(lambda: b.transactions.check(now_ms), False)

    def _take_locks(self, table: LockTable) -> None:
        """Take all locks that the master before gave, so that others can be given from now on."""
        gate, b = self._lock_gate, self._parts
        if gate is not None and gate.is_opening and not gate.is_open:
            b.locks.restore(table, b.now_ms())
            gate.close()
            gate.open(after_ms=0)

    async def _leave_locks(self) -> None:
        """Keep the locks for the next start."""
        released = self.release_locks()
        if released is not None:
            self._left_locks.leave(released)
