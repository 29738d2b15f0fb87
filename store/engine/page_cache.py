"""The page cache of the commit log: which bytes are in memory, and read-ahead."""

import logging
from collections.abc import Collection

from ..files import disk
from ..files.segment import Segment
from .state import StoreState

log = logging.getLogger(__name__)


class PageCache:
    """The page cache of one store. The broker's cold data control (`broker/pull/cold_data.py`)
    uses it."""

    def __init__(self, state: StoreState) -> None:
        self._log = state.log
        self._queues = state.queues

    def read_cold(
        self,
        topic: str,
        queue_id: int,
        start: int,
        end: int,
        tags_codes: Collection[int] | None,
        hot_bytes: int,
        *,
        absent_only: bool,
    ) -> int:
        """The total bytes of a queue's cold messages with offsets [start, end): the ones more than
        `hot_bytes` before the end of the log.

        With `absent_only` only messages that are not in memory count, and with `tags_codes` only
        messages with such tags.
        """
        queue = self._queues.simple.get((topic, queue_id))
        if queue is None:
            return 0
        cold_end = self._log.end - hot_bytes
        found = 0
        for place, size, tags_code in queue.entries(start, end - start, queue.next):
            if place < cold_end and (tags_codes is None or tags_code in tags_codes):
                found += size if not absent_only or self._is_absent(place, size) else 0
        return found

    def read_log_ahead(self, *, wanted: bool) -> None:
        """Tell the system whether to read ahead in the mapped files of the log. It is only a hint,
        so an error is logged."""
        for segment in self._log.segments.items:
            if segment.is_mapped:
                try:
                    disk.current.read_ahead(segment.view, wanted=wanted)
                except OSError as wrong:
                    log.warning("%s is read as before: %s", segment.path, wrong.strerror)

    def _is_absent(self, place: int, size: int) -> bool:
        """True if some of these bytes of the log must come from the disk."""
        segment: Segment | None = self._log.segments.find(place)
        if segment is None or not segment.is_mapped:
            return segment is not None
        size = min(size, segment.end - place)
        try:
            return disk.current.absent(segment.array.ctypes.data + place - segment.base, size) > 0
        except OSError as wrong:
            log.warning("the system doesn't say what is in memory: %s", wrong.strerror)
            return False
