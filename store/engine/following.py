"""A store that follows another one's log: a slave's.

Bytes come as they lie in the other log, cut anywhere; they are appended as they are, so that the
files become the same. Whatever is a whole message gets its entries in queues and index at once. So
the log has one end more: `whole_end`, behind the last message that is in its queue; what lies
between it and the log's end is the beginning of a message, or damaged. Nobody else may write.
"""

import logging
from collections.abc import Iterable

from ...protocol.message.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from ..base.errors import DamagedStore, StoreError, WritesRefused
from ..files.segment import Segment
from ..log.commit_log import BLANK
from ..log.run import RUN_BYTES, Run, read_run
from ..log.walk import whole_record
from .derive_runs import RunDerive
from .state import StoreState

log = logging.getLogger(__name__)

CAUSE = "slave"  # of the pause that keeps others from writing
RUN_BYTES_MIN = 32 << 10  # with less new in the log, message by message is quicker

Key = tuple[str, int]  # topic, queue id


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
        """Take no messages from now on, only another log; `reason` is what senders are told."""
        self._log.write_staged()
        self._log.pause(CAUSE, reason)
        self._state.is_following = True
        self._state.followed_end = self._log.end
        # What the log lacks before a queue's first message here is on the master alone.
        self._derive = RunDerive(self._queues, self._index, self._state.settings, is_whole=True)

    def append_raw(self, place: int, data: bytes) -> None:
        """Append the bytes that the other log has at this place; none say where it stands.

        StoreError when that is not where this log ends, unless this one is empty, or when they
        can't be kept. Nothing has changed then.
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
        """Bring queues and index to the last whole message; the queues that got one.

        A message that is damaged is told once, and the rest waits behind it, as in RocketMQ: a
        restart takes the log anew from there. StoreError when the disk has no room: what was done
        stays done, and the next call goes on.
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
                run = read_run(segment, place, min(new_bytes, RUN_BYTES))
            if run is not None:
                found.update(self._take_run(derive, run))
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
        return found

    def cut_torn(self) -> None:
        """Drop the beginning of a message whose rest didn't come, as the connection broke.

        Who is asked next may have another message there. What is damaged stays: behind it may lie
        what was acknowledged. StoreError, and nothing is dropped, as `derive_new`.
        """
        if self._log.refusal is not None:
            return
        self.derive_new()
        if self._log.written > self._state.followed_end != self._damaged_at:
            self._log.cut(self._state.followed_end)

    def end_following(self) -> None:
        """Drop all behind the last whole message, so that a start as a master finds nothing there
        that it would write over in part. Whole messages without an entry are the next start's."""
        if self._derive is None:
            return
        try:
            self.derive_new()
        except StoreError as wrong:
            log.error("%s", wrong)
            return
        if self._log.written > self._state.followed_end:
            self._log.cut(self._state.followed_end)

    def _take_run(self, derive: RunDerive, run: Run) -> Iterable[Key]:
        derive.queue_run(run)
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
        pairs = set(zip(run.topic_of.tolist(), run.queue_ids.tolist(), strict=True))
        return [(run.topics[topic], queue_id) for topic, queue_id in pairs]

    def _next_size(self, segment: Segment, place: int) -> int | None:
        """How long the message is that begins here; 0 for the blank record that ends a file. None
        while not all of it is there, or when it is neither."""
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
