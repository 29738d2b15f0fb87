"""Goes through the log and tells what is whole.

Records that lie side by side without a flaw are read together, as a run; where something else is
found it goes on record by record for a while. Only what queues and index are made from is read of a
record, and its body's crc is checked: a log of a gigabyte has millions of them.
"""

import logging
from collections.abc import Callable

import numpy as np

from ...protocol.errors import Malformed
from ...protocol.message.record import (
    BORN_HOST_V6,
    CRC_MASK,
    HEAD,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    STORE_HOST_V6,
    crc32,
    decode_record,
)
from ..files.listing import Row
from ..files.segment import Segment
from ..files.segments import Segments
from .commit_log import BLANK
from .run import RUN_BYTES, Passed, Run, read_run

log = logging.getLogger(__name__)

Progress = Callable[[int, int, int], None]  # bytes of the log done, all of them, messages done
PROGRESS_BYTES = 16 << 20
RUN_BYTES_FIRST = 64 << 10  # read in the hope of a run where the last one has ended early
SECTOR_BYTES = 512
MAGICS = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))
V6 = BORN_HOST_V6 | STORE_HOST_V6
TOPICS_KEPT = 10_000
_topics: dict[bytes, str] = {}


class Walk:
    """A way through the log.

    A record before `trusted` that is damaged was once whole: it is reported and passed over. Behind
    it the log ends at the first that is not whole.
    """

    def __init__(
        self, segments: Segments | Row, trusted: int, progress: Progress | None = None
    ) -> None:
        """`segments` are the files of the log."""
        self._segments = segments
        self._trusted = trusted
        self._progress = progress

    def run(
        self,
        place: int,
        on_record: Callable[[Passed], None],
        on_run: Callable[[Run], None],
    ) -> int:
        """Call one of the two for all records from `place` on, in order; returns the log's end."""
        begin = reported = place
        last = self._segments.items[-1].end
        count = 0
        size = RUN_BYTES_FIRST
        while True:
            segment = self._segments.find(place)
            if segment is None:
                return place
            run = self._whole_run(segment, place, size)
            if run is not None:
                on_run(run)
                place = run.end
                count += len(run)
                size = min(2 * size, RUN_BYTES)
            else:
                size = RUN_BYTES_FIRST
                passed = whole_record(segment, place)
                if passed is None:
                    following = self._behind(segment, place)
                    if following is None:
                        return place
                    place = following
                    continue
                if place >= self._trusted and _lacks_sector(passed, segment):
                    return place
                on_record(passed)
                place += passed.size
                count += 1
            if place - reported >= PROGRESS_BYTES:
                reported = place
                segment.forget()
                if self._progress is not None:
                    self._progress(place - begin, last - begin, count)

    def _whole_run(self, segment: Segment, place: int, size: int) -> Run | None:
        """The run from here on, if there is one; it ends before a record that lacks a sector."""
        run = read_run(segment, place, size)
        if run is None or run.end <= self._trusted:
            return run
        zeros = np.flatnonzero(run.properties.data[: run.properties.bounds[-1]] == 0)
        suspects = set(run.properties.rows(zeros).tolist())
        for number, topic in enumerate(run.topics):
            if "\0" in topic:
                suspects.update(np.flatnonzero(run.topic_of == number).tolist())
        for row in sorted(suspects):
            if run.log_offsets[row] >= self._trusted and _lacks_sector(run.passed(row), segment):
                return run.picked(slice(row)) if row else None
        return run

    def _behind(self, segment: Segment, place: int) -> int | None:
        """The place to go on at behind bytes that are no record; None if the log ends here."""
        at = place - segment.base
        if segment.size - at >= BLANK.size:
            size, magic = BLANK.unpack_from(segment.view, at)
            if magic == MAGIC_BLANK and size == segment.size - at:
                return None if segment is self._segments.items[-1] else segment.end
        if place >= self._trusted:
            return None
        following = self._following(segment, place)
        return following if self.damaged(segment, place, following) else None

    def damaged(self, segment: Segment, place: int, following: int) -> bool:
        """Called for a record that is not whole, with the place at which the walk goes on. False
        ends the walk."""
        log.error("the record at %d of the log is damaged; going on at %d", place, following)
        return True

    def _following(self, segment: Segment, place: int) -> int:
        """The start of the next whole record or of the next file."""
        data = segment.view
        at = place - segment.base + 4
        while True:
            found = [data.find(magic, at) for magic in MAGICS]
            places = [hit for hit in found if hit >= 0]
            if not places:
                return min(segment.end, self._trusted)
            at = min(places)
            if whole_record(segment, segment.base + at - 4) is not None:
                return segment.base + at - 4
            at += 1


def whole_record(segment: Segment, place: int) -> Passed | None:
    """The record at this place of the log, if all of it is there and right."""
    at = place - segment.base
    if segment.size - at < RECORD_BYTES_MIN:
        return None
    (
        size,
        magic,
        crc,
        queue_id,
        _,
        queue_offset,
        own_place,
        sys_flag,
        _,
        _,
        store_ms,
        _,
        _,
        _,
        body_bytes,
    ) = HEAD.unpack_from(segment.view, at)
    if own_place != place or not RECORD_BYTES_MIN <= size <= segment.size - at:
        return None
    if magic != MAGIC_V1 or sys_flag & V6:
        return _whole_other(segment, place)
    body_at = at + HEAD.size
    topic_at = body_at + body_bytes
    end = at + size
    if body_bytes < 0 or topic_at + 3 > end:
        return None
    data = segment.view[body_at:end]
    topic_end = body_bytes + 1 + data[body_bytes]
    own_start = topic_end + 2
    if own_start > len(data):
        return None
    if (data[topic_end] << 8 | data[topic_end + 1]) != len(data) - own_start:
        return None
    if body_bytes and crc32(memoryview(data)[:body_bytes]) & CRC_MASK != crc:
        return None
    raw_topic = data[body_bytes + 1 : topic_end]
    topic = _topics.get(raw_topic)
    if topic is None:
        if len(_topics) >= TOPICS_KEPT:
            _topics.clear()
        topic = _topics[raw_topic] = raw_topic.decode(errors="replace")
    return Passed(place, size, topic, queue_id, queue_offset, sys_flag, store_ms, data[own_start:])


def _whole_other(segment: Segment, place: int) -> Passed | None:
    """The same for records with IPv6 hosts or long topics."""
    try:
        record = decode_record(segment.memory, place - segment.base)
    except Malformed:
        return None
    if not record.is_body_intact:
        return None
    return Passed(
        place,
        record.size,
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.sys_flag,
        record.store_ms,
        record.raw_properties,
    )


def _lacks_sector(passed: Passed, segment: Segment) -> bool:
    """True if a power cut has left zeros in topic or properties, which have no crc.

    A disk writes whole sectors, and no sector's share of sound properties is all zeros: they begin
    with a name and end with a separator. The topic holds no zero at all.
    """
    if "\0" in passed.topic:
        return True
    raw = passed.raw_properties
    if b"\0" not in raw:
        return False
    at = 0
    room = -(passed.log_offset - segment.base + passed.size - len(raw)) % SECTOR_BYTES
    while at < len(raw):
        share = raw[at : at + (room or SECTOR_BYTES)]
        if not share.strip(b"\0"):
            return True
        at += len(share)
        room = SECTOR_BYTES
    return False
