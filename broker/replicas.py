"""What a broker does besides its log because it is one of several with its name.

A slave copies tables, and may stand in for its master; a master takes back what an acting master
did. Each function prepares that, sets its gates, and returns its rows of the request table.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from ..protocol.aio.connection import Row
from ..protocol.aio.peers import Peers
from ..protocol.headers.admin import HaAddresses
from .access.gates import RequestGates
from .acting.acting import ActingMaster
from .acting.due_work import DueWork
from .acting.escape import Escape
from .acting.handlers import PairHandlers, relayed
from .acting.members import Members
from .acting.pair_locks import PairLocks
from .acting.replica import PairReplica
from .acting.returning import ReturningMaster, Tables
from .acting.taking import TakenTimers
from .acting.timers import ActingTimers
from .groups.queue_lock_gate import CLIENT_LOCK_MS, QueueLockGate
from .groups.queue_locks import LeftLocks
from .member.following import MemberReplica
from .replication.following_timers import FollowingTimers
from .replication.master import HaMaster
from .replication.replica import Replica
from .replication.slave import HaSlave
from .replication.synchronize import ALL_MS, SlaveSynchronize
from .runtime.peers import open_peers

if TYPE_CHECKING:
    from .server import Broker

SWEEP_SECONDS = 1.0
# Between two copies in controller mode: of all tables, and of the offsets of groups.
MEMBER_ALL_MS, MEMBER_OFFSETS_MS = 10_000, 2_500


def follow(broker: "Broker", gates: RequestGates) -> list[Row]:
    """Start a slave's work besides following the log."""
    b, config, member, slave = broker, broker.config, broker.membership, broker.ha_slave
    assert slave is not None
    assert b.timers is None or isinstance(b.timers, FollowingTimers)
    may_lead = member is not None or config.has_acting_master
    peers = open_peers(config)
    b.at_stop(peers.close)
    sync = SlaveSynchronize(
        peers, b.address, b.topics, b.groups, b.offsets, b.delays, b.pop.modes, b.timers,
        lambda: b.store.whole_end, b.now_ms,
        *((MEMBER_ALL_MS, MEMBER_OFFSETS_MS) if may_lead else (ALL_MS, ALL_MS)),
        config.has_acting_master,
    )  # fmt: skip
    replica: Replica
    if member is not None:
        replica = MemberReplica(sync, slave, b.wake_all, member.role, peers)
    elif config.has_acting_master:
        replica = PairReplica(sync, slave, b.wake_all, config, peers)
    else:
        replica = Replica(sync, slave, config.ha_master_address, b.wake_all)
    b.replica = replica
    b.periodic.start(replica.run(), "replica")
    b.periodic.every(SWEEP_SECONDS, replica.sweep)
    gates.master = replica.master
    return _act(b, gates, replica, slave, peers) if isinstance(replica, PairReplica) else []


def _act(
    broker: "Broker", gates: RequestGates, replica: PairReplica, slave: HaSlave, peers: Peers
) -> list[Row]:
    """Prepare to stand in for the master."""
    b, config, timers = broker, broker.config, broker.timers
    assert timers is None or isinstance(timers, ActingTimers)
    escape = Escape(config, peers)
    due_work = DueWork(
        escape, b.delays, timers, b.walk_transactions, config.timer_precision_ms,
        f"InnerProducerGroup_{config.broker_name}_{config.broker_id}", b.now_ms,
    )  # fmt: skip
    locks = _pair_locks(b)
    members = Members(config, peers, b.address)
    b.acting = acting = ActingMaster(
        config, b.address, members, slave, replica,
        (b.offsets, b.delays, *(() if timers is None else (timers.state,))),
        locks, due_work if config.enable_remote_escape else None, b.settle_due, b.alive_ms,
    )  # fmt: skip
    b.at_stop(acting.stop)
    b.periodic.every(config.broker_heartbeat_interval / 1000, members.report)

    def live_master() -> str:
        return replica.master() if replica.is_master_there() else ""

    gates.relayed = partial(relayed, peers, live_master)
    gates.locks = locks.gate.refusal
    return _pair_handlers(b, acting.look, acting.returning, locks).rows()


def take_back(
    broker: "Broker", gates: RequestGates, left: LeftLocks, *, knows_locks: bool
) -> list[Row]:
    """Prepare a master to take back what an acting master did. `left` and `knows_locks` are as in
    `ReturningMaster`."""
    b, config, timers = broker, broker.config, broker.timers
    assert isinstance(b.ha, HaMaster)
    peers = open_peers(config)
    b.at_stop(peers.close)
    members = Members(config, peers, b.address)
    locks = _pair_locks(b)
    taken = None
    if timers is not None:
        taken = TakenTimers(config, b.store, timers.state, timers.metrics, b.wake, b.stats)
    b.returning = ReturningMaster(
        locks, config, b.address, b.ha_address, members, peers, b.store, b.ha,
        Tables(b.offsets, b.delays, taken, b.save_offsets), b.alive_ms, b.now_ms,
        left, knows_locks,
    )  # fmt: skip
    b.periodic.every(config.broker_heartbeat_interval / 1000, members.report)
    gates.locks = locks.gate.refusal
    return _pair_handlers(b, lambda: None).rows()


def _pair_locks(broker: "Broker") -> PairLocks:
    # A third broker acts up to brokerNotActiveTimeoutMillis before the others know, and gives its
    # first lock after CLIENT_LOCK_MS.
    return PairLocks(
        QueueLockGate(broker.lock_gate_ms), broker.locks, broker.config.broker_name,
        broker.lock_gate_ms, broker.now_ms,
        CLIENT_LOCK_MS - broker.config.broker_not_active_timeout_millis,
    )  # fmt: skip


def _pair_handlers(
    broker: "Broker",
    look: Callable[[], None],
    returning: Callable[[HaAddresses], Awaitable[None]] | None = None,
    locks: PairLocks | None = None,
) -> PairHandlers:
    return PairHandlers(broker.store, broker.address, broker.ha_address, look, returning, locks)
