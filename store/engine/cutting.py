"""Cutting: the end of the log goes, because a new master's log parts from this one before it.

What goes is first copied to the folder `cut`, as a log that `aerobee store dump` reads. Then a file
there notes where the log is cut, and log, queues and index, and last the epochs lose what is behind
that place. A crash before the note leaves everything; after it the next start finishes the cut.
"""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from ...protocol.message.record import MAGIC_BLANK
from ..base.errors import DamagedStore, readable_errors
from ..files import disk, json_file
from ..files.listing import Row
from ..files.segment import Segment, data_of, make_folder, sync_folder
from ..log.commit_log import BLANK, CommitLog
from ..log.walk import whole_record
from .state import StoreState

log = logging.getLogger(__name__)

COPIES_BYTES_MAX = 1 << 30  # of older cuts, besides the newest
NOTE = "unfinished.json"


@dataclass(slots=True)
class CutPlan:
    """A cut at the log offset `offset`: `messages` go, in the bytes before `end`.

    `run` copies them to `folder`; then `MessageStore.cut` does the rest.
    """

    offset: int
    end: int
    messages: int
    folder: Path
    segments: list[Segment]

    def run(self) -> None:
        """Copy what goes, and wait for the disk. StoreError when it has no room.

        May run in any thread, while nothing is written to the log. The oldest copies of earlier
        cuts go, so that no more than `COPIES_BYTES_MAX` bytes stay besides this one.
        """
        _drop_old(self.folder.parent)
        try:
            self._copy(self.folder / "commitlog")
        except BaseException:
            _remove(self.folder)
            raise

    def _copy(self, into: Path) -> None:
        make_folder(into, sync=True)
        for segment in self.segments:
            start = max(self.offset, segment.base)
            name = into / segment.path.name
            copy = Segment.create(name, segment.base, segment.size, reserve=0, writable=False)
            with readable_errors(copy.path, "write"):
                end = min(self.end, segment.end) - segment.base
                for place, chunk in data_of(segment.fd, start - segment.base, end):
                    copy.write(place, chunk)
                copy.sync()
            copy.release()
        with readable_errors(into, "sync"):
            sync_folder(into)


class Cutter:
    """Cuts one store."""

    def __init__(self, state: StoreState) -> None:
        self._state = state
        self._folder = state.root / "cut"

    def plan(self, offset: int) -> CutPlan | None:
        """Plan a cut; None when the log ends at `offset`.

        DamagedStore when the log does not reach that place, or no message begins there.
        """
        commit_log = self._state.log
        commit_log.write_staged()
        start, end = commit_log.start, commit_log.written
        if not start <= offset <= end:
            raise DamagedStore(
                f"the log is to be cut at {offset}, but has bytes from {start} to {end} only; "
                "delete the store folder, so that this broker takes the log of its master anew"
            )
        if offset == end:
            return None
        if not _begins(commit_log, offset):
            raise DamagedStore(
                f"the log is to be cut at {offset}, but no message begins there; "
                "delete the store folder, so that this broker takes the log of its master anew"
            )
        messages = sum(
            queue.next - queue.readable_end(offset) for queue in self._state.queues.all()
        )
        segments = [each for each in commit_log.segments.items if each.end > offset]
        return CutPlan(offset, end, messages, self._new_folder(offset), segments)

    def note(self, plan: CutPlan) -> None:
        """Note a cut whose `run` is over: from now on a start finishes it."""
        assert self._state.log.end == plan.end  # nothing was written meanwhile
        log.warning(
            "%d messages are cut off, the log from %d to %d: the master's log has others there; "
            "`aerobee store dump %s --from %d` shows them",
            plan.messages,
            plan.offset,
            plan.end,
            plan.folder,
            plan.offset,
        )
        json_file.replace(self._folder / NOTE, json.dumps({"offset": plan.offset}).encode())
        with readable_errors(self._folder, "sync"):
            sync_folder(self._folder)

    def cut(self, plan: CutPlan) -> None:
        """Cut what was noted in log, queues and index, also on the disk."""
        state, offset = self._state, plan.offset
        self._cut_log(offset)
        for queue in state.queues.all():
            before = queue.next
            queue.cut_at_log(offset)
            if queue.next != before:
                _sync(queue.segments.folder, queue.segments.items[-1:])
        state.index.forget(offset)
        if state.index.files:
            state.index.cut_at_log(offset)
            _sync(state.root / "index", [file.segment for file in state.index.files[-1:]])
        state.deleted.cut_at_log(offset)

    def unfinished(self) -> int | None:
        """The start of a cut that a crash interrupted; None without one."""
        return json_file.load(self._folder / NOTE, _noted)

    def redo(self, offset: int) -> None:
        """Cut the files of the log before they are opened, and have recovery do the rest."""
        log.warning("the cut of the log at %d, which a crash has interrupted, is finished", offset)
        checkpoint = self._state.checkpoint
        checkpoint.synced_end = min(checkpoint.synced_end, offset)
        checkpoint.queues = checkpoint.entries = checkpoint.queues_end = -1
        folder = self._state.log_folder
        segments = Row(folder).items
        while len(segments) > 1 and segments[-1].base >= offset:
            segments.pop().delete()
        last = segments[-1:]
        for segment in last:
            segment.zero(max(0, offset - segment.base))
        _sync(folder, last)
        for segment in last:
            segment.release()

    def finish(self, offset: int) -> None:
        """All but the epochs is cut, and the checkpoint says so: cut them, and forget the note."""
        self._state.epochs.cut(offset)
        path = self._folder / NOTE
        with readable_errors(path, "delete"):
            disk.current.unlink(path)
            sync_folder(self._folder)

    def _cut_log(self, offset: int) -> None:
        state = self._state
        checkpoint = state.checkpoint
        checkpoint.synced_end = min(checkpoint.synced_end, offset)
        checkpoint.queues = checkpoint.entries = checkpoint.queues_end = -1
        state.log.cut(offset)
        segment = state.log.segments.find(offset)
        _sync(state.log_folder, [] if segment is None else [segment])
        if state.settings.controller_mode:
            state.confirmed = min(state.confirmed, offset)
        state.followed_end = min(state.followed_end, offset)
        state.opened_end = min(state.opened_end, offset)

    def _new_folder(self, offset: int) -> Path:
        """A folder that is not there yet; names ascend with time."""
        number = self._state.now_ms()
        while disk.current.exists(found := self._folder / f"{number}-{offset:020d}"):
            number += 1
        return found


def _begins(commit_log: CommitLog, place: int) -> bool:
    """True if a message, the rest of a file, or a file begins at this place of the log."""
    segment = commit_log.segments.find(place)
    assert segment is not None
    at = place - segment.base
    if at == 0 or whole_record(segment, place) is not None:
        return True
    if segment.size - at < BLANK.size:
        return False
    return bool(BLANK.unpack_from(segment.view, at) == (segment.size - at, MAGIC_BLANK))


def _noted(data: bytes) -> int:
    offset = json.loads(data)["offset"]
    if not isinstance(offset, int) or offset < 0:
        raise ValueError(f"offset is {offset!r}, no place in a log")
    return offset


def _sync(folder: Path, segments: list[Segment]) -> None:
    with readable_errors(folder, "sync"):
        for segment in segments:
            segment.sync()
        sync_folder(folder)


def _drop_old(folder: Path) -> None:
    """Delete the oldest copies above `COPIES_BYTES_MAX`."""
    if not disk.current.is_folder(folder):
        return
    left = COPIES_BYTES_MAX
    for entry in reversed([each for each in disk.current.entries(folder) if each.is_folder]):
        files = folder / entry.name / "commitlog"
        if not disk.current.is_folder(files):
            continue
        names = [each.name for each in disk.current.entries(files)]
        left -= sum(disk.current.stat(files / name).st_blocks * 512 for name in names)
        if left < 0:
            log.warning("%s goes: copies of older cuts have more than 1 GiB", files.parent)
            _remove(files.parent)


def _remove(copy: Path) -> None:
    """Delete the copy of a cut."""
    files = copy / "commitlog"
    with readable_errors(copy, "delete"):
        if disk.current.is_folder(files):
            for entry in disk.current.entries(files):
                disk.current.unlink(files / entry.name)
            disk.current.remove_folder(files)
        if disk.current.is_folder(copy):
            disk.current.remove_folder(copy)
