"""The master's end of replication: slaves connect, report their end of the log, and get the rest.

A slave gets the bytes of the file, so that its files become the same. Each slave has its own
position in the log; `send` continues there at the end of every loop iteration that wrote something.
A slave that doesn't read costs no more than the socket's buffer and one of fixed size.

What is acknowledged is another matter: `counted_acks`, and in controller mode `sync_set_acks`.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, cast

from ...protocol.aio.server import end_accepting, start_accepting
from ...protocol.bodies.ha import HAConnectionRuntimeInfo, HARuntimeInfo
from ...protocol.errors import Malformed
from ...protocol.ha_prologue import LACKING_THERE, MAGIC, refusal
from ...store.base.errors import StoreError
from ...store.engine.store import MessageStore
from ..settings.config import BrokerConfig
from .flow import Flow

log = logging.getLogger(__name__)

SEND_BYTES_MAX = 256 << 10  # given to one slave at once
BUFFER_BYTES_MAX = 1 << 20  # that a slave has not read; then it gets no more
LAST_SECONDS = 2.0  # how long a stop waits for slaves to have all
NOT_ALLOWED = (
    "its address is neither loopback nor that of a replica which the controller knows; "
    "if it may take the log, add it to haAllowedAddresses"
)


class Acks(Protocol):
    """Which slaves are let in, and how far they acknowledge the log together."""

    hears_each_end: bool  # `sent` is to be called after each write, also without a slave

    @property
    def sent_end(self) -> int:
        """Slaves get the log up to here."""
        ...

    def may_come(self, host: str) -> bool:
        """True if a slave at this address may take the log."""
        ...

    def connection(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        ...

    def begin(self) -> None:
        """Prepare for slaves, which are about to be let in."""

    def sent(self) -> None:
        """Note that the log has grown, and that slaves were sent the new part."""

    def synced(self) -> None:
        """Note that the disk has more of the log."""

    def sweep(self) -> None:
        """Do what is due by time: about ten times a second."""

    def lost(self) -> None:
        """Note that a slave is gone."""

    def in_sync_count(self) -> int:
        """The number of slaves that count as following."""
        ...

    async def stop(self) -> None:
        """Stop, as this master stops."""


class HaMaster:
    """The slaves of a broker: their connections are in `slaves`. `acks` counts them."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        server: asyncio.Server,
        now_ms: Callable[[], int],
        acks: "Callable[[HaMaster], Acks]",
    ) -> None:
        """`server` listens, and has `acks` make a connection for each slave; `start` lets it accept
        them. `now_ms` is a clock for timeouts, not for messages. `acks` makes what counts them."""
        self.config = config
        self.store = store
        self.now_ms = now_ms
        self.slaves: list[LogSender] = []
        self.refused = 0  # connections closed for a bad request
        self.is_stopped = False  # a slave whose TLS handshake or prologue ends later is closed
        self._server = server
        self._progress = asyncio.Event()  # a slave has said something, or is gone
        self.acks = acks(self)
        self.hears_each_end = self.acks.hears_each_end

    async def start(self) -> None:
        """Let slaves in."""
        self.acks.begin()
        await start_accepting(self._server, "haListenPort")

    def send(self) -> None:
        """Send each slave the new part of the log. To be called after it was written."""
        for slave in self.slaves.copy():
            slave.send()
        self.acks.sent()

    def sweep(self) -> None:
        """Send what is left over, send heartbeats, and close the connections of silent slaves. To
        be called about ten times a second."""
        for slave in self.slaves.copy():
            slave.send()
            slave.sweep()
        self.acks.sweep()

    def info(self) -> HARuntimeInfo:
        """The state of the slaves, as GET_BROKER_HA_STATUS (907) answers it."""
        found = [slave.info() for slave in self.slaves]
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=self.store.log_end,
            in_sync_slave_nums=self.acks.in_sync_count(),
            ha_connection_info=found,
        )

    def lost(self, slave: "LogSender") -> None:
        """Forget a slave whose connection is closed."""
        self.slaves.remove(slave)
        self.heard()
        self.acks.lost()

    def heard(self) -> None:
        """Note that a slave has reported its end of the log, or is gone."""
        self._progress.set()

    async def stop(self) -> None:
        """Let the slaves have the rest of the log, for a while, and close the connections."""
        self.is_stopped = True
        await self.acks.stop()
        await end_accepting(self._server)
        self._server.close()
        try:
            async with asyncio.timeout(LAST_SECONDS):
                while any(slave.is_late for slave in self.slaves):
                    self.send()
                    await self._next_progress()
        except TimeoutError:
            log.warning("stopping before all slaves have all of the log")
        for slave in self.slaves.copy():
            slave.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                while self.slaves:
                    await self._next_progress()
        for slave in self.slaves.copy():
            slave.abort()

    async def _next_progress(self) -> None:
        self._progress.clear()
        await self._progress.wait()


class LogSender(asyncio.Protocol):
    """The connection of one slave. `next` is the log offset of the next byte to send, `acked` the
    reported end: both are -1 before its first report."""

    def __init__(self, master: HaMaster) -> None:
        self.next = -1
        self.acked = -1
        self.address = ""
        self.flow = Flow(master.now_ms)
        self.heard_ms = self._sent_ms = master.now_ms()
        self._master = master
        # As in RocketMQ: an empty slave gets the last file, not the whole log.
        self._from_last_file = True
        self._is_full = False  # the slave doesn't read
        self._goes_on = False  # another `send` is scheduled
        self._is_closed = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES_MAX)
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        self.address = f"{host}:{port}"
        if self._master.is_stopped:
            log.info("closing the slave %s: this master stops", self.address)
            self.abort()
            return
        if not self._master.acks.may_come(host):
            self._refuse(NOT_ALLOWED)
            return
        self._master.slaves.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._master.slaves:
            self._master.lost(self)
        if not self._is_closed:
            self._is_closed = True
            log.warning("the slave %s is gone, it has the log up to %d", self._name, self.acked)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self.send()

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        self.heard_ms = self._master.now_ms()
        if self.acked < 0 and data.startswith(MAGIC):
            self._transport.write(refusal(LACKING_THERE))
            self._refuse(LACKING_THERE)
            return
        try:
            self._take(data)
        except Malformed as wrong:
            self._refuse(f"it doesn't speak as a slave does: {wrong}")

    def send(self) -> None:
        """Go on with the log, as far as it may be sent and the slave has read."""
        if self._is_full or self._is_closed or self._goes_on or self.next < 0:
            return
        end = self._master.acks.sent_end
        pieces: list[bytes] = []
        size = 0
        try:
            while self.next < end and size < SEND_BYTES_MAX:
                added = self._chunk(pieces)
                if not added:
                    break
                size += added
        except StoreError as wrong:
            self._refuse(str(wrong))
            return
        if pieces:
            self._write(b"".join(pieces))
        if self.next >= end:
            return
        lost = self._why_lost()
        if lost is not None:
            self._refuse(lost)
        elif not self._is_full:
            self._goes_on = True  # others get served
            asyncio.get_running_loop().call_soon(self._go_on)

    def sweep(self) -> None:
        """Let the slave know that we are alive; close when it has been silent for too long."""
        now, most = self._master.now_ms(), self._master.config.ha_housekeeping_interval
        self.flow.sample()
        if now - self.heard_ms > most:
            self._refuse(
                f"it has said nothing for {now - self.heard_ms} ms, the limit is {most} "
                "(haHousekeepingInterval)"
            )
        elif now - self._sent_ms >= self._heartbeat_ms() and self.next >= 0 and not self._is_full:
            self._write(self._heartbeat())

    def info(self) -> HAConnectionRuntimeInfo:
        """The state of this slave."""
        return HAConnectionRuntimeInfo(
            addr=self.address,
            slave_ack_offset=self.acked,
            diff=self._master.store.log_end - self.acked,
            in_sync=self.is_in_sync,
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

    @property
    def is_late(self) -> bool:
        """True if the slave lacks a part of the log, and may still get it."""
        return 0 <= self.acked < self._master.store.written_end

    # ---- what each kind of replication does in its own way

    @property
    def is_in_sync(self) -> bool:
        """True if the slave counts as one that follows."""
        raise NotImplementedError

    @property
    def _name(self) -> str:
        return self.address

    def _take(self, data: bytes) -> None:
        """Read bytes from the slave; Malformed for others than a slave sends."""
        raise NotImplementedError

    def _chunk(self, pieces: list[bytes]) -> int:
        """Add the chunk at `next` and go on behind it; returns its size without the head."""
        raise NotImplementedError

    def _heartbeat(self) -> bytes:
        """A chunk without bytes."""
        raise NotImplementedError

    def _heartbeat_ms(self) -> int:
        """The time after the last bytes at which a heartbeat is sent."""
        raise NotImplementedError

    def _why_lost(self) -> str | None:
        """The reason why the log can't be sent from `next` on, or None."""
        raise NotImplementedError

    # ---- for these

    def _is_behind(self, place: int) -> bool:
        """True if the slave's log ends within this one; else the connection is closed."""
        end = self._master.store.written_end
        if place > end:
            self._refuse(
                f"its log ends at {place}, this one at {end}: it has what was lost here, or is no "
                "slave of this broker. Let it be the master, or delete its store folder"
            )
        return place <= end

    def _begin(self, place: int) -> None:
        """Begin at the place from which the slave asks for the log; 0 says that it has nothing."""
        store = self._master.store
        if place == 0:
            place = store.log_start
            if self._from_last_file:
                place = store.written_end - store.written_end % store.segment_bytes
        self.next = place
        log.info("the slave %s gets the log from %d on", self._name, place)

    def _go_on(self) -> None:
        self._goes_on = False
        self.send()

    def _write(self, data: bytes) -> None:
        self._sent_ms = self._master.now_ms()
        self.flow.bytes += len(data)
        self._transport.write(data)

    def _refuse(self, reason: str) -> None:
        log.error("closing the slave %s: %s", self._name, reason)
        self._master.refused += 1
        self.abort()
