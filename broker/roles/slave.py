"""A slave: it follows its master's log, copies its tables, and serves readers meanwhile."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ...protocol.aio.connection import Row
from ...protocol.aio.peers import Peers
from ..access.gates import RequestGates
from ..naming.registration import MasterAddresses
from ..pull.role import PullRole, SlavePullRole
from ..replication.following_timers import Follower, FollowingWork
from ..replication.master import HaMaster
from ..replication.replica import Replica
from ..replication.slave import SWEEP_SECONDS, HaSlave
from ..replication.synchronize import ALL_MS, SlaveSynchronize
from ..runtime.peers import open_peers
from ..runtime.periodic import Job
from ..scheduled.timer_parts import TimerParts, open_timer_parts
from ..scheduled.timers import Timers, TimerWork
from .locks import left_locks, restore_young
from .parts import Parts
from .role import Facts, Role

if TYPE_CHECKING:
    from ..send.fast_path import CompiledSends

REPLICA_SECONDS = 1.0  # how late waiting pulls are sent to a master that is back
FOLLOWS = "message store is in slave mode, so putMessage is forbidden; send to this broker's master"


class Slave(Role):
    """A slave that never acts for its master."""

    _all_ms = _offsets_ms = ALL_MS  # between two copies: of all tables, of the offsets of groups
    _takes_versions = False  # of these tables, which tell whose copy is newer
    _sweep_seconds = SWEEP_SECONDS
    _follower: HaSlave
    _replica: Replica
    _following_timers: Follower | None = None  # they are told the master's progress

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def open(self, slaves: asyncio.Server) -> None:
        b = self._parts
        # Other slaves may follow this one.
        b.ha = HaMaster(b.config, b.store, slaves, b.alive_ms, b.counted_acks)
        b.store.follower.follow(FOLLOWS)
        b.ha_slave = self._follower = self._make_follower()

    def open_timers(self) -> Timers | None:
        b = self._parts
        parts = open_timer_parts(b.config, b.store, b.now_ms, keeps_counts=False)
        return None if parts is None else Timers(parts, self._make_timer_work(parts))

    def pull_role(self) -> PullRole:
        return SlavePullRole(self._parts.config, lambda: self._follower.connected)

    def make_parts(self, gates: RequestGates) -> list[Row]:
        b = self._parts
        peers = open_peers(b.config)
        b.at_stop(peers.close)
        sync = SlaveSynchronize(
            peers,
            b.address,
            b.topics,
            b.groups,
            b.offsets,
            b.delays,
            b.pop.modes,
            self._following_timers,
            lambda: b.store.whole_end,
            b.now_ms,
            self._all_ms,
            self._offsets_ms,
            self._takes_versions,
        )
        b.replica = self._replica = self._make_replica(sync, peers)
        gates.master = self._replica.master
        return self._make_own_parts(gates, peers)

    async def prepare(self) -> None:
        b = self._parts
        b.periodic.start(self._replica.run, "replica")
        await b.ha.start()

    def jobs(self) -> Iterator[Job]:
        yield Job(REPLICA_SECONDS, self._replica.sweep)
        yield Job(self._sweep_seconds, self._follower.sweep)

    async def join(self) -> None:
        b = self._parts
        b.at_stop(b.engine.stop)
        if self._may_compile():
            await b.engine.start_loaded()
        b.at_stop(self._follower.stop)
        await self._follower.start()
        b.at_stop(b.registration.stop)
        await b.registration.start()

    def use_compiled(self, compiled: "type[CompiledSends]") -> None:
        self._parts.store.use(compiled.kernels())  # for the log of its master

    @property
    def on_master(self) -> Callable[[MasterAddresses], None] | None:
        return self._replica.on_master

    def facts(self) -> Facts:
        slave = self._follower
        return {
            "role": "SLAVE",
            "broker_id": self._parts.config.broker_id,
            "follows": slave.master,
            "follows_now": slave.connected,
        }

    def note(self) -> str | None:
        slave, name = self._follower, self._parts.config.broker_name
        if slave.connected:
            return None
        return f"reading only, the master of {name} has been away for {slave.away_seconds} s"

    # --- inside ---------------------------------------------------------------------------------

    def _make_timer_work(self, parts: TimerParts) -> TimerWork:
        """The work of the timers; it is told the master's progress from now on."""
        self._following_timers = work = FollowingWork(parts)
        return work

    def _make_follower(self) -> HaSlave:
        b = self._parts
        return HaSlave(b.config, b.store, b.alive_ms, self._on_followed)

    def _make_replica(self, sync: SlaveSynchronize, peers: Peers) -> Replica:
        b = self._parts
        fixed = b.config.ha_master_address
        return Replica(sync, self._follower, b.wake_all, ha_master_address=fixed)

    def _make_own_parts(self, gates: RequestGates, peers: Peers) -> list[Row]:
        """Make the parts that not all slaves have, after those that all have; returns their rows,
        as `make_parts` does."""
        restore_young(self._parts, left_locks(self._parts))
        return []

    def _may_compile(self) -> bool:
        return self._parts.config.compiled_sends

    def _on_followed(self, keys: Iterable[tuple[str, int]]) -> None:
        """Wake the readers of these queues, for which the master's log brought new messages."""
        b = self._parts
        for key in keys:
            b.long_polls.mark(key)
            if b.topics.get(key[0]) is None:
                self._replica.sync.lacks_topic = True
        if b.long_polls.marked or b.ha.slaves:
            b.server.scheduler.wake()
