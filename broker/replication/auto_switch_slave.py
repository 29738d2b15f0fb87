"""The slave's end of AutoSwitch replication: it cuts its log where the master's parts from it.

Connected, it says its controller id, gets the epochs of the master's log, and searches for the
newest epoch that both know. What this log has behind the end of that epoch is copied to the folder
`cut` and goes. Then the slave follows the master's log as one without a controller does. With
SYNC_FLUSH it reports what its disk has.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from ...protocol.aio.tasks import ended
from ...protocol.errors import Malformed
from ...protocol.ha_auto_switch import Chunk, MasterHello, MasterStream, SlaveHello, report
from ...store.base.errors import DamagedStore, StoreError
from ...store.epochs import EpochEntry, consistent_point
from ...store.epochs.entries import disorder
from . import slave as without_controller
from .slave import HaSlave, MasterConnection

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0  # until a master is tried again
SWEEP_SECONDS = 0.5  # between two calls of `HaSlave.sweep`
HEARTBEAT_MS = 1_000  # at most, between two reports; haSendHeartbeatInterval may be less


class AutoSwitch(NamedTuple):
    """The part of a slave in controller mode besides following. `HaSlave` gets its `connection`.

    `broker_id` is the controller id of this broker. `on_confirmed()` is called when more of the log
    may be read, `on_cut(offset)` after the log was cut at `offset`: tables with places in the log
    or in queues must drop what lies behind it. `sync_to(end)` waits until the log is on disk up to
    `end`; it is needed with SYNC_FLUSH, and not used without.
    """

    broker_id: int
    on_cut: Callable[[int], None]
    on_confirmed: Callable[[], None]
    sync_to: Callable[[int], Awaitable[bool]] | None

    def connection(self, slave: HaSlave) -> MasterConnection:
        """The protocol of a new connection. The store must be in controller mode."""
        return AutoSwitchConnection(slave, self)


class AutoSwitchConnection(MasterConnection):
    """A connection to a master in controller mode."""

    def __init__(self, slave: HaSlave, switch: AutoSwitch) -> None:
        super().__init__(slave)
        self._switch = switch
        self._sync_to = switch.sync_to if slave.store.settings.sync_flush else None
        self._stream = MasterStream()
        self._hello: MasterHello | None = None
        self._agreeing: asyncio.Task[None] | None = None
        self._syncing: asyncio.Task[None] | None = None

    async def finished(self) -> None:
        for task in (self._agreeing, self._syncing):
            if task is not None:
                await ended(task)

    def _begin(self) -> None:
        """Tell the id of this broker; the master answers with its epochs."""
        config = self._slave.config
        self._end, self._equal_end = 1, 0  # nothing is compared yet
        hello = SlaveHello(self._switch.broker_id, config.sync_from_last_file, config.async_learner)
        self._transport.write(hello.encode())

    def _feed(self, data: bytes) -> bool:
        packets = self._stream.feed(data)
        for packet in packets:
            if isinstance(packet, Chunk):
                if self._reported < 0:
                    raise Malformed("a chunk of the log comes before the epochs")
                self._take(packet)
            elif self._hello is None:
                self._hello = packet
                self._transport.pause_reading()
                self._agreeing = asyncio.create_task(self._agree(packet))
            else:
                raise Malformed("it shakes hands a second time")
        if self._sync_to is not None and self._is_compared and self._reported >= 0:
            self._sync()
        return bool(packets)

    # ---- where the two logs part

    async def _agree(self, hello: MasterHello) -> None:
        """Cut this log where the master's parts from it, and ask for the rest."""
        try:
            await self._cut(hello)
            if self._sync_to is not None:
                await self._sync_to(self._slave.store.log_end)
            if not self._is_closed:
                self._ask()
                self._transport.resume_reading()
        except (Malformed, StoreError) as wrong:
            self._leave(f"the master at {self._slave.master} can't be followed: {wrong}")

    async def _cut(self, hello: MasterHello) -> None:
        store = self._slave.store
        theirs = tuple(EpochEntry(*entry) for entry in hello.epochs)
        wrong = disorder(theirs)
        if wrong is not None:
            raise Malformed(wrong)
        # Epochs without a message say nothing about the log.
        store.epochs.cut(store.log_end)
        own = store.epochs.entries
        if not own and store.log_end <= hello.end:
            return  # the log is empty, or its last bytes decide
        point = consistent_point(own, store.log_end, theirs, hello.end)
        if point is None or point < store.log_start:
            raise DamagedStore(
                f"the two logs have no epoch in common, so nobody knows where they part (epochs "
                f"here: {_shown(own)}, there: {_shown(theirs)}; the log here has bytes from "
                f"{store.log_start} to {store.log_end}, there to {hello.end}). Let this broker be "
                "the master, or delete its store folder, so that it takes the log anew"
            )
        plan = store.cut_plan(point)
        if plan is None:
            return
        await asyncio.to_thread(plan.run)
        if not self._is_closed:
            store.cut(plan)
            self._switch.on_cut(point)

    def _ask(self) -> None:
        """Ask for the log, from a place on where the two have to be equal."""
        store = self._slave.store
        end = self._end = store.log_end
        back = min(without_controller.COMPARED_BYTES, end - store.log_start)
        if store.epochs.entries:
            back = min(back, end % store.segment_bytes)  # the master may lack the file before
        self._equal_end = max(1, end - back) if end else 0
        self._adopt()
        self._report()

    def _adopt(self) -> None:
        """Take the master's epochs for a log that had none, once its last bytes are equal."""
        store, hello = self._slave.store, self._hello
        if hello is not None and self._end and self._is_compared and not store.epochs.entries:
            store.epochs.adopt(entry for entry in hello.epochs if entry[1] < self._end)

    # ---- the log

    def _take(self, chunk: Chunk) -> None:
        """Take the new bytes of a chunk. StoreError when they don't continue this log."""
        store = self._slave.store
        if chunk.data:
            rest = self._compared(chunk.place, chunk.data)
            if rest is not None:
                self._adopt()
                self._note_epoch(chunk)
                store.follower.append_raw(*rest)
            elif self._is_compared:
                self._adopt()
        elif store.log_end and chunk.place != self._expected_place:
            raise DamagedStore(
                f"the master goes on at {chunk.place} of the log, and {self._expected_place} was "
                "asked for; it is asked again"
            )
        if self._is_compared and store.confirm(min(chunk.confirmed, store.log_end)):
            self._switch.on_confirmed()

    @property
    def _expected_place(self) -> int:
        return self._slave.store.log_end if self._is_compared else self._equal_end

    def _note_epoch(self, chunk: Chunk) -> None:
        """Note a new epoch before its first message. DamagedStore when it can't begin there."""
        store = self._slave.store
        epoch, start = chunk.epoch, chunk.epoch_start
        entries = store.epochs.entries
        if entries and entries[-1] == (epoch, start):
            return
        # A Java master names the next epoch with the last chunk of the one before.
        least = store.log_end if entries else 0
        if not least <= start <= chunk.place + len(chunk.data):
            raise DamagedStore(
                f"the master sends bytes from {chunk.place} on as of epoch {epoch}, which begins "
                f"at {start}; the log here ends at {store.log_end}, its epochs are "
                f"{_shown(entries)}. Delete its store folder, so that it takes the log anew"
            )
        store.epochs.append(epoch, start)

    # ---- reports

    @property
    def _heartbeat_ms(self) -> int:
        return min(HEARTBEAT_MS, super()._heartbeat_ms)

    @property
    def _safe_end(self) -> int:
        store = self._slave.store
        return store.log_end if self._sync_to is None else store.durable_end

    def _packet(self, end: int) -> bytes:
        return report(end)

    def _sync(self) -> None:
        """Have the disk take the new bytes, and report them then."""
        store = self._slave.store
        if self._syncing is None and store.durable_end < store.log_end:
            self._syncing = asyncio.create_task(self._sync_all())

    async def _sync_all(self) -> None:
        store = self._slave.store
        assert self._sync_to is not None
        try:
            while store.durable_end < store.log_end and not self._is_closed:
                if not await self._sync_to(store.log_end):
                    return  # the disk has failed, or the broker stops
                if not self._is_closed and self._safe_end > self._reported:
                    self._report()
        finally:
            self._syncing = None


def _shown(entries: Iterable[EpochEntry]) -> str:
    return ", ".join(map(str, entries)) or "none"
