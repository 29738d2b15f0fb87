"""`check`: checks a whole store and reports what is wrong with it, without changing anything.

It works on the stores of aerobee and of Java, at rest and in use. It takes no lock. If the file
`abort` exists, a broker runs or was not stopped cleanly; then unfinished ends of files are notes
and no damage, because the next start repairs them.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from ...protocol.errors import Malformed
from ...protocol.message.record import MAGIC_V1, MAGIC_V2, decode_record, is_crc_property_right
from ..base.errors import StoreError, readable_errors
from ..files import checkpoint as checkpoints
from ..files import disk
from ..files.listing import Row
from ..files.segment import Segment, data_of
from ..log.commit_log import RECORD_START
from ..log.run import Passed, Run, read_run
from ..log.walk import Progress, Walk, whole_record
from .check_config import check_checkpoint, check_config, deleted_topics
from .check_index import IndexCheck
from .check_queues import QueuesCheck
from .check_timer import TimerFilesCheck
from .findings import Report

__all__ = ["LOG", "Report", "Sizes", "check"]

LOG = "commit log"
CRC_PROPERTY = b"__CRC32#\x01"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that a store was made with, as far as known; 0 means: take it from the files."""

    segment_bytes: int = 0
    queue_file_bytes: int = 0
    batch_queue_file_bytes: int = 0
    index_slots: int = 0
    index_entries: int = 0
    log_folder: Path | None = None


def check(root: Path, sizes: Sizes | None = None, progress: Progress | None = None) -> Report:
    """Check the store in this folder. StoreError when there is none.

    `progress(done, all, messages)` is called with bytes of the log, done and in all, and messages.
    """
    given = sizes or Sizes()
    log_folder = given.log_folder or root / "commitlog"
    if not log_folder.is_dir():
        raise StoreError(
            f"{root} is no store: it has no folder {log_folder.name}; give the folder that the "
            "broker has as storePathRootDir"
        )
    report = Report(root)
    report.part(LOG, "messages")
    is_open = disk.current.exists(root / "abort")
    noted = checkpoints.load(root / "checkpoint")
    # The files that point into the log are read first: the log itself only grows meanwhile.
    offsets = check_config(root, report, is_open=is_open)
    queue_sizes = (
        given.queue_file_bytes or noted.queue_file_bytes,
        given.batch_queue_file_bytes or noted.batch_queue_file_bytes,
    )
    index = IndexCheck(root, given.index_slots, given.index_entries, report, is_open=is_open)
    queues = QueuesCheck(root, queue_sizes, report)
    timer = TimerFilesCheck(root, report, is_open=is_open)
    row = Row(log_folder, given.segment_bytes or noted.segment_bytes)
    trusted = max(noted.synced_end, _queued_end(row, queues))
    log_check = _LogCheck(row, trusted, noted.synced_end, is_open, report, queues, index, progress)
    log_check.check()
    deleted = deleted_topics(root)
    queues.end(row.start, log_check.end, is_open=is_open, deleted=deleted)
    is_expected = bool(index.files) or noted.index_ms > 0 or bool(noted.index_name)
    index.end(log_check.end, is_open=is_open, is_expected=is_expected)
    check_checkpoint(
        root, noted, report, log_end=log_check.end, last_ms=log_check.last_ms, is_open=is_open
    )
    offsets.compare(queues, deleted)
    timer.end(row, log_check.end, queues)
    if is_open:
        report.note(LOG, root / "abort", None, "a broker runs here, or was not stopped cleanly")
    return report


class _LogCheck(Walk):
    """Walks through the log and compares its messages with queues and index."""

    def __init__(
        self,
        row: Row,
        trusted: int,
        synced_end: int,
        is_open: bool,
        report: Report,
        queues: QueuesCheck,
        index: IndexCheck,
        progress: Progress | None,
    ) -> None:
        super().__init__(row, trusted, progress)
        self._row = row
        self._is_open = is_open
        self._synced_end = synced_end
        self._report = report
        self._queues = queues
        self._index = index
        self.end = row.start
        self.last_ms = 0
        part = report.part(LOG, "messages")
        part.files = len(row.items)
        for problem in row.problems:
            report.tell(LOG, problem)

    def check(self) -> None:
        """Check every record, and the bytes behind the last one."""
        row = self._row
        if not row.items:
            return
        self._index.begin(row.start)
        place = row.start
        while True:
            self.end = self.run(place, self._on_record, self.see)
            behind = [segment for segment in row.items if segment.base >= self.end]
            following = [segment.base for segment in behind if whole_record(segment, segment.base)]
            if not following or following[0] <= place:
                break
            place = following[0]
            last = row.find(self.end)
            if last is not None:
                self.damaged(last, self.end, place)
        self._check_rest()

    def see(self, run: Run) -> None:
        """Check a run of whole records against queues and index."""
        self._report.parts[LOG].checked += len(run)
        self.last_ms = max(self.last_ms, int(run.store_times.max()))
        self._check_crc_properties(run)
        self._queues.see(run)
        self._index.see(run)

    def damaged(self, segment: Segment, place: int, following: int) -> bool:
        """Report that no whole record is at `place`; the next candidate is at `following`.

        Returns whether a whole record is there, so that the walk continues.
        """
        behind = self._row.find(following)
        goes_on = behind is not None and whole_record(behind, following) is not None
        if not goes_on and self._is_open and place >= self._synced_end:
            return False  # a record that was being written when the broker ended
        rest = f"whole ones follow from {following} on" if goes_on else "none follows"
        text = f"the record at {place} of the log {_what_is_wrong(segment, place)}; {rest}"
        self._report.damage(LOG, segment.path, place - segment.base, text)
        return goes_on

    def _on_record(self, passed: Passed) -> None:
        segment = self._row.find(passed.log_offset)
        run = None if segment is None else read_run(segment, passed.log_offset, passed.size)
        if run is not None:
            self.see(run)

    def _check_crc_properties(self, run: Run) -> None:
        if CRC_PROPERTY not in run.records.data:
            return
        records = run.records
        ends = (records.starts + records.sizes).tolist()
        for row, (start, end) in enumerate(zip(records.starts.tolist(), ends, strict=True)):
            if is_crc_property_right(records.data[start:end]) is False:
                place = int(run.log_offsets[row])
                segment = self._row.find(place)
                assert segment is not None
                text = f"the record at {place} of the log has another crc than its property says"
                self._report.damage(LOG, segment.path, place - segment.base, text)

    def _check_rest(self) -> None:
        """Note bytes behind the end of the log that are not zero."""
        report = self._report
        for segment in self._row.items:
            if segment.end <= self.end:
                continue
            at = _first_byte(segment, max(0, self.end - segment.base))
            if at is None:
                continue
            text = f"behind the end of the log, {self.end}, there are bytes that are not zero"
            # Java leaves the bytes that a recovery cut off, until it overwrites them.
            cure = "; the next start cuts them off" if self._is_open else ""
            report.note(LOG, segment.path, at, text + cure)
            return


def _first_byte(segment: Segment, at: int) -> int | None:
    """The first byte from `at` on that is not zero, or None; holes in the file take no time."""
    with readable_errors(segment.path, "read"):
        fd = disk.current.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for place, chunk in data_of(fd, at, segment.size):
                if rest := chunk.lstrip(b"\0"):
                    return place + len(chunk) - len(rest)
        finally:
            disk.current.close(fd)
    return None


def _queued_end(row: Row, queues: QueuesCheck) -> int:
    """The end of the last message that has an entry: the log was once whole up to there.

    An entry counts when at least part of its record exists.
    """
    end = 0
    for place, size in queues.last_entries:
        segment = row.find(place)
        if segment is None or place - segment.base + RECORD_START.size > segment.size:
            continue
        found, magic, own_place = RECORD_START.unpack_from(segment.view, place - segment.base)
        if found == size or magic in (MAGIC_V1, MAGIC_V2) or (own_place == place and place):
            end = max(end, min(place + size, segment.end))
    return end


def _what_is_wrong(segment: Segment, place: int) -> str:
    at = place - segment.base
    try:
        record = decode_record(segment.memory, at)
    except Malformed as wrong:
        return f"is none ({wrong})"
    if record.log_offset != place:
        return f"says that it lies at {record.log_offset}"
    if not record.is_body_intact:
        return "has a body with another crc"
    return "lacks a part of its topic or properties"
