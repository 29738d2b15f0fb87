"""Waits for the disk without stopping the loop.

ASYNC_FLUSH: the store is synced every `interval_s`, answers don't wait. SYNC_FLUSH: an answer waits
until the log is on disk up to its message; one sync in the syncer's thread releases all that came
before it began (group commit). After `timeout_ms` the answer goes out as FLUSH_DISK_TIMEOUT: the
message is stored, but nobody can promise yet that it survives a power cut. A sync that fails is
never repeated as if nothing had happened: the store takes no more writes.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ..protocol import codes
from ..protocol.aio.connection import Connection
from ..protocol.command import Command, Reply
from ..store.errors import StoreError
from ..store.store import MessageStore

log = logging.getLogger(__name__)

WAITING_MAX = 100_000  # answers that wait for the disk

LateAnswer = Callable[[], Reply | bytes]


class Syncer:
    """One thread that syncs, and the answers that wait for it."""

    def __init__(
        self, store: MessageStore, *, interval_s: float, timeout_ms: int, now_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._interval_s = interval_s
        self._timeout_ms = timeout_ms
        self._now_ms = now_ms
        self._waiting: deque[tuple[int, int, Connection, Command, Reply | bytes, LateAnswer]] = (
            deque()
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="aerobee-syncer")
        self._needed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._after_sync: list[Callable[[], None]] = []
        self._reaching: list[asyncio.Future[None]] = []  # who waits for the next sync to end
        self.failure: str | None = None

    @property
    def is_full(self) -> bool:
        """So many answers wait that no message is to be taken before the disk has caught up."""
        return len(self._waiting) >= WAITING_MAX

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="syncer")

    def on_synced(self, callback: Callable[[], None]) -> None:
        """Called in the loop after every sync: more of the log may be readable."""
        self._after_sync.append(callback)

    def after(
        self,
        end: int,
        connection: Connection,
        command: Command,
        reply: Reply | bytes,
        late: LateAnswer,
    ) -> None:
        """Answer once the log is on disk up to `end`; with `late()` when that takes too long."""
        deadline = self._now_ms() + self._timeout_ms
        if len(self._waiting) >= WAITING_MAX:
            connection.answer(command, late())
            return
        self._waiting.append((end, deadline, connection, command, reply, late))
        self._needed.set()

    async def reach(self, end: int) -> bool:
        """Wait until the log is on disk up to `end`; False when it never will be."""
        while self._store.durable_end < end and self.failure is None:
            done = asyncio.get_running_loop().create_future()
            self._reaching.append(done)
            self._needed.set()
            await done
        return self.failure is None

    def sweep(self) -> None:
        """Answer what has waited too long, also while the disk takes its time.

        After a failure that is an error: nobody knows whether the message will be there.
        """
        now = self._now_ms()
        waiting = self._waiting
        while waiting and (waiting[0][1] <= now or self.failure is not None):
            _, _, connection, command, _, late = waiting.popleft()
            if self.failure is None:
                connection.answer(command, late())
            else:
                reply = Reply(codes.SERVICE_NOT_AVAILABLE, remark=self.failure)
                connection.answer(command, reply)

    async def stop(self) -> None:
        """Sync what is left, answer what waits, end the thread."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.failure is None:
            await self._sync()
        self._thread.shutdown(wait=True)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._needed.wait(), self._interval_s)
            self._needed.clear()
            if self.failure is None:
                await self._sync()
            self.sweep()
            if self._waiting:
                self._needed.set()
                if self.failure is not None:
                    await asyncio.sleep(0.05)

    async def _sync(self) -> None:
        try:
            plan = self._store.sync_plan()
            if plan is not None:
                await asyncio.get_running_loop().run_in_executor(self._thread, plan.run)
        except OSError as wrong:
            self._fail(self._store.sync_failed(wrong))
            return
        except StoreError as wrong:
            self._store.refuse_writes(str(wrong))
            self._fail(str(wrong))
            return
        if plan is not None:
            self._store.synced(plan)
        durable = self._store.durable_end
        waiting = self._waiting
        while waiting and waiting[0][0] <= durable:
            _, _, connection, command, reply, _ = waiting.popleft()
            connection.answer(command, reply)
        for callback in self._after_sync:
            callback()
        self._wake()

    def _fail(self, reason: str) -> None:
        self.failure = reason
        log.critical("%s", reason)
        self._wake()

    def _wake(self) -> None:
        reaching, self._reaching = self._reaching, []
        for done in reaching:
            if not done.done():
                done.set_result(None)
