"""Parked pulls: pulls that wait for a message of their queue.

A message appended to a queue marks it; at the end of the loop iteration `serve` runs the pulls of
every marked queue again.
"""

from collections.abc import Callable

from ..runtime.parking import WAITS, ParkedRequest, ParkingLot, Rerun

PARKED_MAX = 1_000_000  # parked pulls in the broker
PARKED_PER_QUEUE_MAX = 10_000  # parked pulls on one queue

QueueKey = tuple[str, int]  # topic, queue id
Watcher = Callable[[QueueKey], None]


class LongPolls(ParkingLot[QueueKey]):
    """The parked pulls, by queue, in the order in which they came."""

    def __init__(self, rerun: Rerun, now_ms: Callable[[], int]) -> None:
        super().__init__(rerun, now_ms, may_overstay=True)
        self.marked: dict[QueueKey, None] = {}
        self._kept = self._watchers = dict[QueueKey, list[Watcher]]()

    def park(self, key: QueueKey, pull: ParkedRequest) -> bool:
        """Keep the pull waiting; False when the limits say no and it must be answered now."""
        return self.add(key, pull, PARKED_PER_QUEUE_MAX, PARKED_MAX)

    def watch(self, key: QueueKey, watcher: Watcher) -> None:
        """Call `watcher(key)`, too, at the end of each loop iteration that appends to the queue."""
        self._watchers.setdefault(key, []).append(watcher)
        self.parked.setdefault(key, [])  # an append looks the key up there

    def unwatch(self, key: QueueKey, watcher: Watcher) -> None:
        """Stop calling it."""
        watchers = self._watchers[key]
        watchers.remove(watcher)
        if not watchers:
            del self._watchers[key]
            if not self.parked[key]:
                del self.parked[key]

    def mark(self, key: QueueKey) -> None:
        """Run the queue's pulls at the end of this loop iteration, since a message was appended."""
        if key in self.parked:
            self.marked[key] = None

    def wake_all(self) -> None:
        """Mark every queue, for changes that may concern any pull."""
        self.marked = dict.fromkeys(self.parked)

    def serve(self) -> None:
        """Run the pulls of all marked queues again; pulls that still find nothing stay parked."""
        marked, self.marked = self.marked, {}
        for key in marked:
            pulls = self.parked.pop(key, None)
            if pulls is None:
                continue
            self.count -= len(pulls)
            watchers = self._watchers.get(key)
            if watchers is not None:
                self.parked[key] = []
            for pull in pulls:
                if self.run(pull, is_last=False) == WAITS:
                    self.parked.setdefault(key, []).append(pull)  # its place was free a moment ago
                    self.count += 1
            if watchers is not None:
                for watcher in list(watchers):
                    watcher(key)
