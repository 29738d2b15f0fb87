"""The master's end of replication: slaves connect, report their end of the log, and get the rest.

A slave gets the bytes of the file, so that its files become the same. Each slave has its own
position in the log; `send` continues there at the end of every loop iteration that wrote something.
A slave that doesn't read costs no more than the socket's buffer and one of fixed size. Responses of
a SYNC_MASTER wait for the positions that slaves report.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from ...protocol.bodies.ha import HAConnectionRuntimeInfo, HARuntimeInfo
from ...protocol.errors import Malformed
from ...protocol.ha import CHUNK_HEAD, Reports
from ...store.base.errors import StoreError
from ...store.engine.store import MessageStore
from ..settings.config import SLAVES_MAX, BrokerConfig
from .flow import Flow

log = logging.getLogger(__name__)

SEND_BYTES_MAX = 256 << 10  # given to one slave at once
BUFFER_BYTES_MAX = 1 << 20  # that a slave has not read; then it gets no more
LAST_SECONDS = 2.0  # how long a stop waits for slaves to have all


class HaMaster:
    """The connected slaves of this broker, in `slaves`.

    `on_acked(end)` is called when `acks_needed` slaves have the log up to another end.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        server: asyncio.Server,
        now_ms: Callable[[], int],
        on_acked: Callable[[int], None],
    ) -> None:
        """`server` listens and makes a `connection` for each slave; `now_ms` is a clock for
        timeouts, not for messages."""
        self.config = config
        self.store = store
        self._server = server
        self.now_ms = now_ms
        self.slaves: list[SlaveConnection] = []
        self.acks_needed = config.acks_needed
        self.acked = 0  # `acks_needed` slaves have had the log up to here
        self.refused = 0  # connections closed for a bad request
        self._on_acked = on_acked
        self._progress = asyncio.Event()  # a slave has said something

    async def accept(self) -> None:
        """Let slaves in."""
        await self._server.start_serving()

    def send(self) -> None:
        """Send each slave the new part of the log."""
        for slave in self.slaves.copy():
            slave.send()

    def sweep(self) -> None:
        """Send what is left over, send heartbeats, and close the connections of silent slaves."""
        for slave in self.slaves.copy():
            slave.send()
            slave.sweep()

    def info(self) -> HARuntimeInfo:
        """How slaves stand, as GET_BROKER_HA_STATUS (907) answers it."""
        found = [slave.info() for slave in self.slaves]
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=self.store.log_end,
            in_sync_slave_nums=sum(each.in_sync for each in found),
            ha_connection_info=found,
        )

    async def stop(self) -> None:
        """Let the slaves have the rest of the log, for a while, and close the connections."""
        self._server.close()
        deadline = asyncio.get_running_loop().time() + LAST_SECONDS
        try:
            async with asyncio.timeout_at(deadline):
                while any(0 <= slave.acked < self.store.written_end for slave in self.slaves):
                    self._progress.clear()
                    self.send()
                    await self._progress.wait()
        except TimeoutError:
            log.warning("stopping before all slaves have all of the log")
        for slave in self.slaves.copy():
            slave.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                while self.slaves:
                    self._progress.clear()
                    await self._progress.wait()
        for slave in self.slaves.copy():
            slave.abort()

    # ---- for the connections

    def connection(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        if len(self.slaves) >= SLAVES_MAX:
            log.warning(
                "refusing a slave: %d are connected, the limit is %d", len(self.slaves), SLAVES_MAX
            )
            return _Refused()
        return SlaveConnection(self)

    def lost(self, slave: "SlaveConnection") -> None:
        """This connection is closed."""
        self.slaves.remove(slave)
        self._progress.set()

    def heard(self) -> None:
        """A slave has reported its end of the log."""
        self._progress.set()
        needed = self.acks_needed
        if not needed:
            return
        ends = sorted((slave.acked for slave in self.slaves), reverse=True)
        if len(ends) >= needed and ends[needed - 1] > self.acked:
            self.acked = ends[needed - 1]
            self._on_acked(self.acked)


class SlaveConnection(asyncio.Protocol):
    """One slave. `next` is the log offset of the next byte to send; `acked` the reported end: both
    are -1 before its first report."""

    def __init__(self, master: HaMaster) -> None:
        self.next = -1
        self.acked = -1
        self.flow = Flow(master.now_ms)
        self._master = master
        self._reports = Reports()
        self._heard_ms = self._sent_ms = master.now_ms()
        self._is_full = False  # the slave doesn't read
        self._goes_on = False  # another `send` is scheduled
        self._is_closed = False
        self._transport: asyncio.Transport
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._master.slaves.append(self)
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES_MAX)
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        self.address = f"{host}:{port}"
        log.info("a slave has connected from %s", self.address)

    def connection_lost(self, exc: Exception | None) -> None:
        self._master.lost(self)
        if self._is_closed:
            return
        self._is_closed = True
        log.warning("the slave %s is gone, it has the log up to %d", self.address, self.acked)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self.send()

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        self._heard_ms = self._master.now_ms()
        try:
            place = self._reports.feed(data)
        except Malformed as wrong:
            self._refuse(f"it doesn't speak as a slave does: {wrong}")
            return
        if place is None:
            return
        end = self._master.store.written_end
        if place > end:
            self._refuse(
                f"its log ends at {place}, this one at {end}: it has what was lost here, or is no "
                "slave of this broker. Let it be the master, or delete its store folder"
            )
            return
        if self.next < 0:
            self._begin(place)
        self.acked = place
        self._master.heard()
        self.send()

    def send(self) -> None:
        """Go on with the log, as far as it is written and the slave has read."""
        if self._is_full or self._is_closed or self._goes_on or self.next < 0:
            return
        store, most = self._master.store, self._master.config.ha_transfer_batch_size
        end = store.written_end
        pieces = []
        size = 0
        try:
            while self.next < end and size < SEND_BYTES_MAX:
                data = store.raw(self.next, most)
                if not data:
                    break
                pieces += [CHUNK_HEAD.pack(self.next, len(data)), data]
                self.next += len(data)
                size += len(data)
        except StoreError as wrong:
            self._refuse(str(wrong))
            return
        if pieces:
            self._write(b"".join(pieces))
        if self.next >= end:
            return
        if self.next < store.log_start:
            self._refuse(
                f"it is to get the log from {self.next} on, which begins at {store.log_start} by "
                "now; delete its store folder, so that it begins anew, or copy the files it lacks"
            )
        elif not self._is_full:
            self._goes_on = True  # others get served
            asyncio.get_running_loop().call_soon(self._go_on)

    def sweep(self) -> None:
        """Let the slave know that we are alive; close when it has been silent for too long."""
        now, config = self._master.now_ms(), self._master.config
        self.flow.sample()
        if now - self._heard_ms > config.ha_housekeeping_interval:
            self._refuse(
                f"it has said nothing for {now - self._heard_ms} ms, the limit is "
                f"{config.ha_housekeeping_interval} (haHousekeepingInterval)"
            )
        elif (
            now - self._sent_ms > config.ha_send_heartbeat_interval
            and self.next >= 0
            and not self._is_full
        ):
            self._write(CHUNK_HEAD.pack(self.next, 0))

    def info(self) -> HAConnectionRuntimeInfo:
        """How this slave stands."""
        behind = self._master.store.log_end - self.acked
        return HAConnectionRuntimeInfo(
            addr=self.address,
            slave_ack_offset=self.acked,
            diff=behind,
            in_sync=behind < self._master.config.ha_max_gap_not_in_sync,
            transferred_byte_in_second=self.flow.bytes_a_second,
            transfer_from_where=self.next,
        )

    def close(self) -> None:
        """Close the connection, after the bytes in its buffer."""
        self._is_closed = True
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._is_closed = True
        self._transport.abort()

    def _begin(self, place: int) -> None:
        """The slave asks for the log from a place on; 0 says that it has nothing."""
        store = self._master.store
        if place == 0:
            # As in RocketMQ: an empty slave gets the last file, not the whole log.
            place = store.written_end - store.written_end % store.segment_bytes
        self.next = place
        log.info("the slave %s gets the log from %d on", self.address, place)

    def _go_on(self) -> None:
        self._goes_on = False
        self.send()

    def _write(self, data: bytes) -> None:
        self._sent_ms = self._master.now_ms()
        self.flow.bytes += len(data)
        self._transport.write(data)

    def _refuse(self, reason: str) -> None:
        log.error("closing the slave %s: %s", self.address, reason)
        self._master.refused += 1
        self.abort()


class _Refused(asyncio.Protocol):
    """A connection too many: closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()
