"""Slaves without a controller: so many of them have to have what is acknowledged.

Responses of a SYNC_MASTER wait for the positions that slaves report.
"""

import asyncio
import logging
from collections.abc import Callable

from ...protocol.aio.server import Refused
from ...protocol.ha import CHUNK_HEAD, Reports
from ..settings.config import SLAVES_MAX
from .master import HaMaster, LogSender

log = logging.getLogger(__name__)


class CountedAcks:
    """`on_acked(end)` is called when `acks_needed` slaves have the log up to another end.

    With enableSlaveActingMaster a message that waits for slaves is refused, as in RocketMQ, while
    fewer brokers than it needs are there: `on_shortage(why)` is called with the reason, and with ""
    once enough are there. enableAutoInSyncReplicas lowers `acks_needed` instead.
    """

    def __init__(
        self,
        ha: HaMaster,
        on_acked: Callable[[int], None],
        on_shortage: Callable[[str], None],
    ) -> None:
        self.acks_needed = ha.config.acks_needed
        self.hears_each_end = ha.config.acks_needed > 0
        self.acked = 0  # `acks_needed` slaves have had the log up to here
        self._ha = ha
        self._on_acked = on_acked
        self._on_shortage = on_shortage
        self._alive = 1  # brokers of this name, this one included
        self._why_short = ""

    @property
    def sent_end(self) -> int:
        """The end of the log for slaves: with SYNC_FLUSH, of what is on the disk, since after a
        power cut the log goes on with other messages than a slave would have. What a slave passes
        on is on its master's disk."""
        store = self._ha.store
        if self._ha.config.is_slave:
            return store.written_end
        return min(store.written_end, store.safe_end)

    def may_come(self, host: str) -> bool:
        return True

    def connection(self) -> asyncio.Protocol:
        slaves = self._ha.slaves
        if len(slaves) >= SLAVES_MAX:
            log.warning(
                "refusing a slave: %d are connected, the limit is %d", len(slaves), SLAVES_MAX
            )
            return Refused()
        return SlaveConnection(self._ha, self)

    def begin(self) -> None:
        self._count()

    def sent(self) -> None:
        if self._ha.config.acks_needed and not self.acks_needed:
            self._note_acked(self._ha.store.written_end)

    def synced(self) -> None:
        if self._ha.slaves:
            self._ha.send()

    def sweep(self) -> None:
        self._count()

    def lost(self) -> None:
        pass

    def in_sync_count(self) -> int:
        return sum(slave.is_in_sync for slave in self._ha.slaves)

    async def stop(self) -> None:
        pass

    def note_alive(self, brokers: int) -> None:
        """Note how many brokers of this name the name servers list, this one included."""
        self._alive = brokers
        self._count()

    def heard(self) -> None:
        """Work out how far slaves have the log, after a slave has reported its end."""
        self._ha.heard()
        needed = self.acks_needed
        if not needed:
            return
        ends = sorted((slave.acked for slave in self._ha.slaves), reverse=True)
        if len(ends) >= needed:
            self._note_acked(ends[needed - 1])

    # ---- inside

    def _note_acked(self, end: int) -> None:
        if end > self.acked:
            self.acked = end
            self._on_acked(end)

    def _count(self) -> None:
        """See whether enough brokers are there for the messages that come from now on."""
        config = self._ha.config
        if not (config.acks_needed and config.has_acting_master):
            return
        there = min(self._alive, 1 + self.in_sync_count())
        needed = config.in_sync_replicas
        if config.enable_auto_in_sync_replicas:
            needed = max(min(needed, there), config.min_in_sync_replicas)
        if self.acks_needed != needed - 1:
            self.acks_needed = needed - 1
            self._ha.send()
            self.heard()
        why = ""
        if needed > there:
            why = (
                f"in-sync replicas not enough: {there} brokers named {config.broker_name} are "
                f"there, a message needs {needed} (inSyncReplicas); start the others, or set "
                "enableAutoInSyncReplicas"
            )
        if why != self._why_short:
            self._why_short = why
            self._on_shortage(why)


class SlaveConnection(LogSender):
    """One slave."""

    def __init__(self, master: HaMaster, acks: CountedAcks) -> None:
        super().__init__(master)
        self._acks = acks
        self._reports = Reports()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._is_closed:
            log.info("a slave has connected from %s", self.address)

    @property
    def is_in_sync(self) -> bool:
        master = self._master
        return master.store.log_end - self.acked < master.config.ha_max_gap_not_in_sync

    def _take(self, data: bytes) -> None:
        place = self._reports.feed(data)
        if place is None or not self._is_behind(place):
            return
        if self.next < 0:
            self._begin(place)
        self.acked = place
        self._acks.heard()
        self.send()

    def _chunk(self, pieces: list[bytes]) -> int:
        master = self._master
        most = min(master.config.ha_transfer_batch_size, self._acks.sent_end - self.next)
        data = master.store.raw(self.next, most)
        if data:
            pieces += [CHUNK_HEAD.pack(self.next, len(data)), data]
            self.next += len(data)
        return len(data)

    def _heartbeat(self) -> bytes:
        return CHUNK_HEAD.pack(self.next, 0)

    def _heartbeat_ms(self) -> int:
        return self._master.config.ha_send_heartbeat_interval + 1  # as in RocketMQ: after it

    def _why_lost(self) -> str | None:
        start = self._master.store.log_start
        if self.next >= start:
            return None
        return (
            f"it is to get the log from {self.next} on, which begins at {start} by now; delete its "
            "store folder, so that it begins anew, or copy the files it lacks"
        )
