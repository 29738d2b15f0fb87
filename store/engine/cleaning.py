"""Deletion of old files: first those of the log, as `retention` decides, then queues and index.

The work comes in steps, and the caller pauses between them. A step has already unlinked a file; the
slow part of the deletion is left for another thread. Readers that hold views into a file keep them,
and the disk space is freed when the last view is released.

The log is deleted first. An entry whose message is gone is reported as such, and after a crash the
next round continues. In the opposite order messages would be lost.
"""

import logging
import mmap
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..base.errors import StoreError
from ..base.retention import LogFile, Room, Verdict, doomed, judge
from ..files import disk
from ..files.segment import Segment, sync_folder
from ..files.segments import Segments
from ..queues.batch_queue import BatchQueue
from ..queues.consume_queue import ConsumeQueue
from .holding import Held, HeldFiles, Holding
from .state import StoreState
from .topic_retention import NO_PLACE, TopicRetention

log = logging.getLogger(__name__)

QUEUES_PER_STEP = 64  # queues whose least offset is corrected before others get their turn
CAUSE = "disk"


@dataclass(frozen=True, slots=True)
class Step:
    """The work to do now, in any thread, and the pause before the next step."""

    work: Callable[[], None] | None = None
    pause_ms: int = 0


@dataclass(slots=True)
class Leaving:
    """A file without a name that a reader still holds; `size` in bytes, `since` in ms."""

    segment: Segment
    held: "weakref.ref[mmap.mmap]"
    size: int
    since_ms: int


class Cleaner:
    """Deletes old files of a store."""

    def __init__(self, state: StoreState) -> None:
        self._state = state
        self._log = state.log
        self._queues = state.queues
        self._index = state.index
        self._topics = TopicRetention(state)
        self._holding = Holding(state)
        self._told: tuple[str, str] | None = None  # group and topic of which the log told last
        self.held_files: HeldFiles | None = None  # as the last round found them
        self._retry_ms = 0  # not before then, when the first file could not be deleted
        self._cleaned_start = -1  # the start of the log when queues and index were last cleaned
        self._leaving: list[Leaving] = []

    def clean(self, *, by_hand: bool = False) -> Iterator[Step]:
        """One round, in steps, each to be finished before the next is asked for.

        It checks the disks and refuses messages or takes them again; then files go. `by_hand`
        lets the expired ones go at any hour. StoreError when the disk fails.
        """
        now_ms = self._state.now_ms()
        yield from self._forget(now_ms)
        verdict = judge(self._state.settings.rules, self._rooms(), now_ms, by_hand=by_hand)
        self._admit(verdict)
        yield from self.expire()
        yield from self._clean_log(verdict, now_ms)
        if self._log.start != self._cleaned_start:
            self._state.epochs.drop_before(self._log.start)
            yield from self.clean_queues()

    def expire(self) -> Iterator[Step]:
        """Move the least offsets of queues whose topics have a retention of their own, in steps."""
        for _ in self._topics.expire(self._state.now_ms()):
            yield Step()

    def clean_queues(self) -> Iterator[Step]:
        """The files of queues and index that lead to nothing in the log any more, in steps.

        The least offset of each queue becomes that of its first message in the log. A queue keeps
        its last file, and with it the number that its next message gets.
        """
        start = self._log.start
        queues = list(self._queues.all())
        for number, queue in enumerate(queues, 1):
            if self._is_there(queue):
                queue.correct_min(start)
            if number % QUEUES_PER_STEP == 0:
                yield Step()
        pause_ms = self._state.settings.rules.queue_pause_ms
        is_complete = True
        for number, queue in enumerate(queues, 1):
            while (row := self._row_to_shorten(queue, start)) is not None:
                yield self._retire_first(row, pause_ms)
            # A file that has to wait for a sync goes in the next round.
            is_complete &= queue.first_file_before(start) is None
            if number % QUEUES_PER_STEP == 0:
                yield Step()
        while (segment := self._index.take_before(start)) is not None:
            yield self._retire(segment, pause_ms)
        if is_complete:
            self._cleaned_start = start

    def disk_ratio(self) -> float:
        """The used part of the commit log's disk, 0 to 1, rounded up to a hundredth."""
        return self._room(self._state.log_folder, "commit log").percent / 100

    def release(self) -> None:
        """Close the deleted files that readers still hold."""
        for each in self._leaving:
            each.segment.release()

    # ---- inside

    def _admit(self, verdict: Verdict) -> None:
        if verdict.refusal is not None:
            if CAUSE not in self._log.paused:
                log.error("no more messages are taken: %s", verdict.refusal)
            self._log.pause(CAUSE, verdict.refusal)
        elif verdict.is_clear and CAUSE in self._log.paused:
            log.warning("there is room on the disk again, messages are taken")
            self._log.resume(CAUSE)

    def _rooms(self) -> list[Room]:
        rooms = [self._room(self._state.log_folder, "commit log")]
        if (
            disk.current.stat(self._state.log_folder).st_dev
            != disk.current.stat(self._state.root).st_dev
        ):
            rooms.append(self._room(self._state.root, "consume queues"))
        return rooms

    @staticmethod
    def _room(folder: Path, what: str) -> Room:
        used, free = disk.current.room(folder)
        return Room(used, free, what)

    def _clean_log(self, verdict: Verdict, now_ms: int) -> Iterator[Step]:
        if now_ms < self._retry_ms:
            return
        rules, segments = self._state.settings.rules, self._log.segments
        leaving = sum(each.size for each in self._leaving)
        wanted = doomed(rules, verdict, self._old_files(), now_ms, leaving)
        old = segments.items[:wanted]
        ends = [segment.end for segment in old]
        if ends:
            for _ in self._holding.search(ends[0], ends[-1]):
                yield Step()
            if segments.items[:wanted] != old:
                return  # the log was cut meanwhile, as a slave's may be
        else:
            self._holding.check(segments.items[0].end if segments.items else 0)
        held = self._holding.held
        count = wanted if held is None else sum(end <= held.place for end in ends)
        self._tell(held, segments.items[count] if count < wanted else None)
        self.held_files = None if held is None else self._held_files(held, now_ms)
        for _ in range(count):
            name = segments.items[0].path.name
            try:
                step = self._retire_first(segments, rules.log_pause_ms)
            except StoreError as wrong:
                self._retry_ms = now_ms + rules.retry_ms
                log.error("%s; it is tried again in %d s", wrong, rules.retry_ms // 1000)
                return
            log.info("%s went, the log begins at %d now", name, self._log.start)
            yield step
        if count == 0 and held is None and verdict.surplus > leaving:
            log.warning("the disk is nearly full, and the log has no file left that could go")

    def _tell(self, held: Held | None, stays: Segment | None) -> None:
        """Log which group holds the file that `stays`, once until it is another group or topic."""
        if held is None:
            self._told = None
        elif stays is not None and self._told != (held.group, held.topic):
            self._told = (held.group, held.topic)
            log.error(
                "%s would go now and stays, because retainUntilConsumedBy names group %s: its "
                "offset in queue %d of topic %s is %d, and %d bytes of the log follow; start the "
                "group (of a lake: aerobee lake run), take it out of retainUntilConsumedBy, or "
                "delete its offsets (aerobee groups delete %s)",
                *(stays.path.name, held.group, held.queue_id, held.topic),
                *(held.offset, self._log.end - held.place, held.group),
            )

    def _held_files(self, held: Held, now_ms: int) -> HeldFiles | None:
        """The files from the held place on that are past the store's time; None without any."""
        size, since_ms = 0, 0
        for segment in self._log.segments.items[:-1]:
            found = segment.status
            if segment.end <= held.place or found is None:
                continue
            past_ms = found.st_mtime_ns // 1_000_000 + self._state.settings.rules.keep_ms
            if past_ms > now_ms:
                break
            size += found.st_blocks * 512
            since_ms = since_ms or past_ms
        return HeldFiles(size, since_ms, held) if since_ms else None

    def _old_files(self) -> Iterator[LogFile]:
        """The files of the log that may go: not the last, and none that a sync may be at."""
        has_rules = bool(self._state.topic_rules)
        kept_from, needed_from = self._topics.needed() if has_rules else (NO_PLACE, 0)
        for segment in self._log.segments.items[:-1]:
            if segment.end > self._log.durable:
                return
            found = segment.status
            if found is None:
                yield LogFile(0, 0)  # another process has deleted it
            else:
                yield LogFile(
                    found.st_mtime_ns // 1_000_000,
                    found.st_blocks * 512,
                    is_kept=segment.end > kept_from,
                    is_unneeded=segment.end <= needed_from,
                )

    def _is_there(self, queue: ConsumeQueue | BatchQueue) -> bool:
        """True if its topic has not been deleted between two steps."""
        return self._queues.find(queue.topic, queue.queue_id) is queue

    def _row_to_shorten(self, queue: ConsumeQueue | BatchQueue, start: int) -> Segments | None:
        """The files of a queue, or else of its extension, if the first of them has to go."""
        if not self._is_there(queue):
            return None
        if queue.first_file_before(start) is not None and queue.can_spare_first_file:
            return queue.segments
        ext = self._queues.ext(queue.topic, queue.queue_id)
        if ext is None or not isinstance(queue, ConsumeQueue) or queue.min_offset >= queue.next:
            return None
        address = queue.entry(queue.min_offset)[2]
        return ext.segments if ext.first_file_before(address) is not None else None

    def _retire_first(self, segments: Segments, pause_ms: int) -> Step:
        """Take the first file of a row away."""
        step = self._retire(segments.items[0], pause_ms)
        del segments.items[0]
        return step

    def _retire(self, segment: Segment, pause_ms: int) -> Step:
        """Take a file's name away; the step is what the disk has to do about it."""
        found = segment.status
        held = segment.retire()
        folder = segment.path.parent
        if held is None or held() is None:
            return Step(lambda: _finish(folder, segment), pause_ms)
        size = 0 if found is None else found.st_blocks * 512
        self._leaving.append(Leaving(segment, held, size, self._state.now_ms()))
        # The order in which names go must survive a power cut: no file may be missing in between.
        return Step(lambda: sync_folder(folder), pause_ms)

    def _forget(self, now_ms: int) -> Iterator[Step]:
        """The room of files whose last reader has let go."""
        for each in self._leaving[:]:
            is_held = each.held() is not None
            if is_held and now_ms - each.since_ms < self._state.settings.rules.held_ms:
                continue
            if is_held:
                log.warning(
                    "%s was deleted %d s ago, but a client that does not read its answer still "
                    "holds it; its room comes back when that connection closes",
                    each.segment.path,
                    (now_ms - each.since_ms) // 1000,
                )
            self._leaving.remove(each)
            yield Step(each.segment.release)


def _finish(folder: Path, segment: Segment) -> None:
    try:
        sync_folder(folder)
    finally:
        segment.release()
