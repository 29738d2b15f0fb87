"""The store of a slave, which appends the log of its master.

The bytes of the master's log arrive in chunks of any size and are appended unchanged, so both logs
have equal files. Each complete message gets its entries in queues and index at once. `whole_end` is
the end of the last message that is in its queue; behind it lies an incomplete or damaged message.
No other writer is allowed.
"""

import logging

from ...protocol.message.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from ..base.errors import DamagedStore, StoreError, WritesRefused
from ..files.segment import Segment
from ..log.commit_log import BLANK
from ..log.run import RUN_BYTES, Run, read_run
from ..log.walk import whole_record
from .derive_runs import Key, RunDerive
from .state import StoreState

log = logging.getLogger(__name__)

CAUSE = "slave"  # of the pause that keeps others from writing
RUN_BYTES_MIN = 32 << 10  # with less new in the log, message by message is quicker


class Follower:
    """Appends the log of another broker."""

    def __init__(self, state: StoreState) -> None:
        self._state = state
        self._log = state.log
        self._queues = state.queues
        self._index = state.index
        self._derive: RunDerive | None = None
        self._damaged_at = -1  # the place of the damage that was logged last

    def follow(self, reason: str) -> None:
        """Accept only another broker's log from now on; `reason` is the text for senders."""
        self._log.write_staged()
        self._log.pause(CAUSE, reason)
        self._state.is_following = True
        self._state.followed_end = self._log.end
        # What the log lacks before a queue's first message here is on the master alone.
        self._derive = RunDerive(self._queues, self._index, self._state.settings, is_whole=True)

    def append_raw(self, place: int, data: bytes) -> None:
        """Append `data`, the bytes of the other log from offset `place` on.

        Without data it only checks that the other log continues at the end of our log. StoreError
        if it doesn't and our log is not empty, or if the bytes can't be written; nothing has
        changed then.
        """
        commit_log = self._log
        end = commit_log.end
        if end and place != end:
            raise DamagedStore(
                f"the master goes on at {place} of its log, this one ends at {end}: the two have "
                "come apart; stop this broker, delete its store folder and start it again, so that "
                "it takes the log anew"
            )
        if not data:
            return
        if len(self._index.pending) > self._state.index_pending_max:
            self._state.relieve_index()
            if len(self._index.pending) > self._state.index_pending_max:
                raise WritesRefused(
                    f"the index can't follow: keys of {len(self._index.pending)} messages wait, "
                    f"the limit is {self._state.index_pending_max}; make room on the disk"
                )
        if not end and place:
            commit_log.begin_at(place)
            self._state.followed_end = place
        commit_log.append_raw(data)

    def derive_new(self) -> set[Key]:
        """Add all new whole messages to queues and index; returns the queues that got one.

        A damaged message is logged once, and all messages behind it wait, as in RocketMQ: after a
        restart the log is fetched again from there. StoreError when the disk has no room: what was
        done stays done, and the next call continues.
        """
        derive, commit_log = self._derive, self._log
        assert derive is not None
        found: set[Key] = set()
        while (place := self._state.followed_end) < commit_log.written:
            segment = commit_log.segments.find(place)
            assert segment is not None
            size = self._next_size(segment, place)
            if size is None:
                break
            if size <= 0:
                self._state.followed_end = segment.end
                continue
            run = None
            new_bytes = commit_log.written - place
            if new_bytes >= RUN_BYTES_MIN:
                run = read_run(segment, place, min(new_bytes, RUN_BYTES), self._state.kernels.runs)
            if run is not None:
                found |= self._take_run(derive, run)
                continue
            passed = whole_record(segment, place)
            if passed is None:
                self._told_damage(place, "the message there has another crc, or doesn't add up")
                break
            derive.queue(passed)
            self._state.last_ms = derive.last_ms
            self._state.followed_end = place + passed.size
            derive.index(passed)
            found.add((passed.topic, passed.queue_id))
        found |= derive.arrived
        derive.arrived.clear()
        return found

    def cut_torn(self) -> None:
        """Drop the beginning of a message that a broken connection left incomplete.

        The next master may have another message there. A damaged message stays, because there may
        be acknowledged messages behind it. StoreError as `derive_new`; nothing is dropped then.
        """
        if self._log.refusal is not None:
            return
        self.derive_new()
        if self._log.written > self._state.followed_end != self._damaged_at:
            self._log.cut(self._state.followed_end)

    def end_following(self) -> None:
        """Drop everything behind the last whole message, so that a start as a master doesn't
        overwrite part of it. Whole messages without an entry get it at the next start."""
        if self._derive is None:
            return
        try:
            self.derive_new()
        except StoreError as wrong:
            log.error("%s", wrong)
            return
        if self._log.written > self._state.followed_end:
            self._log.cut(self._state.followed_end)

    def _take_run(self, derive: RunDerive, run: Run) -> set[Key]:
        found = derive.queue_run(run)
        self._state.last_ms = derive.last_ms
        self._state.followed_end = run.end
        if self._state.settings.index_enable:
            try:
                derive.index_run(run)
            except StoreError as wrong:  # the keys wait, as on a master
                log.error("%s", wrong)
                left = run.since(self._index.end_offset + 1)
                self._index.pending += [
                    (each.topic, each.raw_properties, each.log_offset, each.store_ms, None)
                    for each in map(left.passed, range(len(left)))
                ]
        return found

    def _next_size(self, segment: Segment, place: int) -> int | None:
        """The size in bytes of the message at `place`; 0 for the blank record that ends a file.

        None while it is incomplete, or when the bytes are neither.
        """
        at = place - segment.base
        here = self._log.written - place
        if here < BLANK.size:
            return None
        size, magic = BLANK.unpack_from(segment.view, at)
        left = segment.size - at
        if magic == MAGIC_BLANK and size == left:
            return 0 if here >= left else None
        if magic in (MAGIC_V1, MAGIC_V2) and RECORD_BYTES_MIN <= size <= left - BLANK.size:
            return int(size) if here >= size else None
        self._told_damage(
            place,
            f"{size} bytes with magic {magic:#x} can't be where {left} are left of the file; "
            f"{self._log.segments.setting} must be the same on both brokers",
        )
        return None

    def _told_damage(self, place: int, reason: str) -> None:
        if self._damaged_at != place:
            self._damaged_at = place
            log.error(
                "the log as it came from the master is damaged at %d: %s; no message behind it can "
                "be read here. Restart this broker, so that it takes the log from there anew",
                place,
                reason,
            )
