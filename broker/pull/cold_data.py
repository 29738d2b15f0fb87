"""Cold data flow control: groups that read far behind the end of the log are slowed down.

Old messages come from the disk, and reading them pushes new messages out of the page cache. So the
bytes of cold messages that each group gets are counted for five seconds
(coldDataFlowControlEnable). A group above its threshold waits, and so do all readers of cold
messages once their sum is above globalColdReadThreshold: a push consumer gets SYSTEM_BUSY, and a
pull consumer's request is delayed by three seconds and then gets one message.

RocketMQ's adaptive thresholds (coldCtrStrategyEnable) are not implemented.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ...protocol import codes
from ...protocol.aio.connection import Connection
from ...protocol.bodies.body import Body
from ...protocol.bodies.stats import ColdDataFlowCtrInfo, ColdRead
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.pull import BULK, PullMessage
from ...protocol.names import is_system_group
from ...store.engine.store import MessageStore
from ..groups.clients import Clients
from ..runtime.parking import ParkedRequest, ParkingLot
from ..settings.config import BrokerConfig

PERIOD_MS = 5_000  # how long the bytes are added up
FORGET_MS = 60_000  # a group that reads nothing cold for so long leaves the table
HOLD_MS = 3_000
PARKED_MAX = 10_000  # requests that are kept
GROUPS_MAX = 10_000  # in each of the two tables
_TOOLS = frozenset({"TOOLS_CONSUMER", "SELF_TEST_C_GROUP", "FILTERSRV_CONSUMER"})


@dataclass(slots=True, eq=False)
class ColdData:
    """Cold bytes read by group, the groups' thresholds in bytes, and the delayed pulls.

    `pull(header, command, connection)` serves a new pull.
    """

    _config: BrokerConfig
    _store: MessageStore
    _clients: Clients
    _now_ms: Callable[[], int]
    _pull: Callable[[PullMessage, Command, Connection], Response | bytes | None]
    delayed: ParkingLot[None] = field(init=False)  # at one place: they wait for their time only
    _reads: dict[str, ColdRead] = field(init=False, default_factory=dict)
    _thresholds: dict[str, int] = field(init=False, default_factory=dict)
    _all_bytes: int = field(init=False, default=0)
    _cleared_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self._cleared_ms = self._now_ms()
        self.delayed = ParkingLot(self._continue, self._now_ms, is_long_polling=False)

    # --- pulls ----------------------------------------------------------------------------------

    def delays(self, header: PullMessage, command: Command, connection: Connection) -> bool:
        """Park a pull that has to wait; returns True if it is parked. Refusal for a push
        consumer's."""
        if not self._is_slowed(header.group) or not self._is_cold(header):
            return False
        members = self._clients.consumer_group(header.group)
        if members is not None and members.consume_type == "CONSUME_PASSIVELY":
            raise Refusal(
                codes.SYSTEM_BUSY,
                "This consumer group is reading cold data. It has been flow control: it has had "
                f"more than {self._threshold(header.group)} bytes of it within {PERIOD_MS} ms, or "
                f"all have had more than {self._config.global_cold_read_threshold} "
                "(cgColdReadThreshold, globalColdReadThreshold)",
            )
        now_ms = self._now_ms()
        pull = ParkedRequest(header, command, connection, now_ms, now_ms + HOLD_MS)
        if not command.weight() and self.delayed.add(None, pull, PARKED_MAX, PARKED_MAX):
            return True
        self._only_one(header)  # a long one would take memory
        return False

    def count(
        self, header: PullMessage, next_offset: int, tags_codes: Collection[int] | None
    ) -> None:
        """Count the cold bytes of a pull that got the messages up to `next_offset`."""
        if is_system_group(header.group) or header.group in _TOOLS:
            return
        size = self._store.page_cache.read_cold(
            header.topic,
            header.queue_id,
            header.offset,
            next_offset,
            tags_codes,
            self._hot_bytes,
            absent_only=self._config.cold_data_scan_enable,
        )
        if not size:
            return
        self._all_bytes += size
        now_ms = self._now_ms()
        read = self._reads.get(header.group)
        if read is None:
            if len(self._reads) >= GROUPS_MAX:
                return
            read = self._reads[header.group] = ColdRead(0, now_ms, now_ms)
        read.cold_acc += size
        read.last_cold_read_time_mills = now_ms

    def sweep(self) -> None:
        """Serve the pulls that were kept long enough, and begin a new period when it is time."""
        now_ms = self._now_ms()
        self.delayed.sweep(now_ms)
        if abs(now_ms - self._cleared_ms) >= PERIOD_MS:
            self._cleared_ms = now_ms
            if not self._config.data_read_ahead_enable:
                self._store.page_cache.read_log_ahead(
                    wanted=False
                )  # files that are new since the last time
            self._all_bytes = 0
            for group, read in list(self._reads.items()):
                if now_ms - read.last_cold_read_time_mills >= FORGET_MS:
                    del self._reads[group]
                read.cold_acc = 0

    # --- for administrators ---------------------------------------------------------------------

    def set_threshold(self, group: str, threshold: int) -> None:
        """Cold bytes that a group may read per period. Refusal when too many groups have one."""
        if group not in self._thresholds and len(self._thresholds) >= GROUPS_MAX:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"{len(self._thresholds)} groups have a threshold of their own, the limit is "
                f"{GROUPS_MAX}; remove those that are not needed",
            )
        self._thresholds[group] = threshold

    def remove_threshold(self, group: str) -> None:
        """Reset the group's threshold to cgColdReadThreshold."""
        self._thresholds.pop(group, None)

    def info(self) -> Body:
        """The body of the response to GET_COLD_DATA_FLOW_CTR_INFO (2003)."""
        return ColdDataFlowCtrInfo(
            dict(self._reads),
            dict(self._thresholds),
            self._config.cg_cold_read_threshold,
            self._config.global_cold_read_threshold,
            self._all_bytes,
        )

    # --- inside ---------------------------------------------------------------------------------

    def _continue(
        self, header: PullMessage, command: Command, connection: Connection, is_last: bool
    ) -> Response | bytes | None:
        """Serve a pull that was kept; None when it waits for a message now."""
        self._only_one(header)
        return self._pull(header, command, connection)

    @property
    def _hot_bytes(self) -> int:
        return self._store.memory_part(self._config.access_message_in_memory_hot_ratio)

    def _is_slowed(self, group: str) -> bool:
        read = self._reads.get(group)
        if read is None:
            return False
        is_over = read.cold_acc >= self._threshold(group)
        return is_over or self._all_bytes >= self._config.global_cold_read_threshold

    def _is_cold(self, header: PullMessage) -> bool:
        found = self._store.page_cache.read_cold(
            header.topic,
            header.queue_id,
            header.offset,
            header.offset + 1,
            None,
            self._hot_bytes,
            absent_only=False,
        )
        return found > 0

    def _threshold(self, group: str) -> int:
        return self._thresholds.get(group, self._config.cg_cold_read_threshold)

    @staticmethod
    def _only_one(header: PullMessage) -> None:
        header.max_messages = 1
        header.sys_flag &= ~BULK
