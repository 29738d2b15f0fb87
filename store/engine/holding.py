"""Groups that the log waits for: a file with a message that such a group has not read stays.

Places are looked up only when files would go otherwise. Most of the time one queue decides for many
rounds, so that queue is looked at first.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ..queues.batch_queue import BatchQueue
from ..queues.consume_queue import ConsumeQueue
from .state import StoreState

QUEUES_PER_STEP = 64  # that are looked at before others get their turn


class Held(NamedTuple):
    """The queue whose message, at `offset` and at `place` in the log, a group holds."""

    group: str
    topic: str
    queue_id: int
    offset: int
    place: int


class HeldFiles(NamedTuple):
    """Files that are past their time and stay for a group: their size in bytes, and the time since
    when the oldest one does, in ms."""

    size: int
    since_ms: int
    by: Held


class Holding:
    """Finds the oldest place of the log that a group holds (`StoreState.hold_of`): `held`."""

    def __init__(self, state: StoreState) -> None:
        self._state = state
        self.held: Held | None = None

    def check(self, end: int) -> bool:
        """True if the queue that was found last still holds a place before `end`. Else `held` is
        None then."""
        known, self.held = self.held, None
        if known is not None:
            queue = self._state.queues.find(known.topic, known.queue_id)
            found = None if queue is None else self._held(queue)
            if found is not None and found.place < end:
                self.held = found
        return self.held is not None

    def search(self, first_end: int, end: int) -> Iterator[None]:
        """Look in short steps for the oldest place before `end` that a group holds. Any place
        before `first_end`, where the first file ends, is old enough."""
        if self.check(first_end) or self._state.hold_of is None:
            return
        for number, queue in enumerate(list(self._state.queues.all()), 1):
            if self._state.queues.find(queue.topic, queue.queue_id) is queue:
                found = self._held(queue)
                if found is not None and found.place < end:
                    self.held, end = found, found.place
                    if end < first_end:
                        return
            if number % QUEUES_PER_STEP == 0:
                yield

    def _held(self, queue: ConsumeQueue | BatchQueue) -> Held | None:
        hold = self._state.hold(queue.topic, queue.queue_id)
        if hold is None:
            return None
        place = queue.place_from(hold.offset)
        if place is None:
            return None
        offset = max(hold.offset, queue.min_offset)
        return Held(hold.group, queue.topic, queue.queue_id, offset, place)
