"""Delays responses until the disk, and slaves, have their messages; the loop goes on meanwhile.

ASYNC_FLUSH: the store is synced every `interval_s`, responses don't wait. SYNC_FLUSH: a response
waits until the log is on disk up to its message. One sync in the syncer's thread releases all
messages that arrived before it began (group commit); messages that arrive during a sync are covered
by the next one, which follows at once. After `timeout_ms` the response is FLUSH_DISK_TIMEOUT: the
message is stored, but it may not survive a power cut. A failed sync is never repeated as if nothing
had happened: the store takes no more writes, and all waiting senders get an error. Where a file
can't be opened, for want of file numbers or memory, no sync has failed: the next round tries again.

A sync begins at the end of a loop iteration, to release all sends of that iteration. The loop's
thread hands a plan to the other one through a queue. Where the disk is quick, the loop waits for
the result, at most `threads.QUICK_SECONDS`: two running threads take the interpreter from each
other so often that this costs more than the disk does. Otherwise, or when the sync takes longer,
the loop goes on and the thread calls it back.

A SYNC_MASTER's response also waits until enough slaves have its message, at most
`slave_timeout_ms`; then it is FLUSH_SLAVE_TIMEOUT, which like the other means stored. A response
goes out when both waits are over. If both took too long it names the slaves, as in RocketMQ.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from ...protocol import codes
from ...protocol.aio.connection import Connection
from ...protocol.codec.frame import decode_all
from ...protocol.command import Command, Response
from ...store.base.errors import Shortage, StoreError
from ...store.engine.store import MessageStore
from ...store.engine.sync import SyncPlan
from .threads import SyncResult, SyncThread, Threads

log = logging.getLogger(__name__)

WAITING_MAX = 100_000  # responses that wait for the disk or for slaves
LAST_SECONDS = 2.0  # how long a stop waits for slaves

Answers = list[tuple[Connection, Command, Response | bytes]]
# Makes the response that is sent instead, for FLUSH_DISK_TIMEOUT or FLUSH_SLAVE_TIMEOUT.
Late = Callable[[Response | bytes, int], Response | bytes]


class Responses(Protocol):
    """Responses that are ready and go out together; `len()` is how many requests they answer."""

    def __len__(self) -> int: ...

    def respond(self) -> None:
        """Send them in the loop iteration in which their requests came: they wait for nothing."""

    def send(self, waited_ms: int) -> None:
        """Send them: the messages are safe now."""

    def send_late(self, code: int, waited_ms: int) -> None:
        """Send them with this code, FLUSH_DISK_TIMEOUT or FLUSH_SLAVE_TIMEOUT."""

    def refuse(self, remark: str, waited_ms: int) -> None:
        """Send SERVICE_NOT_AVAILABLE with this remark instead: the disk failed."""


# End in the log, start of the wait in ms, the responses.
ResponseGroup = tuple[int, int, Responses]


def late_response(reply: Response | bytes, code: int) -> Response:
    """The same response with this code: the message is stored, but not known to be safe."""
    if isinstance(reply, Response):
        return Response(code, reply.fields)
    (answer,) = decode_all(reply)
    return Response(code, answer.fields())


class EachResponse:
    """Responses to single requests, each with its connection."""

    __slots__ = ("_answers", "_late")

    def __init__(self, answers: Answers, late: Late = late_response) -> None:
        self._answers = answers
        self._late = late

    def __len__(self) -> int:
        return len(self._answers)

    def respond(self) -> None:
        for connection, command, reply in self._answers:
            connection.respond(command, reply)

    def send(self, waited_ms: int) -> None:
        for connection, command, reply in self._answers:
            connection.respond_late(command, reply, waited_ms)

    def send_late(self, code: int, waited_ms: int) -> None:
        for connection, command, reply in self._answers:
            connection.respond_late(command, self._late(reply, code), waited_ms)

    def refuse(self, remark: str, waited_ms: int) -> None:
        for connection, command, _ in self._answers:
            refused = Response(codes.SERVICE_NOT_AVAILABLE, remark=remark)
            connection.respond_late(command, refused, waited_ms)


class Syncer:
    """One thread that syncs, and the responses that wait for it."""

    def __init__(
        self,
        store: MessageStore,
        *,
        interval_s: float,
        timeout_ms: int,
        now_ms: Callable[[], int],
        is_sync: bool = True,
        has_slaves: bool = False,
        slave_timeout_ms: int = 0,
        threads: Threads | None = None,
    ) -> None:
        """`is_sync`: responses wait for the disk; `has_slaves`: they wait until `replicated` says
        that enough slaves have their messages."""
        self._store = store
        self._is_sync = is_sync
        self._has_slaves = has_slaves
        self._slave_timeout_ms = slave_timeout_ms
        self._replicated = 0  # enough slaves have the log up to here
        self._interval_s = interval_s
        self._timeout_ms = timeout_ms
        self._now_ms = now_ms
        self._groups: deque[ResponseGroup] = deque()
        self._waiting = 0  # responses in the groups
        self._threads = threads or Threads()
        self._thread: SyncThread
        self.is_due = False  # a sync begins at the end of this loop iteration
        self._is_syncing = False  # the thread has a plan
        self._is_stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._after_sync: list[Callable[[], None]] = []
        self._reaching: list[asyncio.Future[None]] = []  # waits for the end of the next sync
        # A stop waits for it: set once no response waits.
        self._drained: asyncio.Event | None = None
        self.failure: str | None = None
        self.shortage = ""  # why no more messages may wait for slaves; "" while they may
        self.want = ""  # what the last round lacked, so that nothing was synced; "" for nothing

    @property
    def for_responses(self) -> "Syncer | None":
        """The syncer for responses; None where responses wait for neither disk nor slaves."""
        return self if self._is_sync or self._has_slaves else None

    @property
    def is_full(self) -> bool:
        """True if too many responses wait: then no more messages are accepted until some are
        sent."""
        return self._waiting >= WAITING_MAX

    @property
    def room(self) -> int:
        """The number of responses that may wait besides those that do."""
        return max(0, WAITING_MAX - self._waiting)

    def drop(self) -> None:
        """Forget the responses that wait: their messages may not survive, and their connections
        are about to be closed."""
        self._groups.clear()
        self._waiting = 0

    def start(self) -> None:
        """Start the thread and the timer, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = self._threads.syncs(self._loop, self._ended)
        self._timer = self._loop.call_later(self._interval_s, self._tick)

    def on_synced(self, callback: Callable[[], None]) -> None:
        """Called in the loop after every sync: more of the log may be readable."""
        self._after_sync.append(callback)

    def each(self, answers: Answers, late: Late = late_response) -> EachResponse:
        """Responses to single requests, for `after`. Where waiting takes too long `late` makes the
        responses to send instead, as it does at once for those for which there is no `room`."""
        room = self.room
        if len(answers) > room:
            code = codes.FLUSH_SLAVE_TIMEOUT if self._has_slaves else codes.FLUSH_DISK_TIMEOUT
            for connection, command, reply in answers[room:]:
                connection.respond(command, late(reply, code))
            answers = answers[:room]
        return EachResponse(answers, late)

    def after(self, end: int, responses: Responses) -> None:
        """Send these responses once the log is safe up to `end`: on disk, on slaves, or both. There
        must be `room` for them."""
        self._groups.append((end, self._now_ms(), responses))
        self._waiting += len(responses)
        if self._is_sync:
            self._want()

    def replicated(self, end: int) -> None:
        """Enough slaves have the log up to `end`."""
        if end > self._replicated:
            self._replicated = end
            if self._groups:
                self._send(self._released())

    async def reach(self, end: int) -> bool:
        """Wait until the log is on disk up to `end`; False when it never will be."""
        while self._store.durable_end < end and self.failure is None:
            if self._is_stopped:
                return False
            self._want()
            await self._end_of_sync()
        return self.failure is None

    async def sync(self) -> None:
        """Sync the log now, queues and index if their time has come; wait for the end."""
        if self._is_syncing:
            await self._end_of_sync()
        if not self._is_syncing:
            self._begin()
        if self._is_syncing:
            await self._end_of_sync()

    def sweep(self) -> None:
        """Send the responses that have waited too long, also while a sync is running.

        After a failed sync they are errors: whether the message survives is unknown.
        """
        now = self._now_ms()
        while self._groups:
            code = self._late_code(self._groups[0], now)
            if not code and self.failure is None:
                break
            self._give_up(code)

    def _late_code(self, group: ResponseGroup, now: int) -> int:
        """The code for a group that has waited too long; 0 while it may wait."""
        end, since_ms, _ = group
        if self._has_slaves and self._replicated < end:
            return codes.FLUSH_SLAVE_TIMEOUT if since_ms + self._slave_timeout_ms <= now else 0
        return codes.FLUSH_DISK_TIMEOUT if since_ms + self._timeout_ms <= now else 0

    def _give_up(self, code: int) -> None:
        """Send the responses of the oldest group without waiting any longer."""
        _, since_ms, responses = self._groups.popleft()
        self._waiting -= len(responses)
        waited_ms = self._now_ms() - since_ms
        if self.failure is None:
            responses.send_late(code, waited_ms)
        else:
            responses.refuse(self.failure, waited_ms)

    async def drain(self, seconds: float) -> None:
        """Wait until no response waits, at most this long."""
        if self._groups:
            self._drained = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._drained.wait()

    async def stop(self) -> None:
        """Sync everything, send the waiting responses, end the thread."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        await self.sync()
        if self._groups and self._has_slaves and self.failure is None:
            await self.drain(LAST_SECONDS)
            while self._groups:
                self._give_up(codes.FLUSH_SLAVE_TIMEOUT)
        while self._groups:  # a Shortage lasts
            self._give_up(codes.FLUSH_DISK_TIMEOUT)
        self._thread.stop()

    # ---- in the loop's thread

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._interval_s, self._tick)
        if not self._is_syncing:
            self._begin()

    def _want(self) -> None:
        """Sync at the end of this loop iteration, or as soon as the thread is free. During a
        Shortage the timer alone tries."""
        if not (self.is_due or self._is_syncing or self.want):
            self.is_due = True
            self._loop.call_soon(self.end_of_tick)  # unless the loop iteration's end comes first

    def end_of_tick(self) -> None:
        """Begin the requested sync, and send its responses at once if the disk is quick."""
        if not self.is_due:
            return
        self.is_due = False
        if self._is_syncing or self._is_stopped:
            return
        plan = self._plan()
        if plan is not None:
            self._take_if_ended(self._thread.begin_watched(plan))

    def _begin(self) -> None:
        plan = self._plan()
        if plan is not None:
            self._thread.begin(plan)

    def _plan(self) -> SyncPlan | None:
        """The plan for the next sync; None when there is nothing to sync, or no sync is
        possible."""
        if self.failure is not None:
            self.sweep()
            self._wake()
            return None
        try:
            plan = self._store.sync_plan()
        except Shortage as wrong:
            self._wait_for_more(wrong)
            return None
        except (OSError, StoreError) as wrong:
            self._fail(wrong)
            return None
        if plan is None:
            self._answer(self._released())
            return None
        self._is_syncing = True
        return plan

    def _ended(self) -> None:
        """Take the result of a finished plan, unless it was taken already."""
        self._take_if_ended(self._thread.result())

    def _take_if_ended(self, result: SyncResult | None) -> None:
        if result is not None:
            self._take(*result)

    def _take(self, plan: SyncPlan, wrong: Exception | None) -> None:
        """Handle a plan's result: send the responses that are safe now, or fail."""
        self._is_syncing = False
        if isinstance(wrong, Shortage):
            self._store.sync_undone(plan)
            self._wait_for_more(wrong)
            return
        if wrong is not None:
            self._fail(wrong)
            return
        if self.want:
            log.warning("the store is synced again")
            self.want = ""
        self._store.synced(plan)
        released = self._released()
        is_wanted = self._is_sync and self._groups and self._groups[-1][0] > self._store.durable_end
        if is_wanted and not self._is_stopped:
            self._begin()  # it runs while the released responses are sent
        self._answer(released)

    def _released(self) -> list[tuple[int, Responses]]:
        """Take out the responses that are safe to send."""
        groups = self._groups
        safe = self._store.durable_end if self._is_sync else self._replicated
        if self._has_slaves:
            safe = min(safe, self._replicated)
        released = []
        while groups and groups[0][0] <= safe:
            _, since_ms, responses = groups.popleft()
            self._waiting -= len(responses)
            released.append((since_ms, responses))
        return released

    def _answer(self, released: list[tuple[int, Responses]]) -> None:
        self._send(released)
        for callback in self._after_sync:
            callback()
        self._wake()

    def _send(self, released: list[tuple[int, Responses]]) -> None:
        now = self._now_ms() if released else 0
        for since_ms, responses in released:
            responses.send(now - since_ms)
        if self._drained is not None and not self._groups:
            self._drained.set()

    def _wait_for_more(self, wrong: Shortage) -> None:
        """Leave the sync to the next round."""
        if not self.want:
            log.warning("nothing is synced for now: %s", wrong)
        self.want = str(wrong)
        self._wake()

    def _fail(self, wrong: Exception) -> None:
        if isinstance(wrong, StoreError):
            self.failure = str(wrong)
            self._store.refuse_writes(self.failure)
        else:
            self.failure = self._store.sync_failed(wrong)
        log.critical("%s", self.failure)
        self.sweep()
        self._wake()

    def _wake(self) -> None:
        reaching, self._reaching = self._reaching, []
        for done in reaching:
            if not done.done():
                done.set_result(None)

    async def _end_of_sync(self) -> None:
        done = self._loop.create_future()
        self._reaching.append(done)
        await done
