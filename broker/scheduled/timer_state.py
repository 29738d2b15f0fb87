"""The timer's progress, and the files that hold it: wheel, log, check.

After a clean stop they are used as they are. Else the wheel is rebuilt from the timer log, and the
queue of the wheel's topic is read again from the last certain position; messages that are in the
timer log already are recognized and skipped. So nothing is lost, and only deliveries after the last
noted progress may be repeated.
"""

import logging
from collections.abc import Callable

from ...protocol.message.record import decode_record
from ...store.base.errors import StoreError
from ...store.engine.store import MessageStore
from ...store.timer import timer_check
from ...store.timer.timer_check import Progress, TimerCheck, TimerCheckFile
from ...store.timer.timer_log import QUEUE, WHEEL_TOPIC, TimerLog
from ...store.timer.timer_recovery import KnownPlaces, recover
from ...store.timer.timer_wheel import SLOTS, TimerWheel
from ..runtime.persistent import VERSIONS_AHEAD
from ..settings.config import BrokerConfig

log = logging.getLogger(__name__)

IDLE_SYNC_MS = 60_000  # how old the time on the disk may be while nothing is due


class TimerState:
    """The files, and the numbers that the work moves on. Times in ms."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, now_ms: Callable[[], int]
    ) -> None:
        root = config.store_dir
        self.precision_ms = config.timer_precision_ms
        self.read_ms = 0  # the slot to deliver next; all before it are done
        self.delivered = 0  # units of that slot
        self.queue_offset = 0  # the message to put into the wheel next
        self.waiting = 0  # messages in the wheel, the slot in delivery included
        self.wheel = TimerWheel(root / "timerwheel", self.precision_ms)
        self.log = TimerLog(root / "timerlog", config.mapped_file_size_timer_log)
        self.check = TimerCheck()
        # The check's version is the master's: what is noted here is no newer than that.
        self.follows = False
        self._store = store
        self._now_ms = now_ms
        self._file = TimerCheckFile(root / "config" / "timercheck")
        self._noted = False  # since the last sync began
        self._synced_ms = 0
        self._pending: Progress | None = None  # synced, but rests on a log that is not
        self._known: KnownPlaces | None = None  # messages of the queue with a unit

    def floor(self, time_ms: int) -> int:
        """The tick that a time is in."""
        return time_ms // self.precision_ms * self.precision_ms

    def is_known(self, place: int) -> bool:
        """True if a message of the queue has its unit already, from before a crash."""
        known = self._known
        if known is None:
            return False
        if known.ends_before(place):
            self._known = None
            return False
        return place in known

    # ---- starting and stopping

    def load(self) -> None:
        """Take up where the last stop, or crash, was. StoreError when the files can't be read."""
        store, timer_log = self._store, self.log
        found = timer_check.load(self._file.path)
        timer_log.load()
        self.wheel.load()
        self.check = found or TimerCheck()
        own = self.check.own
        if own is not None and own.commit_log_end > store.log_end:
            own = None  # a power cut took deliveries: only RocketMQ's numbers hold
        if own is not None and own.precision_ms != self.precision_ms:
            self._refuse_other_ticks(own)
        if own is not None:
            self.read_ms, self.delivered = own.read_ms, own.delivered
            self.queue_offset = own.queue_offset
        if own is not None and own.is_clean and timer_log.holds(own.timer_log_end):
            timer_log.cut(own.timer_log_end)
            self.waiting = own.waiting
        else:
            self._rebuild(own, is_new=found is None)
        least = max(store.min_offset(WHEEL_TOPIC, QUEUE), 0)
        most = store.next_offset(WHEEL_TOPIC, QUEUE)
        self.queue_offset = min(max(self.queue_offset, least), most)
        self.note()

    def cut_at_log(self) -> None:
        """Drop the messages behind the end of the log, which was cut while it was in use."""
        store = self._store
        found = recover(self.log, self.wheel, self.read_ms, store.log_end)
        self.waiting = found.waiting
        self._known = self._pending = None
        self.queue_offset = min(self.queue_offset, store.next_offset(WHEEL_TOPIC, QUEUE))
        self.note()

    def lead(self) -> None:
        """Give the check a version newer than that of the master, which it followed."""
        self.follows = False
        self.check.changed_ms = self._now_ms()
        self.check.changes += VERSIONS_AHEAD
        self.note()

    def close(self) -> None:
        """Write and sync everything, so that the next start needs no recovery."""
        try:
            self.sync()
            own = self._progress()
            if self._store.refusal is None and self._store.durable_end >= own.commit_log_end:
                self._promote(own)
                own.is_clean = True
                self.check.own = own
                self._file.save(self.check)
                self._file.sync()
        finally:
            self.log.release()
            self.wheel.release()
            self._file.release()

    def _refuse_other_ticks(self, own: Progress) -> None:
        """StoreError when messages wait in a wheel of other ticks: they would come too early."""
        wheel = TimerWheel(self.wheel.path, own.precision_ms)
        used = wheel.next_used(own.read_ms, own.read_ms + SLOTS * own.precision_ms)
        wheel.release()
        is_behind = own.queue_offset < self._store.max_offset(WHEEL_TOPIC, QUEUE)
        if used is not None or is_behind:
            raise StoreError(
                f"timerPrecisionMs is {self.precision_ms}, but {max(own.waiting, 1)} timer "
                f"messages wait in a wheel with ticks of {own.precision_ms} ms; set it back until "
                "they are delivered"
            )

    def _rebuild(self, own: Progress | None, *, is_new: bool) -> None:
        """Rebuild the wheel from the timer log, and find where the queue continues."""
        store, check = self._store, self.check
        if own is None:
            self.read_ms = check.read_ms
        found = recover(self.log, self.wheel, self.read_ms, store.log_end)
        if own is not None and not self.log.reaches(own.timer_log_end):
            # A power cut took units of messages that `own` has in the wheel: only RocketMQ's
            # numbers hold.
            own, self.read_ms, self.delivered = None, check.read_ms, 0
            found = recover(self.log, self.wheel, self.read_ms, store.log_end)
        self.waiting = found.waiting
        if self.read_ms == 0:  # never noted: better twice than not at all
            self.read_ms = self.floor(found.earliest_ms or self._now_ms())
        if own is None:
            offset = check.queue_offset
            data = store.message_at(found.last_place) if found.last_place >= 0 else None
            if data is not None:
                offset = decode_record(data).queue_offset + 1
            # Messages after the last unit may have been due at once: only noted progress is sure.
            self.queue_offset = offset if is_new else min(offset, check.master_queue_offset)
        entries = store.entries(WHEEL_TOPIC, QUEUE, max(self.queue_offset, 0), 1)
        if entries:
            self._known = KnownPlaces(self.log, store.log_end, entries[0][0])
        if found.last_place >= 0:
            log.info("the timer wheel is made again: %d messages wait in it", self.waiting)

    # ---- noting

    def note(self) -> None:
        """Note how far the work has come. All that was delivered must be in the log."""
        self._noted = True
        self._save()

    def unsynced(self) -> Progress | None:
        """The progress for `sync`, in any thread, and then `synced`; None when there is nothing to
        sync."""
        self._promote_pending()
        progress = self._progress()
        is_idle = not self._noted and progress.read_ms - self._synced_ms < IDLE_SYNC_MS
        if is_idle or self._pending is not None:
            return None
        self._noted = False  # what is noted while another thread syncs needs the next sync
        return progress

    def sync(self) -> None:
        """Wait until the files are on disk. OSError as the system gives it."""
        try:
            self.log.sync()
            self.wheel.sync()
            self._file.sync()
        except BaseException:
            self._noted = True
            raise

    def synced(self, progress: Progress) -> None:
        """Note that the files on disk go as far as this: so do RocketMQ's numbers, once the log
        does."""
        self._synced_ms = progress.read_ms
        self._pending = progress
        self._promote_pending()
        self.log.drop_before(self._store.log_start)

    def _promote_pending(self) -> None:
        pending = self._pending
        if pending is None or self._store.durable_end < pending.commit_log_end:
            return
        self._pending = None
        self._promote(pending)
        self._save()

    def _save(self) -> None:
        if self._store.refusal is not None:  # the log has dropped the last deliveries
            return
        self.check.own = self._progress()
        self._file.save(self.check)

    def _progress(self) -> Progress:
        return Progress(
            self.read_ms,
            self.delivered,
            self.queue_offset,
            self.log.end,
            self._store.log_end,
            self.precision_ms,
            self.waiting,
        )

    def _promote(self, progress: Progress) -> None:
        check = self.check
        changed = (progress.read_ms, progress.queue_offset) != (check.read_ms, check.queue_offset)
        check.read_ms, check.flushed = progress.read_ms, progress.timer_log_end
        check.queue_offset = check.master_queue_offset = progress.queue_offset
        if changed and not self.follows:
            check.changed_ms = self._now_ms()
            check.changes += 1
