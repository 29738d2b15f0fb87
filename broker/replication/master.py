"""The master's end of replication: slaves connect, report their end of the log, and get the rest.

Responses of a SYNC_MASTER wait for the positions that slaves report.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from ...protocol.aio.server import start_accepting
from ...protocol.ha import CHUNK_HEAD, Reports
from ...store.engine.store import MessageStore
from ..settings.config import SLAVES_MAX, BrokerConfig
from .log_sender import LogSender, MasterEnd

log = logging.getLogger(__name__)


class HaMaster(MasterEnd["SlaveConnection"]):
    """The connected slaves of this broker, in `slaves`.

    `on_acked(end)` is called when `acks_needed` slaves have the log up to another end.

    With enableSlaveActingMaster a message that waits for slaves is refused, as in RocketMQ, while
    fewer brokers than it needs are there: `on_shortage(why)` is called with the reason, and with ""
    once enough are there. enableAutoInSyncReplicas lowers `acks_needed` instead.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        server: asyncio.Server,
        now_ms: Callable[[], int],
        on_acked: Callable[[int], None],
        on_shortage: Callable[[str], None] = lambda why: None,
    ) -> None:
        """`server` makes a `connection` for each slave."""
        super().__init__(config, store, server, now_ms)
        self.acks_needed = config.acks_needed
        self.tells_end = config.acks_needed > 0
        self.acked = 0  # `acks_needed` slaves have had the log up to here
        self._on_acked = on_acked
        self._on_shortage = on_shortage
        self._alive = 1  # brokers of this name, this one included
        self._why_short = ""

    @property
    def sent_end(self) -> int:
        """With SYNC_FLUSH only what is on the disk: after a power cut the log goes on with other
        messages than a slave would have. What a slave passes on is on its master's disk."""
        if self.config.is_slave:
            return self.store.written_end
        return min(self.store.written_end, self.store.state.safe_end)

    async def start(self) -> None:
        """Let slaves in."""
        self._count()
        await start_accepting(self._server, "haListenPort")

    def note_alive(self, brokers: int) -> None:
        """The name servers list this many brokers of this name, this one included."""
        self._alive = brokers
        self._count()

    def send(self) -> None:
        super().send()
        if self.config.acks_needed and not self.acks_needed:
            self._note_acked(self.store.written_end)

    def sweep(self) -> None:
        super().sweep()
        self._count()

    # ---- for the connections

    def connection(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        if len(self.slaves) >= SLAVES_MAX:
            log.warning(
                "refusing a slave: %d are connected, the limit is %d", len(self.slaves), SLAVES_MAX
            )
            return _Refused()
        return SlaveConnection(self)

    def heard(self) -> None:
        """A slave has reported its end of the log."""
        self._progress.set()
        needed = self.acks_needed
        if not needed:
            return
        ends = sorted((slave.acked for slave in self.slaves), reverse=True)
        if len(ends) >= needed:
            self._note_acked(ends[needed - 1])

    # ---- inside

    def _note_acked(self, end: int) -> None:
        if end > self.acked:
            self.acked = end
            self._on_acked(end)

    def _count(self) -> None:
        """See whether enough brokers are there for the messages that come from now on."""
        config = self.config
        if not (config.acks_needed and config.has_acting_master):
            return
        there = min(self._alive, 1 + self._in_sync_count())
        needed = config.in_sync_replicas
        if config.enable_auto_in_sync_replicas:
            needed = max(min(needed, there), config.min_in_sync_replicas)
        if self.acks_needed != needed - 1:
            self.acks_needed = needed - 1
            self.send()
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


class SlaveConnection(LogSender[HaMaster]):
    """One slave."""

    def __init__(self, master: HaMaster) -> None:
        super().__init__(master)
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
        self._master.heard()
        self.send()

    def _chunk(self, pieces: list[bytes]) -> int:
        master = self._master
        most = min(master.config.ha_transfer_batch_size, master.sent_end - self.next)
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


class _Refused(asyncio.Protocol):
    """A connection too many: closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()
