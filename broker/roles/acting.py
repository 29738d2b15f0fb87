"""Master and slave with enableSlaveActingMaster: the slave acts for its master while that is away,
and the master takes back what the slave did."""

from collections.abc import Iterator
from functools import partial

from ...protocol.aio.connection import Row
from ...protocol.aio.peers import Peers
from ..access.gates import RequestGates
from ..acting.acting import ActingMaster
from ..acting.due_forwarding import DueForwarding
from ..acting.handlers import PairHandlers, relayed
from ..acting.master_finder import MasterFinder
from ..acting.members import Members
from ..acting.pair_locks import PairLocks
from ..acting.remote_delivery import RemoteDelivery
from ..acting.returning import ReturningMaster, Tables
from ..acting.taking import TakenTimers
from ..acting.timers import ActingWork
from ..groups.queue_locks import CLIENT_LOCK_MS, QueueLockGate
from ..replication.counted_acks import CountedAcks
from ..replication.master import HaMaster
from ..replication.synchronize import LEADING_ALL_MS, LEADING_OFFSETS_MS
from ..runtime.peers import open_peers
from ..runtime.periodic import Job
from ..scheduled.timer_parts import TimerParts
from ..scheduled.timers import TimerWork
from .locks import left_locks, restore_young
from .master import Master
from .parts import Parts
from .slave import Slave


class PairSlave(Slave):
    """A slave that acts for its master while that is away."""

    _all_ms, _offsets_ms = LEADING_ALL_MS, LEADING_OFFSETS_MS
    _takes_versions = True
    _acting: ActingMaster
    _members: Members
    _acting_timers: ActingWork | None = None

    def jobs(self) -> Iterator[Job]:
        yield from super().jobs()
        yield self._members.reports()

    async def join(self) -> None:
        b = self._parts
        await super().join()
        b.periodic.start(lambda: self._acting.run(b.registration.register_all), "acting master")

    def note(self) -> str | None:
        if self._acting.is_acting:
            name = self._parts.config.broker_name
            return f"acting for the master of {name}, which is gone; start it"
        return super().note()

    # --- inside ---------------------------------------------------------------------------------

    def _make_timer_work(self, parts: TimerParts) -> TimerWork:
        b = self._parts
        self._acting_timers = self._following_timers = work = ActingWork(parts, b.wake, b.stats)
        return work

    def _make_own_parts(self, gates: RequestGates, peers: Peers) -> list[Row]:
        b, config, replica = self._parts, self._parts.config, self._replica
        restore_young(b, left_locks(b))
        locks = _locks_of(b)
        self._members = Members(config, peers, b.address)
        timers = self._acting_timers
        b.acting = self._acting = ActingMaster(
            config,
            b.address,
            self._members,
            self._follower,
            replica,
            MasterFinder(replica, config, peers),
            (b.offsets, b.delays, *(() if timers is None else (timers.state,))),
            locks,
            self._due_forwarding(peers, timers) if config.enable_remote_escape else None,
            self._save_progress,
            b.alive_ms,
        )
        b.at_stop(self._acting.stop)

        def live_master() -> str:
            return replica.master() if replica.is_master_there() else ""

        gates.relayed = partial(relayed, peers, live_master)
        gates.locks = locks.gate.refusal
        acting = self._acting
        return PairHandlers(
            b.store, b.address, b.ha_address, acting.poll_name_servers, acting.returning, locks
        ).rows()

    def _due_forwarding(self, peers: Peers, timers: ActingWork | None) -> DueForwarding:
        b, config = self._parts, self._parts.config
        return DueForwarding(
            RemoteDelivery(config, peers),
            b.delays,
            timers,
            b.walk_transactions,
            config.timer_precision_ms,
            f"InnerProducerGroup_{config.broker_name}_{config.broker_id}",
            b.now_ms,
        )

    async def _save_progress(self) -> None:
        """Have the timers' check point say how far they came."""
        b = self._parts
        if b.timers is not None and await b.syncer.reach(b.store.log_end):
            await b.sync_timers()


class PairMaster(Master):
    """A master that takes back what an acting master did: at its start, and after the name servers
    have forgotten it."""

    _returning: ReturningMaster
    _acks: CountedAcks
    _members: Members

    def make_parts(self, gates: RequestGates) -> list[Row]:
        b, config = self._parts, self._parts.config
        knows_locks = restore_young(b, self._left_locks)
        peers = open_peers(config)
        b.at_stop(peers.close)
        self._members = Members(config, peers, b.address)
        locks = _locks_of(b)
        timers = b.timers
        taken = None
        if timers is not None:
            taken = TakenTimers(
                TimerParts(config, b.store, timers.state, timers.metrics, keeps_counts=False)
            )
        b.returning = self._returning = ReturningMaster(
            locks,
            config,
            b.address,
            b.ha_address,
            self._members,
            peers,
            b.store,
            b.ha,
            self._acks.note_alive,
            Tables(b.offsets, b.delays, taken, b.save_offsets),
            b.alive_ms,
            b.now_ms,
            self._left_locks,
            knows_locks,
        )
        gates.locks = locks.gate.refusal
        return PairHandlers(b.store, b.address, b.ha_address, lambda: None).rows()

    def jobs(self) -> Iterator[Job]:
        yield from super().jobs()
        yield self._members.reports()

    async def join(self) -> None:
        b, returning = self._parts, self._returning
        b.at_stop(b.engine.stop)
        b.at_stop(b.registration.stop)
        await returning.come_online()
        b.at_stop(returning.hand_over)  # before the slave learns that it is to act
        await b.registration.start()
        b.periodic.start(lambda: returning.run(b.registration.register_all), "returning master")
        self._compile()

    def may_deliver(self) -> bool:
        return self._returning.is_online

    # --- inside ---------------------------------------------------------------------------------

    def _make_acks(self, ha: HaMaster) -> CountedAcks:
        self._acks = self._parts.counted_acks(ha)
        return self._acks


def _locks_of(b: Parts) -> PairLocks:
    # A third broker acts up to brokerNotActiveTimeoutMillis before the others know, and gives its
    # first lock after CLIENT_LOCK_MS.
    return PairLocks(
        QueueLockGate(b.lock_gate_ms),
        b.locks,
        b.config.broker_name,
        b.lock_gate_ms,
        b.now_ms,
        CLIENT_LOCK_MS - b.config.broker_not_active_timeout_millis,
    )
