"""What was sent, acknowledged, delivered and committed, and whether all of it can be true at once.

A test notes what happens, in the order in which it learns of it, and `faults` reads the notes once
from front to back, in time linear in their number. A message is its body: every body is sent once.
What must hold:

- no acknowledged message is lost;
- an offset of a queue has one message, for ever, also across crashes;
- nothing is delivered that was never sent, or that is not as it was sent;
- a message sent after another's acknowledgement lies behind it in their queue;
- what a recovery has dropped does not come back;
- a committed offset never lies beyond the end of its queue, and never goes back.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

Queue = tuple[str, int]
Event = tuple[object, ...]


class Lost(AssertionError):
    """The ledger does not hold; the text has each fault in a line."""


@dataclass
class Ledger:
    """The notes. `copy` is cheap: a test branches at every crash."""

    events: list[Event] = field(default_factory=list)

    def sent(self, body: bytes, queue: Queue) -> None:
        """A message is on its way, and its outcome is unknown."""
        self.events.append(("sent", body, queue))

    def acknowledged(self, body: bytes, offset: int) -> None:
        """The sender was told that the message is stored, and at which offset."""
        self.events.append(("acknowledged", body, offset))

    def delivered(self, queue: Queue, offset: int, body: bytes) -> None:
        """A reader got this message from this offset."""
        self.events.append(("delivered", queue, offset, body))

    def read_all(self, queue: Queue, first: int, end: int) -> None:
        """All that the queue has was noted as delivered: offsets `first` to before `end`."""
        self.events.append(("read_all", queue, first, end))

    def crashed(self, forgiven: Collection[bytes] = ()) -> None:
        """Process or machine went down. `forgiven` messages were acknowledged without a promise

        to survive this: ASYNC_FLUSH and a power cut.
        """
        self.events.append(("crashed", frozenset(forgiven)))

    def recovered(self, queues: Iterable[Queue]) -> None:
        """The store is open again, and `read_all` was noted for each queue that it has."""
        self.events.append(("recovered", frozenset(queues)))

    def deleting(self, topic: str) -> None:
        """A topic is about to be deleted: after a crash it may be there or not, as a whole."""
        self.events.append(("deleting", topic))

    def deleted(self, topic: str) -> None:
        """A topic was deleted: its queues count from 0 again, what was in them is gone."""
        self.events.append(("deleted", topic))

    def committed(self, group: str, queue: Queue, offset: int) -> None:
        """A group's offset is on the disk."""
        self.events.append(("committed", group, queue, offset))

    def restored(self, group: str, queue: Queue, offset: int) -> None:
        """After a start a group's offset is this."""
        self.events.append(("restored", group, queue, offset))

    def copy(self) -> "Ledger":
        """Another ledger that begins with the same notes."""
        return Ledger(self.events.copy())

    def faults(self) -> list[str]:
        """The findings that can't be true, a line each; empty when all is well."""
        return _Reader().read(self.events)

    def check(self) -> None:
        """Lost when something can't be true."""
        found = self.faults()
        if found:
            raise Lost("\n".join(found[:20]))


class _Reader:
    """One pass over the notes."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.queue_of: dict[bytes, Queue] = {}
        self.behind: dict[bytes, int] = {}  # the least offset a message may get
        self.fixed: dict[Queue, dict[int, bytes]] = {}  # what an offset has, once known
        self.place: dict[bytes, int] = {}
        self.promised: dict[Queue, dict[int, bytes]] = {}
        self.last_acked: dict[Queue, int] = {}
        self.open: set[bytes] = set()  # sent, and neither seen nor acknowledged
        self.dropped: set[bytes] = set()
        self.ends: dict[Queue, int] = {}
        self.offsets: dict[tuple[str, Queue], int] = {}
        self.is_down = False
        self.deleting: set[str] = set()
        self.read_ends: dict[Queue, int] = {}  # since the last crash

    def read(self, events: Iterable[Event]) -> list[str]:
        for kind, *values in events:
            getattr(self, f"_{kind}")(*values)
        return self.found

    def _fault(self, text: str) -> None:
        self.found.append(text)

    def _sent(self, body: bytes, queue: Queue) -> None:
        if body in self.queue_of:
            self._fault(f"{_name(body)} was sent twice: the test itself is wrong")
        self.queue_of[body] = queue
        self.behind[body] = self.last_acked.get(queue, -1) + 1
        self.open.add(body)

    def _acknowledged(self, body: bytes, offset: int) -> None:
        queue = self.queue_of[body]
        self._fix(queue, offset, body)
        self.promised.setdefault(queue, {})[offset] = body
        self.last_acked[queue] = max(self.last_acked.get(queue, -1), offset)

    def _delivered(self, queue: Queue, offset: int, body: bytes) -> None:
        if self.queue_of.get(body) != queue:
            self._fault(f"{_at(queue, offset)}: {_name(body)} was never sent there")
            return
        self._fix(queue, offset, body)

    def _fix(self, queue: Queue, offset: int, body: bytes) -> None:
        if body in self.dropped:
            self._fault(f"{_at(queue, offset)}: {_name(body)} was dropped and came back")
        if offset < self.behind[body]:
            self._fault(
                f"{_at(queue, offset)}: {_name(body)} was sent after {self.behind[body] - 1} was "
                "acknowledged, and lies before it"
            )
        known = self.fixed.setdefault(queue, {})
        there = known.get(offset)
        if there is not None and there != body:
            self._fault(f"{_at(queue, offset)}: first {_name(there)}, now {_name(body)}")
        if self.place.get(body, offset) != offset:
            self._fault(f"{_name(body)} is at {self.place[body]} and at {offset} of {queue}")
        known[offset] = body
        self.place[body] = offset
        self.ends[queue] = max(self.ends.get(queue, 0), offset + 1)
        self.open.discard(body)

    def _read_all(self, queue: Queue, first: int, end: int) -> None:
        known = self.fixed.get(queue, {})
        self.read_ends[queue] = end
        promised = self.promised.get(queue, {})
        if promised and min(promised) < first:  # old files went; they are not checked again
            promised = {offset: body for offset, body in promised.items() if offset >= first}
            self.promised[queue] = promised
        for offset, body in promised.items():
            if offset >= end:
                self._fault(f"{_at(queue, offset)}: {_name(body)} is lost, the queue ends at {end}")
        for offset in range(first, end):
            if offset not in known:
                self._fault(f"{_at(queue, offset)}: nothing is there, the queue ends at {end}")
        # The end of what is known may have been lost with messages that were forgiven.
        if self.is_down:
            self.ends[queue] = end

    def _crashed(self, forgiven: frozenset[bytes]) -> None:
        self.is_down = True
        self.read_ends.clear()
        for body in forgiven:
            queue = self.queue_of[body]
            offset = self.place.pop(body, None)
            self.open.add(body)
            if offset is not None:
                self.fixed[queue].pop(offset, None)
                self.promised.get(queue, {}).pop(offset, None)
        for queue in {self.queue_of[body] for body in forgiven}:
            self.last_acked[queue] = max(self.promised.get(queue, {}), default=-1)

    def _recovered(self, queues: frozenset[Queue]) -> None:
        self.is_down = False
        for topic in self.deleting:
            if not any(end for queue, end in self.read_ends.items() if queue[0] == topic):
                self._forget(topic)
        self.deleting.clear()
        for queue, promised in self.promised.items():
            if promised and queue not in queues:
                self._fault(f"queue {queue} is lost with {len(promised)} messages")
        self.dropped |= self.open
        self.open.clear()

    def _deleting(self, topic: str) -> None:
        self.deleting.add(topic)
        for queue in [queue for queue in self.promised if queue[0] == topic]:
            del self.promised[queue]

    def _deleted(self, topic: str) -> None:
        self.deleting.discard(topic)
        self._forget(topic)

    def _forget(self, topic: str) -> None:
        for queue in [queue for queue in self.fixed if queue[0] == topic]:
            self.dropped.update(self.fixed.pop(queue).values())
            self.promised.pop(queue, None)
            self.last_acked.pop(queue, None)
            self.ends.pop(queue, None)
        gone = {body for body in self.open if self.queue_of[body][0] == topic}
        self.dropped |= gone
        self.open -= gone
        for key in [key for key in self.offsets if key[1][0] == topic]:
            del self.offsets[key]

    def _committed(self, group: str, queue: Queue, offset: int) -> None:
        if offset > self.ends.get(queue, 0):
            self._fault(f"group {group} committed {offset} beyond the end of {queue}")
        self.offsets[group, queue] = max(offset, self.offsets.get((group, queue), 0))

    def _restored(self, group: str, queue: Queue, offset: int) -> None:
        end = self.ends.get(queue, 0)
        saved = min(self.offsets.get((group, queue), 0), end)
        if offset > end:
            self._fault(f"group {group} is at {offset} of {queue}, which ends at {end}")
        if offset < saved:
            self._fault(f"group {group} went back from {saved} to {offset} of {queue}")
        self.offsets[group, queue] = offset


def _at(queue: Queue, offset: int) -> str:
    return f"{queue[0]} {queue[1]} offset {offset}"


def _name(body: bytes) -> str:
    return f"message {body[:24]!r}"
