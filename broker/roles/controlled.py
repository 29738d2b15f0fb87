"""Master and slave in controller mode. The role is for life: after an election another broker is
made on the same store."""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from datetime import datetime

from ...protocol.aio.connection import Row
from ...protocol.aio.peers import Peers
from ...protocol.bodies.topic import TopicConfig
from ..access.gates import RequestGates
from ..controlled.handlers import MemberHandlers
from ..controlled.member import Membership
from ..groups.queue_locks import CLIENT_LOCK_MS, QueueLockGate
from ..replication.auto_switch_slave import RETRY_SECONDS, SWEEP_SECONDS, AutoSwitch
from ..replication.master import HaMaster
from ..replication.replica import ElectedMaster, Replica
from ..replication.slave import HaSlave
from ..replication.sync_set_acks import SyncSetAcks
from ..replication.sync_state import SyncState
from ..replication.synchronize import (
    LEADING_ALL_MS,
    LEADING_OFFSETS_MS,
    SlaveSynchronize,
)
from ..runtime.periodic import Job
from ..topics.topics import QUEUES_MAX, READ_WRITE, Topics
from .master import Master
from .parts import Parts
from .role import Facts
from .slave import Slave

log = logging.getLogger(__name__)

AUTHORITY_SECONDS = 0.1  # how late a master without authority may refuse a send
AUTHORITY = "authority"  # the cause of a pause of the log


class ControlledMaster(Master):
    """A master that takes changes with authority only, and confirms what its set has."""

    needs_authority = True
    _sync_state: SyncState
    _acks: SyncSetAcks

    def __init__(self, parts: Parts, membership: Membership) -> None:
        super().__init__(parts)
        self._member = membership
        self._epoch = membership.election.epoch
        self._ha_ms = membership.now_ms
        self._leaving = ""  # why changes are refused for good

    def open(self, slaves: asyncio.Server) -> None:
        """Begin the epoch of this master, before its first message."""
        b, election = self._parts, self._member.election
        b.sync_state = self._sync_state = SyncState(election.members, election.set_epoch)
        b.store.begin_epoch(election.epoch)
        super().open(slaves)

    def make_parts(self, gates: RequestGates) -> list[Row]:
        b, member = self._parts, self._member
        self._lock_gate = gate = QueueLockGate(member.now_ms)
        gates.locks = gate.refusal
        # The master before this one may give locks until its authority ends.
        is_first = b.is_new and self._epoch == 1
        gate.open(after_ms=0 if is_first else member.authority.limit_ms + CLIENT_LOCK_MS)
        member.handover.ask(self._take_locks)
        return member_rows(b, member)

    async def prepare(self) -> None:
        """Make a topic for each queue of the log that lacks one, and register as the newest
        master."""
        b = self._parts
        made = add_missing(b.topics, b.store.queue_keys())
        if made:
            log.warning("topics that only the log knew: %s", ", ".join(made))
        b.topics.begin_epoch(self._epoch)
        await super().prepare()

    def jobs(self) -> Iterator[Job]:
        yield from super().jobs()
        yield Job(AUTHORITY_SECONDS, self._check_authority)

    def change_refusal(self) -> str | None:
        state = self._sync_state
        return self._leaving or self._member.authority.refusal(
            state.counted(), state.last_report_ms
        )

    def refuse_changes(self, reason: str) -> None:
        self._leaving = reason
        self._check_authority()

    def take_sync_set(self, members: Iterable[int], set_epoch: int) -> None:
        self._acks.apply(members, set_epoch)

    def facts(self) -> Facts:
        return super().facts() | member_facts(self._member, self._sync_state)

    def note(self) -> str | None:
        return self.change_refusal()

    # --- inside ---------------------------------------------------------------------------------

    def _make_acks(self, ha: HaMaster) -> SyncSetAcks:
        b, member = self._parts, self._member
        self._acks = SyncSetAcks(
            ha,
            broker_id=member.election.own_id,
            state=self._sync_state,
            alter=member.alter,
            replicas=member.replicas,
            all_ack=bool(b.config.all_ack_in_sync_state_set),
            on_acked=lambda end: b.syncer.replicated(end),
            on_confirmed=b.wake_all,
        )
        return self._acks

    def _check_authority(self) -> None:
        """Pause the store while this master has no authority, so that it stores nothing, of its
        clients or of its own."""
        why = self.change_refusal()
        store = self._parts.store
        if why is None:
            store.resume(AUTHORITY)
        elif AUTHORITY not in store.paused:
            log.warning("%s", why)
            store.pause(AUTHORITY, why)


class ControlledSlave(Slave):
    """A slave that follows the elected master, and may be elected at any moment."""

    takes_slaves = False  # they follow only a master, and find out when they are refused
    _all_ms, _offsets_ms = LEADING_ALL_MS, LEADING_OFFSETS_MS
    _sweep_seconds = SWEEP_SECONDS

    def __init__(self, parts: Parts, membership: Membership) -> None:
        super().__init__(parts)
        self._member = membership

    def facts(self) -> Facts:
        return super().facts() | member_facts(self._member, None)

    # --- inside ---------------------------------------------------------------------------------

    def _make_follower(self) -> HaSlave:
        b = self._parts
        switch = AutoSwitch(
            self._member.election.own_id, self._on_cut, b.wake_all, lambda end: b.syncer.reach(end)
        )
        return HaSlave(
            b.config,
            b.store,
            b.alive_ms,
            self._on_followed,
            switch.connection,
            retry_seconds=RETRY_SECONDS,
        )

    def _make_replica(self, sync: SlaveSynchronize, peers: Peers) -> Replica:
        elected = ElectedMaster(self._member.election.master_address, peers)
        return Replica(sync, self._follower, self._parts.wake_all, elected=elected)

    def _make_own_parts(self, gates: RequestGates, peers: Peers) -> list[Row]:
        gates.locks = QueueLockGate(self._member.now_ms).refusal
        return member_rows(self._parts, self._member)

    def _may_compile(self) -> bool:
        return self._member.election.epoch > 0 and super()._may_compile()

    def _on_cut(self, _: int) -> None:
        """Cut the tables after the end of the log was cut, which the new master never had."""
        b = self._parts
        b.offsets.cut_at(b.store.next_offset)
        b.delays.cut_at_log()
        if b.timers is not None:
            b.timers.state.cut_at_log()


def member_rows(b: Parts, member: Membership) -> list[Row]:
    """The requests that only a broker in controller mode serves."""
    return MemberHandlers(
        b.config, b.store, b.address, b.ha_address, member.poll_leader, member.handover
    ).rows()


def member_facts(member: Membership, state: SyncState | None) -> Facts:
    """The last election, and the set that this broker knows."""
    election = member.election
    number, ids = (
        (election.set_epoch, election.members)
        if state is None
        else (state.set_epoch, state.members)
    )
    return {
        "broker_id": election.own_id,
        "master_id": election.master_id if election.has_master else None,
        "master": election.master_address if election.has_master else None,
        "master_epoch": election.epoch,
        "sync_state_set": sorted(ids),
        "sync_state_set_number": number,
        "slaves_that_report": [] if state is None else sorted(state.last_report_ms),
        "last_switch": datetime.fromtimestamp(member.since_ms / 1_000).astimezone().isoformat(),
        "switches": member.switches,
    }


def add_missing(topics: Topics, queues: Iterable[tuple[str, int]]) -> list[str]:
    """Create the topics of these queues (topic, queue id) that the table lacks; their names.

    A slave may be promoted before it has copied a new topic.
    """
    counts: dict[str, int] = {}
    for topic, queue_id in queues:
        if topics.get(topic) is None and queue_id < QUEUES_MAX:
            counts[topic] = max(counts.get(topic, 0), queue_id + 1)
    if counts:
        topics.put_all(
            [TopicConfig(name, count, count, READ_WRITE) for name, count in sorted(counts.items())]
        )
    return sorted(counts)
