"""The table of GET_BROKER_RUNTIME_INFO (28): the broker's state, as names and texts.

mqadmin and the dashboard read it by name and parse some of its texts, so every name of RocketMQ's
is there and every text has its form. Parts that this broker doesn't have (thread pools, a transient
pool, a page cache lock) are idle: 0. Put latencies are not measured; their texts say 0 as well.
"""

import shutil
from collections.abc import Callable, Generator, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from ...conf.java_keys import JAVA_KEYS
from ...protocol.bodies.cluster import (
    DIFFERING_PREFIX,
    HOLDING_NOTHING,
    LOG_HELD_BY,
    LOG_HELD_BYTES,
    LOG_HELD_SINCE,
    NOT_STORED,
    OTHER_MASTERS,
)
from ...protocol.command import VERSION, VERSION_NAME
from ...protocol.message.record import store_ms_of
from ...store.engine.store import MessageStore
from ..groups.clients import Clients
from ..groups.waiting_groups import WaitingGroups
from ..naming.other_masters import OtherMasters
from ..runtime.stats import CALLS, Stats
from ..scheduled.delays import SCHEDULE_TOPIC, Delays
from ..scheduled.timers import NO_FIGURES, Timers
from ..settings.config import BrokerConfig

BYTE_UNITS = "KMGTPE"
LATENCIES = (
    "[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 "
    "[1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 "
)
POOLS = ("send", "pull", "litePull", "query", "ack")
NO_POOL = 2_147_483_647  # remaining buffers, when no transient pool limits them


@dataclass(slots=True, eq=False)
class RuntimeInfo:
    """Makes the table. `started_ms` is when the broker was started."""

    _config: BrokerConfig
    _store: MessageStore
    _stats: Stats
    _delays: Delays
    _timers: Timers | None = None
    _: KW_ONLY
    clients: Clients
    other_masters: OtherMasters
    waiting_groups: WaitingGroups
    not_stored: Callable[[], str | None]
    started_ms: int
    now_ms: Callable[[], int]

    def table_in_parts(self) -> Generator[object, None, dict[str, str]]:
        """The table as it is now, with pauses in which others may work."""
        ours = yield from self._ours_alone()
        found: dict[str, object] = {
            "brokerActive": "true",
            "brokerVersionDesc": VERSION_NAME,
            "brokerVersion": VERSION,
            "bootTimestamp": self.started_ms,
            "runtime": _duration(self.now_ms() - self.started_ms),
            "startAcceptSendRequestTimeStamp": 0,
        }
        parts = (
            self._counted(),
            self._stored(),
            self._delayed(),
            self._timed(),
            ours,
            _idle(),
        )
        for part in parts:
            found |= part
        return {name: str(value) for name, value in found.items()}

    def _counted(self) -> dict[str, object]:
        stats, day_starts = self._stats, self._stats.day_starts
        totals, misses = stats.totals(), stats.misses
        puts, gets = totals.puts, totals.gets
        found_tps, miss_tps = stats.total_tps(gets, CALLS), stats.total_tps(misses)
        total_tps = [found + missed for found, missed in zip(found_tps, miss_tps, strict=True)]
        times = puts.messages or 1  # as in RocketMQ, so that there is an average
        return {
            "putMessageTimesTotal": times,
            "putMessageFailedTimes": stats.failures.messages,
            "putMessageSizeTotal": puts.bytes,
            "putMessageAverageSize": puts.bytes / times,
            "putTps": _rates(stats.total_tps(puts)),
            "getFoundTps": _rates(found_tps),
            "getMissTps": _rates(miss_tps),
            "getTotalTps": _rates(total_tps),
            "getTransferredTps": _rates(stats.total_tps(gets)),
            "msgPutTotalYesterdayMorning": day_starts.put_yesterday,
            "msgPutTotalTodayMorning": day_starts.put_today,
            "msgPutTotalTodayNow": totals.users_puts.messages,
            "msgGetTotalYesterdayMorning": day_starts.got_yesterday,
            "msgGetTotalTodayMorning": day_starts.got_today,
            "msgGetTotalTodayNow": totals.users_gets.messages,
        }

    def _stored(self) -> dict[str, object]:
        store, log_dir = self._store, self._config.commit_log_dir
        first = store.message_at(store.log_start)
        disk = shutil.disk_usage(self._config.store_dir)
        log_ratio = store.disk_ratio()
        return {
            f"commitLogDiskRatio_{log_dir}": log_ratio,
            "commitLogDiskRatio": log_ratio,
            "consumeQueueDiskRatio": _used_ratio(self._config.store_dir),
            "commitLogMinOffset": store.log_start,
            "commitLogMaxOffset": store.log_end,
            "commitLogDirCapacity": f"Total : {_size(disk.total)}, Free : {_size(disk.free)}.",
            "remainHowManyDataToFlush": _size(max(0, store.log_end - store.durable_end)),
            "earliestMessageTimeStamp": -1 if first is None else store_ms_of(first),
            # Queues are written with the log; a slave's with each whole message.
            "dispatchBehindBytes": store.log_end - store.whole_end,
        }

    def _ours_alone(self) -> Generator[None, None, dict[str, object]]:
        """The groups whose members subscribe differently, other masters of this name, why the
        store takes nothing, and what stays for a group."""
        found: dict[str, object] = {}
        not_stored = self.not_stored()
        if not_stored is not None:
            found[NOT_STORED] = not_stored
        if self.other_masters.addresses:
            found[OTHER_MASTERS] = ";".join(self.other_masters.addresses)
        held = self._store.cleaner.held_files
        if held is not None:
            found[LOG_HELD_BYTES] = held.size
            found[LOG_HELD_SINCE] = held.since_ms
            found[LOG_HELD_BY] = f"{held.by.group};{held.by.topic};{held.by.queue_id}"
        absent = self.waiting_groups.without_offsets()
        if absent:
            found[HOLDING_NOTHING] = ";".join(absent)
        for one in self.clients.differing():
            if one is not None:
                group, text = one
                found[f"{DIFFERING_PREFIX}{group}"] = text
            yield
        return found

    def _delayed(self) -> dict[str, object]:
        return {
            f"scheduleMessageOffset_{level}": f"{offset},"
            f"{self._store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            for level, offset in self._delays.offsets.items()
        }

    def _timed(self) -> Mapping[str, object]:
        timers = self._timers
        return NO_FIGURES if timers is None else timers.figures(self.now_ms())


def _idle() -> dict[str, object]:
    """RocketMQ's figures that this broker has no source for, as a Java broker at rest shows
    them."""
    found: dict[str, object] = {
        "putMessageEntireTimeMax": 0,
        "putMessageDistributeTime": LATENCIES,
        "putLatency99": "0.00",
        "putLatency999": "0.00",
        "getMessageEntireTimeMax": 0,
        "dispatchMaxBuffer": 0,
        "pageCacheLockTimeMills": 0,
        "remainTransientStoreBufferNumbs": NO_POOL,
        "EndTransactionQueueSize": 0,
        "EndTransactionThreadPoolQueueCapacity": JAVA_KEYS["endTransactionPoolQueueCapacity"][1],
    }
    for pool in POOLS:
        found[f"{pool}ThreadPoolQueueSize"] = 0
        capacity = f"{pool}ThreadPoolQueueCapacity"
        found[capacity] = JAVA_KEYS[capacity][1]
        found[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = 0
    return found


def _rates(values: list[float]) -> str:
    """Rates over ten seconds, a minute and ten minutes, as one text."""
    return " ".join(str(float(value)) for value in values)


def _used_ratio(folder: Path) -> float:
    usage = shutil.disk_usage(folder)
    usable = usage.used + usage.free
    return -(-usage.used * 100 // usable) / 100 if usable else 0.0


def _duration(ms: int) -> str:
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(count: int) -> str:
    """A number of bytes as RocketMQ writes it: 512 B, 1.5 KiB, 1.0 TiB."""
    if count < 1024:
        return f"{count} B"
    exponent = min((count.bit_length() - 1) // 10, len(BYTE_UNITS))
    return f"{count / (1 << 10 * exponent):.1f} {BYTE_UNITS[exponent - 1]}iB"
