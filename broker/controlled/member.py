"""One member of a broker name in controller mode: a broker that is made again for each role.

    member = Member(config, Broker)
    await member.start()
    ...
    await member.stop()

A member begins as a slave without a master: it takes no messages and isn't registered. It gets its
id from the controllers, reports its log to all of them, and asks the leader each second which
broker is the master. When the master has changed, the broker stops, which closes all connections of
clients, and a new one starts on the same store and the same ports in its new role.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from ...protocol import codes
from ...protocol.aio.clocks import monotonic_ms, wall_ms
from ...protocol.aio.connection import host_text
from ...protocol.headers.controller import ControllerHeartbeat
from ...store.base.errors import StoreError
from ...store.engine.store import MessageStore
from ..groups.queue_locks import LeftLocks, LockTable
from ..replication.log_position import LogPosition
from ..replication.sync_state import SyncState
from ..runtime.peers import open_peers
from ..runtime.syncer import Syncer
from ..settings.config import SLAVE, SYNC_MASTER, BrokerConfig
from ..settings.ha_addresses import resolved
from .authority import Authority
from .controllers import Controllers, NoLeaderError
from .disk_watch import DiskWatch
from .election import Election
from .identity import Identity, IdentityFiles
from .leader import Declined, Leader
from .lock_handover import LockHandover
from .others import may_lead_again, refuse_twin, refuse_usurped
from .ports import Ports

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Membership:
    """The `election` that gives one broker its role, for as long as that broker lives.

    `alter(members)` proposes another sync state set to the controller, and returns once it is
    answered. `poll_leader()` has the leader polled for the last election now. `replicas()` are the
    replicas that the leader knows, by id, each with its address. `now_ms` is a monotonic clock.
    `since_ms` is when the role was taken, since 1970; `switches` counts the roles since the start.
    `handover` has the locks of the master before.
    """

    election: Election
    ports: Ports
    authority: Authority
    now_ms: Callable[[], int]
    alter: Callable[[frozenset[int]], Awaitable[None]]
    poll_leader: Callable[[], None]
    replicas: Callable[[], Mapping[int, str]]
    handover: LockHandover
    since_ms: int
    switches: int


START_SECONDS = 10.0  # how long a start waits for the first role
APPLICATIONS = 5  # in a row, before a pause
HAND_OVER_SECONDS = 2.0  # a stop waits for the election of another master
DRAIN_SECONDS = 0.5  # how long responses to sends may take before the role is handed over


class MemberRole(Protocol):
    """The methods of a broker's role that its member uses (`roles/role`)."""

    def refuse_changes(self, reason: str) -> None: ...
    def take_sync_set(self, members: Iterable[int], set_epoch: int) -> None: ...
    def release_locks(self) -> LockTable | None: ...


class MemberBroker(Protocol):
    """The attributes and methods of a broker that its member uses (`Broker`)."""

    store: MessageStore
    syncer: Syncer
    sync_state: SyncState | None

    @property
    def role(self) -> MemberRole: ...
    @property
    def log_position(self) -> LogPosition: ...
    async def start(self) -> None: ...
    async def leave(self, reason: str) -> None: ...


OneBroker = TypeVar("OneBroker", bound=MemberBroker)


class Member(Generic[OneBroker]):
    """A broker whose role the controllers decide. `broker` is None while its role changes."""

    def __init__(
        self,
        config: BrokerConfig,
        make: Callable[..., OneBroker],
        now_ms: Callable[[], int] = monotonic_ms,
        wall_ms: Callable[[], int] = wall_ms,
        open_ports: Callable[[BrokerConfig], Ports] = Ports,
    ) -> None:
        """`make(config, membership=…)` makes a broker that is not started. `now_ms` is a monotonic
        clock, `wall_ms` the time since 1970."""
        self.config = config
        self.election = Election(0)
        self.broker: OneBroker | None = None
        self._old: OneBroker | None = None  # one that is being stopped
        self._switches = 0  # since the start
        self._replicas: dict[int, str] = {}  # that the leader knows, with their addresses
        self._make = make
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._open_ports = open_ports
        self._files = IdentityFiles(
            config.store_dir, config.broker_cluster_name, config.broker_name
        )
        self._identity: Identity | None = None
        self._is_registered = False
        self._authority = self._new_authority()
        self._disk: DiskWatch | None = None
        self._released: LockTable | None = None  # the locks that the last broker gave
        self._sending: asyncio.Task[None] | None = None  # them to the next master
        self._news = asyncio.Event()  # the leader is to be asked now
        self._has_role = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._at_close = AsyncExitStack()  # closes what the start has opened
        self._log_position = LogPosition(0, 0, 0)  # when the store was open last
        self._open_ms = self._started_ms = now_ms()  # when a broker was there last
        self._may_lack_end = False  # of the log: a crash came before, and not each byte was synced
        self._fault = ""
        self._stops = False

    @property
    def address(self) -> str:
        """The address of this broker for clients, as "host:port"."""
        return host_text((self.config.broker_ip1, self.ports.port))

    async def start(self) -> None:
        """Open the ports and the store, and take the first role if a controller names one soon.

        StoreError or OSError with one readable sentence.
        """
        config = self.config
        self._identity = self._files.load()
        try:
            self.ports = self._open_ports(config)
            self._at_close.callback(self.ports.close)
            self._peers = open_peers(config)
            self._at_close.push_async_callback(self._peers.close)
            if self.address in config.controllers:
                raise OSError(
                    f"controllerAddr names {self.address}, which is this broker; name a controller"
                )
            left = LeftLocks(config.store_dir / "config" / "queueLocks.json")
            self._handover = LockHandover(config.broker_name, left, self._peers, self._wall_ms)
            self.controllers = Controllers(config.controllers, self._peers)
            self._leader = Leader(
                self.controllers, config.broker_cluster_name, config.broker_name, self._wall_ms
            )
            self._handover.load()
            await self._open(Election(0 if self._identity is None else self._identity.broker_id))
            if self.broker is not None:
                self._may_lack_end = not self.broker.store.is_whole
        except BaseException:
            await self._close()
            raise
        self._tasks.append(asyncio.create_task(self._run(), name="member"))
        with suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                await self._has_role.wait()

    async def stop(self, *, hand_over: bool = True) -> None:
        """Have another master elected if this one can be replaced, then stop as a broker does."""
        self._stops = True
        await self._end_tasks()
        broker = self.broker
        if broker is not None and self.election.is_master and hand_over:
            await self._give_away(broker)
        await self._close()

    def poll_leader(self) -> None:
        """Ask the leader for the last election now."""
        self._news.set()

    # --- the role -------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._stops:
            self._news.clear()
            try:
                await self._round()
            except NoLeaderError:
                pass  # it is logged once
            except Declined as wrong:
                self._tell(f"the controller declined: {wrong}")
            except (OSError, StoreError) as wrong:
                self._tell(str(wrong))
            except Exception:
                log.exception("asking for the role failed; it is tried again")
            else:
                self._fault = ""
            with suppress(TimeoutError):
                async with asyncio.timeout(self.config.sync_broker_metadata_period / 1_000):
                    await self._news.wait()

    async def _round(self) -> None:
        """Learn of the last election from the leader, and act on it."""
        if self._identity is None:
            self._identity = await self._join()
        own_id = self._identity.broker_id
        if len(self._tasks) == 1:
            self._begin_heartbeats()
        self._watch_disk()
        asked_ms = self._now_ms()
        if not self._is_registered:
            election = await self._register(self._identity)
            if not election.has_master:
                if self.election.epoch:
                    return  # its answer names only a live master; the next round asks for more
                await self.controllers.ask(codes.BROKER_HEARTBEAT, self._beat(own_id))
                election = await self._leader.elect(own_id)
        else:
            try:
                election = await self._leader.election(own_id)
            except Declined as wrong:
                if wrong.code == codes.CONTROLLER_BROKER_METADATA_NOT_EXIST:
                    self._is_registered = False
                raise
            refuse_usurped(election, self.address)
        await self._take(election, asked_ms)

    async def _take(self, election: Election, asked_ms: int) -> None:
        """Act on the election that the leader reports; an older one is ignored."""
        known = self.election
        if election.epoch >= known.epoch and not election.has_master:
            election = await self._leader.elect(election.own_id)
        if election.epoch < known.epoch:
            self._is_registered = False  # a controller that has lost its state may not know it
            return
        if not election.has_master:
            return
        if election.is_master:
            with suppress(Declined):
                found = await self._leader.replicas()
                self._replicas = {each: await resolved(found[each]) for each in found}
        if not known.epoch and not await self._may_lead_again(election):
            return
        if election.epoch > known.epoch or self.broker is None:
            await self._open(election)
            self._has_role.set()
        elif election.is_master and not self._hangs_ms:
            self._authority.named(asked_ms)
            state = self.broker.sync_state
            if state is not None and election.set_epoch >= state.set_epoch:
                self.broker.role.take_sync_set(election.members, election.set_epoch)
        elif election.is_master:
            await self._lose_hanging()

    async def _may_lead_again(self, election: Election) -> bool:
        """True if this broker may take its first role since the start."""
        if self.broker is None or not (election.is_master and self._may_lack_end):
            return True
        waited_ms = self._now_ms() - self._started_ms
        limit_ms = self.config.controller_heart_beat_timeout_mills
        is_late = waited_ms >= limit_ms
        position = self.broker.log_position
        if await may_lead_again(self._leader, self._peers, election, position, is_late=is_late):
            return True
        self._tell(
            f"{election}, but it has crashed, and its log, which ends at {position.end}, may lack "
            f"the end; another member of the sync state set {sorted(election.members)} with a "
            "longer log is to be the master, and members that don't answer are waited for up to "
            f"{limit_ms} ms"
        )
        return False

    async def _open(self, election: Election) -> None:
        """Stop the present broker, and start one in the role that this election gives it."""
        if election.epoch:
            log.warning("%s; broker %d takes its role", election, election.own_id)
        await self._leave(f"{election}; this broker changes its role")
        self._hand_over_locks(election)
        self._authority = self._new_authority(election.own_id)
        self._switches += 1 if election.epoch else 0
        membership = Membership(
            election,
            self.ports,
            self._authority,
            self._now_ms,
            self._alter,
            self.poll_leader,
            lambda: self._replicas,
            self._handover,
            self._wall_ms(),
            self._switches,
        )
        broker = self._make(_in_role(self.config, election), membership=membership)
        await broker.start()
        self.broker, self.election = broker, election
        self._disk = DiskWatch(self._authority.limit_ms, self._now_ms)
        if election.epoch:
            log.warning("broker %d is the %s now", election.own_id, _word(election))

    async def _leave(self, reason: str) -> None:
        """Stop the present broker, or go on with a stop that was interrupted."""
        if self.broker is not None:
            self._old, self.broker = self.broker, None
            self._released = self._old.role.release_locks()
        if self._old is not None:
            await self._old.leave(reason)
            self._old = None

    def _hand_over_locks(self, election: Election) -> None:
        """Send the locks of the broker that has ended to the elected master."""
        released, self._released = self._released, None
        self._handover.switch(self.election, election)
        if released is None or not election.has_master:
            return
        if election.is_master:
            self._handover.come(released)
        else:
            send = self._handover.send(election.master_address, released)
            self._sending = asyncio.create_task(send, name="locks")

    async def _alter(self, wanted: frozenset[int]) -> None:
        """Propose another sync state set, and tell the broker which set is valid."""
        broker = self.broker
        state = None if broker is None else broker.sync_state
        if broker is None or state is None:
            return
        try:
            members, set_epoch = await self._leader.alter(self.election, wanted, state.set_epoch)
        except Declined as wrong:
            log.warning("the controller declined the sync state set %s: %s", sorted(wanted), wrong)
            if wrong.code == codes.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED:
                state.is_lost = False  # one of RocketMQ's has this set already, and says no more
            self.poll_leader()
            return
        if broker is self.broker and set_epoch > state.set_epoch:
            broker.role.take_sync_set(members, set_epoch)

    # --- joining --------------------------------------------------------------------------------

    async def _join(self) -> Identity:
        """Get an id of this broker's own, or go on with the application that is under way."""
        for _ in range(APPLICATIONS):
            application = self._files.load_application()
            if application is None:
                application = self._application(await self._leader.next_id())
                self._files.save_application(application)
            try:
                await self._leader.apply(application)
            except Declined as wrong:
                if wrong.code != codes.CONTROLLER_BROKER_ID_INVALID:
                    raise
                self._files.drop_application()  # another broker was quicker
                await asyncio.sleep(random.random())  # noqa: S311
                continue
            return self._files.accept(application)
        raise NoLeaderError("other brokers got every id that was applied for")

    async def _register(self, identity: Identity) -> Election:
        group = await self._leader.group()
        await refuse_twin(self._peers, group, identity, self.address)
        try:
            election = await self._leader.register(identity.broker_id, self.address)
        except Declined as wrong:
            if wrong.code != codes.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                raise
            # The controller has lost its state, or this member was removed from it.
            await self._leader.apply(self._application(identity.broker_id))
            log.warning("broker %d is a member again", identity.broker_id)
            election = await self._leader.register(identity.broker_id, self.address)
        self._is_registered = True
        return election

    def _application(self, broker_id: int) -> Identity:
        config = self.config
        code = f"{self.address};{self._wall_ms()}"
        return Identity(config.broker_cluster_name, config.broker_name, broker_id, code)

    # --- heartbeats and the disk ----------------------------------------------------------------

    def _begin_heartbeats(self) -> None:
        seconds = self.config.broker_heartbeat_interval / 1_000
        for address in self.config.controllers:
            beat = self.controllers.beat(address, seconds, self._heartbeat)
            self._tasks.append(asyncio.create_task(beat, name=f"heartbeat-{address}"))

    def _heartbeat(self) -> ControllerHeartbeat | None:
        """The next heartbeat; None while there is no broker, or its disk hangs."""
        is_away = self._now_ms() - self._open_ms >= self._authority.limit_ms
        if self._identity is None or self._hangs_ms or (self.broker is None and is_away):
            return None
        return self._beat(self._identity.broker_id)

    def _beat(self, own_id: int) -> ControllerHeartbeat:
        config = self.config
        if self.broker is not None:
            self._log_position = self.broker.log_position
            self._open_ms = self._now_ms()
        return ControllerHeartbeat(
            config.broker_cluster_name,
            self.address,
            config.broker_name,
            own_id,
            *self._log_position,
            config.controller_heart_beat_timeout_mills,
            config.broker_election_priority,
        )

    @property
    def _hangs_ms(self) -> int:
        return 0 if self._disk is None else self._disk.hangs_ms

    def _watch_disk(self) -> None:
        if self.broker is not None and self._disk is not None:
            store = self.broker.store
            self._disk.see(store.written_end, store.durable_end)

    async def _lose_hanging(self) -> None:
        """Have another member elected, because this master's disk hangs."""
        assert self.broker is not None
        self._tell(
            f"the disk has taken no sync for {self._hangs_ms} ms, the limit is "
            f"{self._authority.limit_ms}; another member is to be the master"
        )
        await self._elect_another(self.broker)

    # --- the end --------------------------------------------------------------------------------

    async def _give_away(self, broker: MemberBroker) -> None:
        """Have another member elected before this master stops."""
        broker.role.refuse_changes("this master is stopping, another broker takes its place")
        with suppress(TimeoutError, NoLeaderError):
            async with asyncio.timeout(HAND_OVER_SECONDS):
                await broker.syncer.drain(DRAIN_SECONDS)
                election = await self._elect_another(broker)
                locks = broker.role.release_locks()
                if locks is not None and election is not None:
                    await self._handover.send(election.master_address, locks)
                elif locks is not None and self._is_alone(broker):
                    self._handover.leave(locks)

    def _is_alone(self, broker: MemberBroker) -> bool:
        """True if no other broker can be elected."""
        state = broker.sync_state
        return state is not None and state.counted() <= {self.election.own_id}

    async def _elect_another(self, broker: MemberBroker) -> Election | None:
        """Have the first live one of the other members of the set elected, if there is one."""
        state = broker.sync_state
        if state is None:
            return None
        reports = state.last_report_ms
        others = state.members - {self.election.own_id}
        for one in sorted(others, key=lambda each: reports.get(each, 0), reverse=True):
            try:
                election = await self._leader.hand_over(self.election.own_id, one)
            except Declined as wrong:
                log.warning("broker %d does not become the master: %s", one, wrong)
                continue
            log.warning("%s; it was this broker", election)
            return election
        return None

    async def _close(self) -> None:
        await self._leave("this broker stops")
        await self._at_close.aclose()

    async def _end_tasks(self) -> None:
        tasks = self._tasks if self._sending is None else [*self._tasks, self._sending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _new_authority(self, own_id: int = 0) -> Authority:
        return Authority(own_id, self.config.controller_heart_beat_timeout_mills, self._now_ms)

    def _tell(self, fault: str) -> None:
        """Log a fault, unless it is the same as the last time."""
        if fault != self._fault:
            self._fault = fault
            log.error("%s; it is tried again", fault)


def _in_role(config: BrokerConfig, election: Election) -> BrokerConfig:
    """The settings of a broker in the role that this election gives it."""
    if not election.epoch:  # no name server may send clients to it
        config = msgspec.structs.replace(config, namesrv_addr="")
    if election.is_master:
        return msgspec.structs.replace(config, broker_role=SYNC_MASTER, broker_id=0)
    return msgspec.structs.replace(config, broker_role=SLAVE, broker_id=max(1, election.own_id))


def _word(election: Election) -> str:
    return "master" if election.is_master else f"slave of {election.master_address}"
