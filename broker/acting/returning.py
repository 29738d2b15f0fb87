"""A master whose slave acts for it while it is away.

Before it registers, at its start and after the name servers have forgotten it, it takes offsets and
progress back from the brokers of its name: it tells each where it replicates, waits until the other
follows its log, and asks for its tables and queue locks. Nothing that is due is delivered until
then. Where no answer comes in time it goes on without: what the acting master did is then done once
more. When it stops it hands its queue locks to the broker that acts next.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.bodies.offsets import ConsumerOffsetSerializeWrapper
from ...protocol.bodies.route import MASTER_ID
from ...protocol.codec.frame import FRAME_BYTES_MAX
from ...protocol.errors import Refusal
from ...protocol.headers.admin import HaAddresses
from ...store.base.errors import StoreError
from ...store.engine.store import MessageStore
from ...store.timer.timer_check import NUMBERS, NUMBERS_BYTES
from ..groups.offsets import Offsets
from ..groups.queue_locks import CLIENT_LOCK_MS, LeftLocks, LockTable, send_locks
from ..replication.master import HaMaster
from ..scheduled.delays import DelayOffsets, Delays
from ..settings.config import BrokerConfig
from .members import Group, Members
from .pair_locks import PairLocks
from .taking import TakenTimers, take_delays, take_offsets

log = logging.getLogger(__name__)

ANSWER_SECONDS = 3.0
RETRY_SECONDS = 1.0
HANDSHAKE_SECONDS = 10.0  # until a slave follows the log, as in RocketMQ
CHECK_SECONDS = 0.05
TAKE_BACK_SECONDS = 30.0  # at most, for all brokers of the name
NAME_SERVER_SECONDS = 10.0  # at most, until a name server answers
REJOIN_MS = 10_000  # between two returns while the broker runs
HAND_OVER_SECONDS = 2.0  # a stop waits until another broker has taken the queue locks


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that are taken back. `timers` is None without a timer wheel; `save_offsets()`
    writes the offsets, so that their version counts each change."""

    offsets: Offsets
    delays: Delays
    timers: TakenTimers | None
    save_offsets: Callable[[], Awaitable[object]]


@dataclass(slots=True, eq=False)
class ReturningMaster:
    """`address` and `ha_address` are this master's. `is_online` is whether it delivers what is due.
    `note_alive(brokers)` gets how many brokers of this name are alive, this one included.
    `left` keeps the queue locks for the next start; `knows_locks` is whether `locks` has all that
    the last run gave. `now_ms` is a clock for timeouts, `wall_ms` that of messages."""

    locks: PairLocks
    _config: BrokerConfig
    _address: str
    _ha_address: str
    _members: Members
    _peers: Peers
    _store: MessageStore
    _ha: HaMaster
    _note_alive: Callable[[int], None]
    _tables: Tables
    _now_ms: Callable[[], int]
    _wall_ms: Callable[[], int]
    _left: LeftLocks
    _knows_locks: bool
    is_online: bool = field(init=False, default=False)
    _has_others: bool = field(init=False, default=False)  # there was another broker of this name
    _listed_ms: int = field(init=False, default=0)  # when a name server listed this master last
    _returned_ms: int = field(init=False, default=0)

    async def come_online(self) -> None:
        """Take everything back, at most for `TAKE_BACK_SECONDS`; then this master may register."""
        self.is_online = False
        self.locks.end()
        if self._config.name_servers and not self._config.skip_pre_online:
            await self._take_back()
        self._listed_ms = self._returned_ms = self._now_ms()
        is_alone = self._knows_locks and not self._has_others
        self.locks.begin(after_ms=0 if is_alone else CLIENT_LOCK_MS)
        self._knows_locks = True
        self.is_online = True

    async def hand_over(self) -> None:
        """Give no locks any more: this master stops. The broker that acts next has them, or where
        there is none the next start."""
        self.locks.end()
        table = self.locks.give()
        if table is None:
            return
        slaves: dict[int, str] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_SECONDS):
                group = await self._members.ask()
                slaves = {} if group is None else self._others(group)
        if slaves:
            await send_locks(self._peers, slaves[min(slaves)], table, HAND_OVER_SECONDS)
        else:
            self._left.leave(table)

    async def run(self, register: Callable[[], Awaitable[None]]) -> None:
        """See each second whether the name servers list this master, until cancelled."""
        while True:
            await asyncio.sleep(self._config.sync_broker_member_group_period / 1000)
            await self.tick(register)

    async def tick(self, register: Callable[[], Awaitable[None]]) -> None:
        """Return once more where no name server lists a master; lock no queues while none lists
        this one."""
        group = await self._members.ask() if self._config.name_servers else None
        now_ms = self._now_ms()
        if group is not None:
            self._others(group)
            self._note_alive(len(group.keys() | {MASTER_ID}))
            masters = group.get(MASTER_ID, [])
            if self._address in masters:
                self._listed_ms = now_ms
                self.locks.begin(after_ms=CLIENT_LOCK_MS if self._has_others else 0)
            elif not masters and now_ms - self._returned_ms >= REJOIN_MS:
                log.warning("no name server lists this master of %s", self._config.broker_name)
                await self.come_online()
                await register()
                return
        silence_ms = self._config.broker_not_active_timeout_millis
        is_silent = now_ms - self._listed_ms > silence_ms
        if self._has_others and is_silent and self.locks.gate.is_opening:
            log.warning(
                "no name server lists this master for %d ms: it locks no queues", silence_ms
            )
            self.locks.end()

    def _others(self, group: Group) -> dict[int, str]:
        """The other brokers of this name."""
        found = {
            broker_id: address
            for broker_id, addresses in group.items()
            for address in addresses[:1]
            if broker_id != MASTER_ID and address != self._address
        }
        self._has_others = self._has_others or bool(found)
        return found

    async def _take_back(self) -> None:
        begun_ms = self._now_ms()
        why = "no broker of this name answers in time"
        taken: set[int] = set()
        while True:
            group = await self._members.ask()
            waited_s = (self._now_ms() - begun_ms) / 1000
            if group is None:
                limit_s, why = NAME_SERVER_SECONDS, "no name server answers"
            else:
                left = {one: at for one, at in self._others(group).items() if one not in taken}
                if not left:
                    return
                broker_id, address = next(iter(left.items()))
                limit_s = TAKE_BACK_SECONDS
                try:
                    async with asyncio.timeout(max(0.0, limit_s - waited_s)):
                        await self._take_from(address, len(taken))
                    taken.add(broker_id)
                    continue
                except (OSError, TimeoutError, ValueError, Refusal, StoreError) as wrong:
                    why = f"broker {broker_id} at {address}: {wrong}" if str(wrong) else why
            waited_s = (self._now_ms() - begun_ms) / 1000
            if waited_s >= limit_s:
                log.warning(
                    "this master registers after %.0f s without the offsets and the progress of "
                    "brokers that may have acted for it (%s): messages may come once more",
                    waited_s,
                    why,
                )
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _take_from(self, address: str, followers: int) -> None:
        """Take the tables of one broker. OSError, TimeoutError, ValueError, StoreError."""
        told = HaAddresses(self._ha_address, self._store.durable_end, self._address)
        await self._peers.ask(address, codes.EXCHANGE_BROKER_HA_INFO, told, ANSWER_SECONDS)
        await self._wait_for_slave(followers)
        tables = self._tables
        delays = DelayOffsets.decode(await self._ask(address, codes.GET_ALL_DELAY_OFFSET))
        offsets = ConsumerOffsetSerializeWrapper.decode(
            await self._ask(address, codes.GET_ALL_CONSUMER_OFFSET),
            lenient_bytes_max=FRAME_BYTES_MAX,
        )
        if tables.timers is not None:
            data = await self._ask(address, codes.GET_TIMER_CHECK_POINT)
            if len(data) < NUMBERS_BYTES:
                raise ValueError(f"a timer check point of {len(data)} bytes, not {NUMBERS_BYTES}")
            read_ms, _, _, queue_offset, *_ = NUMBERS.unpack_from(data)
            # Not beyond this clock, where the other one is ahead.
            await tables.timers.take(min(read_ms, self._wall_ms()), queue_offset, self._wall_ms())
        await tables.save_offsets()
        take_offsets(tables.offsets, offsets, address, self._store.next_offset)
        take_delays(tables.delays, delays)
        await self._take_locks(address)

    async def _take_locks(self, address: str) -> None:
        """Take over the queue locks of a broker that has acted; RocketMQ's hand none over."""
        try:
            data = await self._ask(address, codes.HAND_OVER_QUEUE_LOCKS)
            if data:
                self.locks.take(LockTable.decode(data))
        except (OSError, TimeoutError, ValueError) as wrong:
            log.info("%s hands no locks of queues over: %s", address, wrong)

    async def _wait_for_slave(self, followers: int) -> None:
        """Return once more than this many slaves follow the log."""
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                while sum(slave.acked >= 0 for slave in self._ha.slaves) <= followers:  # noqa: ASYNC110
                    await asyncio.sleep(CHECK_SECONDS)
        except TimeoutError:
            raise TimeoutError(
                f"it does not follow the log within {HANDSHAKE_SECONDS:g} s"
            ) from None

    async def _ask(self, address: str, code: int) -> bytes:
        answer = await self._peers.ask(address, code, timeout_s=ANSWER_SECONDS)
        return bytes(answer.body or b"")
