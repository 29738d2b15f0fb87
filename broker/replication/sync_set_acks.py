"""Slaves in controller mode: they are known by their controller ids, and the sync state set counts.

A slave says its id, gets the epochs of this log, cuts its own log where the two part, and then
gets the rest. The log is confirmed as far as every broker that counts has it: the members of the
sync state set that the controller has confirmed, and of the one that it was asked for. The set is
the controller's decision; `SetKeeper` proposes it, by how far the slaves have followed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import cast

from ...protocol.ha_auto_switch import (
    EPOCHS_MAX,
    NO_EPOCH,
    MasterHello,
    SlaveHello,
    SlaveStream,
    chunk_head,
)
from ..settings.config import SLAVES_MAX
from ..settings.ha_addresses import is_allowed, networks_of
from .master import HaMaster, LogSender
from .set_keeper import SetKeeper, Standing
from .sync_state import SyncState, confirmed_end

log = logging.getLogger(__name__)

HEARTBEAT_MS = 1_000  # at most, between two packets; haSendHeartbeatInterval may be less
ALIVE_MS = 3_000  # a slave that was heard within this time keeps its id for itself
FROZEN_MS = 2_000  # without a sweep: the process stood still (SIGSTOP, a paused machine)
THAW_MS = 1_000  # after that, what slaves said meanwhile is still being read
CAUSE = "replicas"  # of the pause while the sync state set is too small

Alter = Callable[[frozenset[int]], Awaitable[None]]
# The replicas of this broker name by controller id, each with its address "host:port".
Replicas = Callable[[], Mapping[int, str]]


class SyncSetAcks:
    """`state` has the sync state set and `confirm_offset`, which moves as slaves report."""

    hears_each_end = True  # also alone it confirms the log

    def __init__(
        self,
        ha: HaMaster,
        *,
        broker_id: int,
        state: SyncState,
        alter: Alter,
        replicas: Replicas,
        all_ack: bool,
        on_acked: Callable[[int], None],
        on_confirmed: Callable[[], None],
    ) -> None:
        """`broker_id` is the controller id of this broker, whose epoch the store has begun.

        `alter(set)` asks the controller for this sync state set (1001), with the `set_epoch` of
        `state`. It returns when the controller has answered, and raises when there was no answer.
        `apply` tells the answer; `alter` may call it. Until then the proposed set counts as well.
        `replicas` are the replicas that the controller knows: other ids are refused. `all_ack` is
        allAckInSyncStateSet; without it inSyncReplicas counts, and all of the log is confirmed.

        `on_acked(end)` is called when messages before another end may be acknowledged,
        `on_confirmed()` when more of the log may be read.
        """
        self.broker_id = broker_id
        self.state = state
        self.acked = 0  # messages before this log offset may be acknowledged
        self.replicas = replicas
        self._ha = ha
        self._store = ha.store
        self._all_ack = all_ack
        self._on_acked = on_acked
        self._on_confirmed = on_confirmed
        self._keeper = SetKeeper(broker_id, state, alter, ha.now_ms)
        self._swept_ms = ha.now_ms()
        # When the process last went on after it stood still.
        self._thaw_ms = self._swept_ms - THAW_MS

    @property
    def sent_end(self) -> int:
        return self._store.written_end

    def may_come(self, host: str) -> bool:
        networks = networks_of(self._ha.config.ha_allowed_addresses)
        return is_allowed(host, networks, self.replicas().values())

    def connection(self) -> asyncio.Protocol:
        return SlaveLink(self._ha, self)

    def begin(self) -> None:
        self._check_size()
        self.confirm()

    def sent(self) -> None:
        self.confirm()

    def synced(self) -> None:
        self.confirm()

    def sweep(self) -> None:
        """Propose another sync state set where it is time."""
        now = self._ha.now_ms()
        self._note_thaw(now)
        self._swept_ms = now
        self._check_size()
        self.confirm()
        self._propose()

    def lost(self) -> None:
        self._propose()
        self.confirm()

    def in_sync_count(self) -> int:
        return len(self.state.members - {self.broker_id})

    async def stop(self) -> None:
        await self._keeper.stop()

    def apply(self, members: Iterable[int], set_epoch: int) -> None:
        """Take over the sync state set that the controller has confirmed. An older `set_epoch` than
        the last one changes nothing."""
        if self._keeper.apply(frozenset(members), set_epoch):
            self._check_size()
            self.confirm()
            self._propose()

    def confirm(self) -> None:
        """Work out how far the log is confirmed, and report it."""
        end = self._confirmed_end()
        if end is not None:
            self._store.confirm(end)
        confirmed = self._store.confirmed_end
        if confirmed > self.state.confirm_offset:
            self.state.confirm_offset = confirmed
            self._on_confirmed()
        acked = confirmed if self._all_ack else self._acked_by_count()
        if acked > self.acked:
            self.acked = acked
            self._on_acked(acked)

    # ---- for the connections

    def heard(self, slave: "SlaveLink") -> None:
        """Take a slave's report of its end of the log into account.

        A report that waited while this process stood still is old: it is no proof that the slave
        has no newer master.
        """
        now = self._ha.now_ms()
        self._note_thaw(now)
        if now - self._thaw_ms >= THAW_MS:
            self.state.last_report_ms[slave.slave_id] = now
        self._ha.heard()
        self.confirm()
        self._propose()

    def link_of(self, slave_id: int) -> "SlaveLink | None":
        """The connection of this slave."""
        return next((each for each in self._links if each.slave_id == slave_id), None)

    # ---- inside

    @property
    def _links(self) -> "list[SlaveLink]":
        """The slaves that have said their ids, without the connections that gave way to others."""
        links = cast("list[SlaveLink]", self._ha.slaves)  # `connection` makes no other
        return [each for each in links if each.slave_id]

    def _note_thaw(self, now: int) -> None:
        """Note that the process goes on, if it stood still since the last sweep."""
        if now - self._swept_ms >= FROZEN_MS:
            self._thaw_ms = now

    def _confirmed_end(self) -> int | None:
        """The end of the log that every broker that counts has; None when one of them is away."""
        needed = self._keeper.needed()
        if not self._all_ack:
            needed &= {self.broker_id}
        ends = {each.slave_id: each.acked for each in self._links}
        # With SYNC_FLUSH not more than this disk has: what a power cut takes from the master must
        # neither be read on a slave nor make room for another message at its offset.
        end = min(self._store.written_end, self._store.safe_end)
        return confirmed_end(self.broker_id, end, needed, ends)

    def _acked_by_count(self) -> int:
        """The end of the log that inSyncReplicas brokers have, this one included."""
        count = self._ha.config.in_sync_replicas - 1
        ends = sorted((each.acked for each in self._links), reverse=True)
        if count == 0:
            return self._store.written_end
        return ends[count - 1] if len(ends) >= count else self.acked

    def _check_size(self) -> None:
        """Take no messages while the set is too small, as RocketMQ."""
        store, least = self._store, self._ha.config.min_in_sync_replicas
        size = len(self.state.members)
        if size < least:
            store.pause(
                CAUSE,
                f"in-sync replicas not enough: the sync state set has {size} brokers, the limit is "
                f"{least} (minInSyncReplicas); start the others, or lower it",
            )
        elif CAUSE in store.paused:
            store.resume(CAUSE)

    def _propose(self) -> None:
        if self._ha.is_stopped:
            return
        entry = self._store.epochs.entries[-1]
        standings = {
            each.slave_id: Standing(each.acked, each.caught_up_ms, each.is_learner)
            for each in self._links
            if each.acked >= 0
        }
        self._keeper.propose(
            standings,
            self._store.confirmed_end if self._all_ack else 0,
            entry.start_offset,
            self._ha.config.ha_max_time_slave_not_catchup,
        )


class SlaveLink(LogSender):
    """The connection of one slave. `caught_up_ms` is the last time at which it had all that the
    master had."""

    def __init__(self, master: HaMaster, acks: SyncSetAcks) -> None:
        super().__init__(master)
        self._acks = acks
        self.slave_id = 0  # before its handshake
        self.is_learner = False
        self.caught_up_ms = 0
        self._mark = (0, 0)  # an end of the log, and when it was that
        self._stream = SlaveStream()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._is_closed and len(self._master.slaves) > SLAVES_MAX:
            self._refuse(f"{SLAVES_MAX} are connected, which is the limit; stop some of them")

    def sweep(self) -> None:
        self._note_caught_up(self._master.now_ms())
        super().sweep()

    @property
    def is_late(self) -> bool:
        is_there = self._master.now_ms() - self.heard_ms < ALIVE_MS
        return is_there and super().is_late

    @property
    def is_in_sync(self) -> bool:
        return self.slave_id in self._acks.state.members

    # ---- inside

    @property
    def _name(self) -> str:
        return f"{self.slave_id or 'without a handshake'} ({self.address})"

    def _take(self, data: bytes) -> None:
        ends = []
        for packet in self._stream.feed(data):
            if isinstance(packet, SlaveHello):
                self._greet(packet)
            else:
                ends.append(packet)
        if ends and not self._is_closed:
            self._report(ends)

    def _greet(self, hello: SlaveHello) -> None:
        """Answer a handshake with the epochs of this log."""
        master, slave_id = self._master, hello.slave_id
        if self.slave_id and self.slave_id == slave_id and self.next < 0:
            return  # a Java slave says it again while it waits for the answer
        wrong = self._unfit(slave_id)
        if wrong is not None:
            self._refuse(wrong)
            return
        other = self._acks.link_of(slave_id)
        if other is not None:
            log.warning("the slave %d has come again, the connection before goes", slave_id)
            other.slave_id = 0
            other.abort()
        self.slave_id = slave_id
        self.is_learner, self._from_last_file = hello.is_learner, hello.from_last_file
        log.info("the slave %s has connected", self._name)
        entries = master.store.epochs.entries[-EPOCHS_MAX:]
        end, last = master.store.written_end, master.store.epochs.last_epoch
        self._write(MasterHello(end, last, entries).encode())

    def _unfit(self, slave_id: int) -> str | None:
        """The reason why a slave with this id is refused; None when it is accepted."""
        master, acks = self._master, self._acks
        if self.slave_id:
            return f"it says that it is {slave_id} after it has said {self.slave_id}"
        if slave_id <= 0 or slave_id == acks.broker_id:
            return (
                f"its controller id is {slave_id}, and this master is {acks.broker_id}: each "
                "replica has its own, 1 or more; delete its file brokerIdentity, so that the "
                "controller gives it another"
            )
        known = sorted(acks.replicas())
        if slave_id not in known:
            return (
                f"the controller knows no replica {slave_id} of this broker name, only {known}; "
                "let it register with the controller first (controllerAddr)"
            )
        other = self._acks.link_of(slave_id)
        if other is not None and master.now_ms() - other.heard_ms < ALIVE_MS:
            return (
                f"the slave {slave_id} is connected from {other.address} and alive; if these are "
                "two brokers, delete the file brokerIdentity of one, so that it gets its own id"
            )
        return None

    def _report(self, ends: list[int]) -> None:
        """Note the ends of the log that the slave has reported."""
        if not self.slave_id:
            self._refuse("it reports the end of its log without a handshake before")
        elif self._is_behind(max(ends)):
            if self.next < 0:
                self._begin(ends[0])
            self.acked = ends[-1]
            self._note_caught_up(self._master.now_ms())
            self._acks.heard(self)
            self.send()

    def _chunk(self, pieces: list[bytes]) -> int:
        master = self._master
        store, place = master.store, self.next
        entry = store.epochs.epoch_at(place)
        if entry is None:
            return 0
        end = store.epochs.end_of(entry.epoch) or place
        data = store.raw(place, min(master.config.ha_transfer_batch_size, end - place))
        if data:
            pieces += [chunk_head(len(data), place, *entry, self._acks.state.confirm_offset), data]
            self.next = place + len(data)
        return len(data)

    def _heartbeat(self) -> bytes:
        """A chunk without bytes. It names the epoch of the last byte that was sent: a Java slave
        notes what it names, and could not note another epoch that begins at the same place."""
        master = self._master
        entry = master.store.epochs.epoch_at(self.next - 1) or (NO_EPOCH, 0)
        return chunk_head(0, self.next, *entry, self._acks.state.confirm_offset)

    def _heartbeat_ms(self) -> int:
        return min(HEARTBEAT_MS, self._master.config.ha_send_heartbeat_interval)

    def _why_lost(self) -> str | None:
        store = self._master.store
        if self.next >= store.log_start and store.epochs.epoch_at(self.next) is not None:
            return None
        return (
            f"it is to get the log from {self.next} on, which begins at {store.log_start} by now, "
            "or no epoch is known there; delete its store folder, so that it begins anew"
        )

    def _note_caught_up(self, now: int) -> None:
        """Note when the slave last had all that the master had, by an end that is marked and that
        it reports later."""
        if self.acked < 0:
            return
        end = self._master.store.written_end
        if self.acked >= end:
            self.caught_up_ms = now
            self._mark = end, now
        elif self.acked >= self._mark[0]:
            self.caught_up_ms = max(self.caught_up_ms, self._mark[1])
            self._mark = end, now
