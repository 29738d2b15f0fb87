"""The slave's end of replication: connects to its master and makes its log the same.

Received bytes are appended to the log, reported to the master at once, and made readable within
`DERIVE_SECONDS`: some hundred messages are derived together in half the time. When the connection
breaks, or the two logs don't fit, it is tried again every few seconds; the log continues at the
last whole message. The bytes just before that are sent once more, to be compared: a log with other
messages there, as an old master's may have, must not continue with these.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import cast

from ...conf.secret import secret_of
from ...protocol.aio.tasks import end
from ...protocol.aio.tls import client_context
from ...protocol.bodies.ha import HAClientRuntimeInfo, HARuntimeInfo
from ...protocol.errors import Malformed, reason_of
from ...protocol.ha import REPORT, Chunks
from ...protocol.ha_prologue import LACKING_HERE, MAGIC
from ...store.base.errors import DamagedStore, StoreError
from ...store.engine.derive_runs import Key
from ...store.engine.store import MessageStore
from ..settings.config import BrokerConfig
from .flow import Flow
from .prologue import ENDED, SlaveGate

log = logging.getLogger(__name__)

DERIVE_SECONDS = 0.02  # how long new messages wait at most, to be derived together
DERIVED_BYTES = 2 << 20  # of messages that wait at most
COMPARED_BYTES = 4 << 10  # of the end of the log, compared with the master's bytes there
RETRY_SECONDS = 5.0  # until it is tried again
SWEEP_SECONDS = 1.0
CONNECT_SECONDS = 3.0  # as long as a connection may take
CLOSE_SECONDS = 2.0  # as long as its end may take


class HaSlave:
    """Follows the master whose address `set_master` gives.

    `on_messages` gets the queues with new messages, after they are readable. `connect(slave)` makes
    the protocol of a new connection, which speaks the master's kind of replication.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        now_ms: Callable[[], int],
        on_messages: Callable[[Iterable[Key]], None],
        connect: "Callable[[HaSlave], MasterConnection] | None" = None,
        *,
        retry_seconds: float | None = None,
    ) -> None:
        """The store must follow already. `now_ms` is the wall clock: its times are shown."""
        self.config = config
        self._secret = secret_of("haSecret", config.ha_secret)
        self._tls = (
            client_context(
                auth_server=config.tls_client_auth_server,
                trust_cert_path=config.tls_client_trust_cert_path,
            )
            if config.ha_tls
            else None
        )
        self.store = store
        self.now_ms = now_ms
        self.on_messages = on_messages
        self.master: str | None = None  # its address for slaves
        self.master_durable_end = 0  # as far as it was reported
        self.flow = Flow(now_ms)
        self.heard_ms = 0
        self.reported_ms = 0
        self.retry_seconds = RETRY_SECONDS if retry_seconds is None else retry_seconds
        self._connect = connect or MasterConnection
        self._away_since_ms = now_ms()
        self._connection: MasterConnection | None = None
        self._changed = asyncio.Event()  # another master, or none
        self._task: asyncio.Task[None] | None = None
        self._told = ""  # what went wrong the last time

    @property
    def connected(self) -> bool:
        """True if there is a connection to the master."""
        return self._connection is not None

    @property
    def away_seconds(self) -> int:
        """The time for which the master has been away; 0 while there is a connection to it."""
        return 0 if self.connected else (self.now_ms() - self._away_since_ms) // 1000

    def set_master(self, address: str | None) -> None:
        """Follow the master at this address (host:port) from now on; None: there is none."""
        if address == self.master:
            return
        log.info("the master's address for slaves is %s, it was %s", address, self.master)
        self.master = address
        self._changed.set()
        if self._connection is not None:
            self._connection.close()

    def retry(self) -> None:
        """Try to connect now, unless there is a connection."""
        if self._connection is None:
            self._changed.set()

    async def start(self) -> None:
        """Begin to follow, in the loop that runs."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Leave the master. The log stays, up to the last whole message."""
        if self._task is not None:
            await end(self._task)
            self._task = None

    def sweep(self) -> None:
        """Report where the log ends when it is time, and leave a master that is silent. To be
        called each `SWEEP_SECONDS`."""
        self.flow.sample()
        if self._connection is not None:
            self._connection.sweep()

    def info(self) -> HARuntimeInfo:
        """The state of this slave, as GET_BROKER_HA_STATUS (907) answers it."""
        return HARuntimeInfo(
            master=False,
            ha_client_runtime_info=HAClientRuntimeInfo(
                master_addr=self.master,
                transferred_byte_in_second=self.flow.bytes_a_second,
                max_offset=self.store.log_end,
                last_read_timestamp=self.heard_ms,
                last_write_timestamp=self.reported_ms,
                master_flush_offset=self.master_durable_end,
            ),
        )

    def tell(self, wrong: str) -> None:
        """Log what went wrong, unless it is the same as the last time."""
        if wrong != self._told:
            self._told = wrong
            log.error("%s; tried again every %g s", wrong, self.retry_seconds)

    def is_well(self) -> None:
        """Whatever went wrong is over."""
        self._told = ""

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            if self.master is None:
                await self._changed.wait()
                continue
            await self._follow(self.master)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.retry_seconds):
                    await self._changed.wait()

    async def _follow(self, master: str) -> None:
        """Connect, and return when the connection is over."""
        host, _, port = master.rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                connection = await self._connected(host.strip("[]"), int(port))
        except TimeoutError:
            proof = " and prove haSecret" if self._secret else ""
            self.tell(
                f"can't connect to the master at {master}{proof} within {CONNECT_SECONDS:g} s"
            )
            return
        except (OSError, ValueError, OverflowError) as wrong:
            self.tell(f"can't connect to the master at {master}: {reason_of(wrong)}")
            return
        log.info("following the master at %s from %d on", master, self.store.log_end)
        try:
            self._connection = connection
            await connection.over.wait()
        finally:
            connection.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await connection.over.wait()
            await connection.finished()
            self._connection = None
            self._away_since_ms = self.now_ms()
            self._cut_torn()
        log.warning("the connection to the master at %s is over", master)

    async def _connected(self, host: str, port: int) -> "MasterConnection":
        """A connection, after the proof of the secret if there is one. OSError without a
        connection."""
        loop = asyncio.get_running_loop()
        if not self._secret:
            _, connection = await loop.create_connection(
                lambda: self._connect(self), host, port, ssl=self._tls
            )
            return connection
        transport, gate = await loop.create_connection(
            lambda: SlaveGate(self._secret), host, port, ssl=self._tls
        )
        try:
            await gate.proven
            if transport.is_closing():
                raise ConnectionError(ENDED)
        except BaseException:
            transport.abort()
            raise
        connection = self._connect(self)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if gate.rest:
            connection.data_received(gate.rest)
        return connection

    def _cut_torn(self) -> None:
        try:
            self.store.follower.cut_torn()
        except StoreError as wrong:
            log.error("%s", wrong)


class MasterConnection(asyncio.Protocol):
    """A connection to the master. `over` is set once it is closed."""

    def __init__(self, slave: HaSlave) -> None:
        self.over = asyncio.Event()
        self._slave = slave
        self._chunks = Chunks()
        self._heard_ms = slave.heard_ms = slave.now_ms()
        self._reported_ms = 0
        self._reported = -1
        self._end = 0  # of the log when the two were first compared
        self._equal_end = 0  # up to here the two logs are equal, or ours is empty
        self._derive_at = 0.0  # not before, unless DERIVED_BYTES wait (the loop's clock)
        self._deriving: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport
        self._is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        if self._deriving is not None:
            self._derive_now()
        self.over.set()

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        slave, store = self._slave, self._slave.store
        self._heard_ms = slave.heard_ms = slave.now_ms()
        slave.flow.bytes += len(data)
        try:
            has_more = self._feed(data)
        except Malformed as wrong:
            why = LACKING_HERE if data.startswith(MAGIC) else str(wrong)
            self._leave(f"what the master at {slave.master} sends is no log: {why}")
            return
        except StoreError as wrong:
            self._leave(str(wrong))
            return
        if not (has_more and self._is_compared):
            return
        if self._safe_end > self._reported:
            self._report()  # first: senders on the master wait for it
        loop = asyncio.get_running_loop()
        if loop.time() >= self._derive_at or store.log_end - store.whole_end >= DERIVED_BYTES:
            self._derive_now()
        elif self._deriving is None:
            self._deriving = loop.call_at(self._derive_at, self._derive_now)

    def sweep(self) -> None:
        """Report again when it is time; leave when nothing has come for too long."""
        now, config = self._slave.now_ms(), self._slave.config
        if now - self._heard_ms > config.ha_housekeeping_interval:
            self._leave(
                f"the master at {self._slave.master} has said nothing for {now - self._heard_ms} "
                f"ms, the limit is {config.ha_housekeeping_interval} (haHousekeepingInterval)"
            )
        elif now - self._reported_ms > self._heartbeat_ms and self._reported >= 0:
            self._report()

    def close(self) -> None:
        """Close the connection at once: bytes in flight are requested again."""
        self._is_closed = True
        self._transport.abort()

    async def finished(self) -> None:
        """Wait for what this connection has begun, after it is closed."""

    @property
    def _heartbeat_ms(self) -> int:
        return self._slave.config.ha_send_heartbeat_interval

    @property
    def _is_compared(self) -> bool:
        """True if the two logs are equal up to where this one ended."""
        return self._equal_end >= self._end

    @property
    def _safe_end(self) -> int:
        """The end of the log that is reported to the master."""
        return self._slave.store.log_end

    def _begin(self) -> None:
        """Ask for the log, from a place on where the two have to be equal."""
        store = self._slave.store
        self._end = end = store.log_end
        # Within a file, since the master may not have the one before; and 0 would ask for the last.
        self._equal_end = max(1, end - min(COMPARED_BYTES, end % store.segment_bytes)) if end else 0
        self._report()

    def _feed(self, data: bytes) -> bool:
        """Take bytes from the master; returns True if a chunk is whole by now. Malformed or
        StoreError when it does not fit."""
        chunks = self._chunks.feed(data)
        for place, chunk in chunks:
            rest = self._compared(place, chunk)
            if rest is not None:
                self._slave.store.follower.append_raw(*rest)
        return bool(chunks)

    def _compared(self, place: int, chunk: bytes) -> tuple[int, bytes] | None:
        """The bytes behind those that both logs have to have, and their offset; None without such
        bytes. DamagedStore when the logs differ."""
        store, end = self._slave.store, self._end
        if place == self._equal_end < end:
            known = chunk[: end - place]
            if not known:
                raise DamagedStore(
                    f"the master's log ends at {place}, this one at {end}: what is here was lost "
                    "there. Let this broker be the master, or delete its store folder"
                )
            if store.raw(place, len(known)) != known:
                raise DamagedStore(
                    f"the master's log has other messages than this one between {place} and {end}; "
                    "stop this broker, delete its store folder and start it again, so that it "
                    "takes the log anew"
                )
            place = self._equal_end = place + len(known)
            chunk = chunk[len(known) :]
            if not chunk:
                return None
        return place, chunk

    def _derive_now(self) -> None:
        if self._deriving is not None:
            self._deriving.cancel()
            self._deriving = None
        if self._derive():
            self._slave.is_well()
        self._derive_at = asyncio.get_running_loop().time() + DERIVE_SECONDS

    def _derive(self) -> bool:
        """Add the new messages to queues and index; False when the disk has no room for that."""
        slave, store = self._slave, self._slave.store
        if store.log_end > store.whole_end:
            try:
                found = store.follower.derive_new()
            except StoreError as wrong:
                slave.tell(f"what came from the master can't be read here yet: {wrong}")
                return False
            slave.on_messages(found)
        return True

    def _report(self) -> None:
        self._reported = self._safe_end if self._is_compared else self._equal_end
        self._reported_ms = self._slave.reported_ms = self._slave.now_ms()
        self._transport.write(self._packet(self._reported))

    def _packet(self, end: int) -> bytes:
        """A report that the log ends there."""
        return REPORT.pack(end)

    def _leave(self, reason: str) -> None:
        self._slave.tell(reason)
        self.close()
