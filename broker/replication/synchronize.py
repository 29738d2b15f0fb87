"""The tables that a slave copies: topics, groups, offsets, modes, and the progress of delays and
timers.

All are requested from the master's ordinary port once a minute, the timers' progress at every tick.
In controller mode, where a slave may become the master at any moment, it is every ten seconds, and
the offsets of groups at every tick. A failed request is repeated the next time; the others go on
meanwhile. Invariant: the master's progress in delivery is taken over only when our log has
everything that the master's had at that time. Else a slave promoted to master would skip messages
whose delivery never reached it.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.bodies.assignment import MessageRequestModeWrapper
from ...protocol.bodies.data_version import DataVersion
from ...protocol.bodies.group import SubscriptionGroupWrapper
from ...protocol.bodies.ha import HARuntimeInfo
from ...protocol.bodies.offsets import ConsumerOffsetSerializeWrapper
from ...protocol.bodies.topic import TopicConfigAndMappingSerializeWrapper
from ...protocol.codec.frame import FRAME_BYTES_MAX
from ...protocol.errors import Refusal
from ...store.base.errors import StoreError
from ...store.timer.timer_check import NUMBERS, NUMBERS_BYTES
from ..groups.groups import Groups
from ..groups.offsets import Offsets
from ..pop.request_modes import RequestModes
from ..scheduled.delays import DelayOffsets, Delays
from ..scheduled.timer_metrics import TimerMetricsTable
from ..topics.topics import Topics
from .following_timers import Follower

log = logging.getLogger(__name__)

TICK_SECONDS = 3.0
ALL_MS = 60_000  # between two requests for everything
# Of a slave that may lead: between two requests for everything, and for the offsets of groups.
LEADING_ALL_MS, LEADING_OFFSETS_MS = 10_000, 2_500
TIMEOUT_S = 3.0


@dataclass(slots=True, eq=False)
class SlaveSynchronize:
    """Follows the master that `set_master` names. `log_end()` is the end of the last whole message
    in the log here."""

    _peers: Peers
    _own_address: str
    _topics: Topics
    _groups: Groups
    _offsets: Offsets
    _delays: Delays
    _modes: RequestModes
    _timers: Follower | None
    _log_end: Callable[[], int]
    _now_ms: Callable[[], int]
    _all_ms: int = ALL_MS  # between two requests for everything
    _offsets_ms: int = ALL_MS  # between two requests for the offsets of groups
    # The versions of offsets, delays and timers are taken over, too: they tell which copy is newer.
    _takes_versions: bool = False
    master: str = field(init=False, default="")
    synced_ms: int = field(init=False, default=0)  # when everything was taken over last; 0: never
    lacks_topic: bool = field(
        init=False, default=False
    )  # the log has messages of one that isn't here
    _asked_ms: int | None = field(init=False, default=None)
    _offsets_asked_ms: int = field(init=False, default=0)
    # Changes that wait for the log: name, required end of our log, function to apply it.
    _waiting: dict[str, tuple[int, Callable[[], None]]] = field(init=False, default_factory=dict)
    _faults: dict[str, str] = field(init=False, default_factory=dict)

    def set_master(self, address: str) -> None:
        """Follow this address from now on; none when it is empty."""
        if address != self.master:
            log.info("the master is %s, it was %s", address or "gone", self.master or "not known")
            self.master, self._asked_ms = address, None
            self._waiting.clear()

    async def tick(self) -> None:
        """Apply the changes that are due. To be called every `TICK_SECONDS`; never raises."""
        self._take_waiting()
        master = self.master
        if not master or master == self._own_address:
            return
        if not await self._try("data", self._check(master)):
            return
        now_ms = self._now_ms()
        if self._asked_ms is None or abs(now_ms - self._asked_ms) >= self._all_ms:
            self._asked_ms = self._offsets_asked_ms = now_ms
            self.lacks_topic = False
            await self.sync_all(master)
        elif self.lacks_topic:
            # RocketMQ lets it wait for the minute, and a master's end in it leaves no such topic.
            self.lacks_topic = False
            await self._try("topics", self._sync_topics(master))
        if abs(now_ms - self._offsets_asked_ms) >= self._offsets_ms:
            self._offsets_asked_ms = now_ms
            await self._try("consumer offsets", self._sync_offsets(master))
        if self._timers is not None:
            await self._try("timer check point", self._sync_timers(master, self._timers))
        self._take_waiting()

    async def sync_all(self, master: str) -> None:
        """Everything but the timers' progress, in RocketMQ's order."""
        found = [
            await self._try("topics", self._sync_topics(master)),
            await self._try("consumer offsets", self._sync_offsets(master)),
            await self._try("delay offsets", self._sync_delays(master)),
            await self._try("groups", self._sync_groups(master)),
            await self._try("message request modes", self._sync_modes(master)),
        ]
        if self._timers is not None:
            found.append(await self._try("timer metrics", self._sync_metrics(master, self._timers)))
        if all(found):
            self.synced_ms = self._now_ms()

    # --- inside ---------------------------------------------------------------------------------

    async def _check(self, master: str) -> None:
        """ValueError when this can't be the master that the log here comes from: one that was
        started with an empty store, say, has no topics, and they would be gone here as well."""
        here = self._log_end()
        there = await self._log_end_of(master)
        if there < here:
            raise ValueError(
                f"its log ends at {there}, this slave's at {here}, so it is not the one that was "
                "followed; make this broker the master if it has what you want, else delete its "
                "store"
            )

    async def _log_end_of(self, master: str) -> int:
        text = await self._ask(master, codes.GET_BROKER_HA_STATUS)
        return HARuntimeInfo.decode(text).master_commit_log_max_offset

    async def _sync_topics(self, master: str) -> None:
        text = await self._ask(master, codes.GET_ALL_TOPIC_CONFIG)
        found = TopicConfigAndMappingSerializeWrapper.decode(text)
        if self._topics.follow(found.topic_config_table, found.data_version):
            log.info("%d topics of master %s", len(found.topic_config_table), master)
        # RocketMQ's slave leaves these out, and doesn't know its static topics once it is promoted.
        self._topics.static.follow(found.topic_queue_mapping_detail_map, found.mapping_data_version)

    async def _sync_offsets(self, master: str) -> None:
        text = await self._ask(master, codes.GET_ALL_CONSUMER_OFFSET)
        found = ConsumerOffsetSerializeWrapper.decode(text, lenient_bytes_max=FRAME_BYTES_MAX)
        self._offsets.follow(found.offset_table, self._version(found.data_version))

    async def _sync_delays(self, master: str) -> None:
        text = await self._ask(master, codes.GET_ALL_DELAY_OFFSET)
        found = DelayOffsets.decode(text)
        version = self._version(found.data_version)
        await self._wait_for_log(
            master, "delays", lambda: self._delays.follow(found.offset_table, version)
        )

    async def _sync_groups(self, master: str) -> None:
        text = await self._ask(master, codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        found = SubscriptionGroupWrapper.decode(text)
        if self._groups.follow(found):
            log.info("%d groups of master %s", len(found.subscription_group_table), master)

    async def _sync_modes(self, master: str) -> None:
        text = await self._ask(master, codes.GET_ALL_MESSAGE_REQUEST_MODE)
        self._modes.follow(MessageRequestModeWrapper.decode(text).message_request_mode_map)

    async def _sync_metrics(self, master: str, timers: Follower) -> None:
        text = await self._ask(master, codes.GET_TIMER_METRICS)
        timers.metrics.follow(TimerMetricsTable.decode(text).timing_count)

    async def _sync_timers(self, master: str, timers: Follower) -> None:
        data = await self._ask(master, codes.GET_TIMER_CHECK_POINT)
        if len(data) < NUMBERS_BYTES:
            raise ValueError(f"a timer check point of {len(data)} bytes, {NUMBERS_BYTES} are one")
        read_ms, _, _, queue_offset, *version = NUMBERS.unpack_from(data)

        def take() -> None:
            timers.follow(read_ms, queue_offset)
            if self._takes_versions:
                check = timers.state.check
                check.state_version, check.changed_ms, check.changes = version

        await self._wait_for_log(master, "timers", take)

    def _version(self, master: DataVersion | None) -> DataVersion | None:
        """The version to take over with a table of the master."""
        return (master or DataVersion()) if self._takes_versions else None

    async def _wait_for_log(self, master: str, name: str, take: Callable[[], None]) -> None:
        """Apply a change once our log has everything that the master's log has now.

        A change that waits already is not replaced: under load it would be replaced for ever.
        """
        if name not in self._waiting:
            self._waiting[name] = await self._log_end_of(master), take

    def _take_waiting(self) -> None:
        here = self._log_end()
        for name, (end, take) in list(self._waiting.items()):
            if here >= end:
                del self._waiting[name]
                take()

    async def _ask(self, master: str, code: int) -> bytes:
        answer = await self._peers.ask(master, code, timeout_s=TIMEOUT_S)
        return bytes(answer.body or b"")

    async def _try(self, what: str, work: Awaitable[None]) -> bool:
        """Run it; log a failure once, and its end."""
        try:
            await work
        except (OSError, TimeoutError, ValueError, OverflowError, Refusal, StoreError) as wrong:
            if self._faults.get(what) != type(wrong).__name__:
                self._faults[what] = type(wrong).__name__
                log.warning("no %s from master %s: %s; trying again", what, self.master, wrong)
            return False
        if self._faults.pop(what, None):
            log.info("%s come from master %s again", what, self.master)
        return True
