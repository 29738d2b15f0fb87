"""Parked pulls: pulls that wait for a message, as records without a task or a timer each.

A pull that found nothing is parked under its queue. A message appended to that queue marks it; at
the end of the loop iteration `serve` runs the pulls of every marked queue again. A sweep answers
the pulls whose time is up. A re-run calls the same look-up as a new pull, so the two can't differ.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...protocol.aio.connection import Connection
from ...protocol.command import Command, Response
from ...protocol.headers.pull import PullMessage

PARKED_MAX = 1_000_000  # parked pulls in the broker
PARKED_PER_QUEUE_MAX = 10_000  # parked pulls on one queue
HOLDS_PER_PART = 2_000  # of which a sweep looks at once whether their time is up

QueueKey = tuple[str, int]  # topic, queue id
Rerun = Callable[[PullMessage, Command, Connection, bool], Response | bytes | None]
Watcher = Callable[[QueueKey], None]


@dataclass(slots=True)
class ParkedPull:
    """One parked pull. `bytes` is the size of an unusually long one, for the limit of memory."""

    header: PullMessage
    command: Command
    connection: Connection
    since_ms: int
    deadline_ms: int
    bytes: int = 0


class LongPolls:
    """The parked pulls. `rerun(header, command, connection, may_hold)` is the pull handler."""

    def __init__(self, rerun: Rerun, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.parked: dict[QueueKey, list[ParkedPull]] = {}
        self.count = 0
        self.marked: dict[QueueKey, None] = {}
        self.rerun = rerun
        self._watchers: dict[QueueKey, list[Watcher]] = {}

    def park(self, key: QueueKey, pull: ParkedPull) -> bool:
        """Keep the pull waiting; False when the limits say no and it must be answered now."""
        pulls = self.parked.get(key)
        if self.count >= PARKED_MAX or (pulls is not None and len(pulls) >= PARKED_PER_QUEUE_MAX):
            return False
        if pull.bytes and not pull.connection.budget.may_wait(pull.bytes):
            return False
        if pulls is None:
            self.parked[key] = [pull]
        else:
            pulls.append(pull)
        self.count += 1
        return True

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
        """A message was appended: run the queue's pulls at the end of this loop iteration."""
        if key in self.parked:
            self.marked[key] = None

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
                self._again(key, pull, final=False)
            if watchers is not None:
                for watcher in list(watchers):
                    watcher(key)

    def sweep(self, now_ms: int) -> None:
        """Answer the pulls whose time is up and drop the pulls of lost connections."""
        for _ in self.sweep_in_parts(now_ms):
            pass

    def sweep_in_parts(self, now_ms: int) -> Iterator[None]:
        """The same, with pauses in which others may work, where many wait."""
        looked = 0
        for key in list(self.parked):
            pulls = self.parked.get(key)
            if pulls is None:
                continue
            looked += 1 + len(pulls)
            if looked >= HOLDS_PER_PART:
                looked = 0
                yield
                pulls = self.parked.get(key, [])
            due = [p for p in pulls if p.deadline_ms <= now_ms or p.connection.is_lost]
            if not due:
                continue
            left = [p for p in pulls if p.deadline_ms > now_ms and not p.connection.is_lost]
            self.count -= len(due)
            if left or key in self._watchers:
                self.parked[key] = left
            else:
                del self.parked[key]
            for pull in due:
                self._again(key, pull, final=True)

    def wake_all(self) -> None:
        """Mark every queue, for changes that may concern any pull."""
        self.marked = dict.fromkeys(self.parked)

    def _again(self, key: QueueKey, pull: ParkedPull, *, final: bool) -> None:
        connection = pull.connection
        if not connection.is_lost:
            if connection.is_to_wait:
                connection.postpone(pull.command)
            else:
                reply = self.rerun(pull.header, pull.command, connection, final)
                if reply is None:
                    self.parked.setdefault(key, []).append(pull)  # its place was free a moment ago
                    self.count += 1
                    return
                waited_ms = self._now_ms() - pull.since_ms
                connection.respond_late(pull.command, reply, waited_ms, is_long_polling=True)
        if pull.bytes:
            connection.budget.waiting -= pull.bytes
