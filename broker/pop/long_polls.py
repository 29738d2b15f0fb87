"""Parked pops and notifications: requests of a group that wait for messages of a topic.

A pop may wait for all queues of a topic at once, and for messages that come again. So the queues of
a topic are watched as long as a request waits for one: at the end of the loop iteration `LongPolls`
reports new messages, and the oldest waiting pops of each group run again, one after the other,
until one finds nothing. Of the waiting notifications only the newest is answered, as in RocketMQ:
the older ones expire soon and ask again.
"""

from bisect import insort
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from ...protocol.aio.connection import Connection
from ...protocol.command import Command
from ..pull.long_polls import LongPolls, QueueKey
from ..runtime.parking import ANSWERED, WAITS, ParkedRequest, ParkingLot, Rerun

# The answer is under way when the client's time is up. RocketMQ waits until less than 50 ms are
# left.
END_EARLY_MS = 49

PollKey = tuple[str, str, int]  # topic, group, queue id or -1

_end_ms = attrgetter("end_ms")


class PopPolls(ParkingLot[PollKey]):
    """The waiting requests of one kind. Those of a key are in the order of their ends. `once`: a
    message is news for the newest of them only."""

    def __init__(
        self,
        long_polls: LongPolls,
        rerun: Rerun,
        per_place_max: int,
        total_max: int,
        now_ms: Callable[[], int],
        *,
        once: bool = False,
    ) -> None:
        super().__init__(rerun, now_ms)
        self._long_polls = long_polls
        self._limits = (per_place_max + 1, total_max)  # RocketMQ takes one more than it is told
        self._once = once
        # By queue: the keys whose requests its messages concern.
        self._places: dict[QueueKey, dict[PollKey, None]] = {}

    def waiting(self, topic: str, group: str, queue_id: int) -> int:
        """The number of requests that wait under this topic, group and queue id."""
        return len(self.parked.get((topic, group, queue_id), ()))

    def park(
        self,
        place: PollKey,
        queues: Iterable[QueueKey],
        end_ms: int,
        header: Any,
        command: Command,
        connection: Connection,
    ) -> bool:
        """Keep a request waiting for messages in these queues; False when no more may wait here, or
        there is no memory for it: then the queues were not even worked out."""
        poll = ParkedRequest(
            header, command, connection, self._now_ms(), end_ms - END_EARLY_MS, command.weight()
        )
        if not self.add(place, poll, *self._limits):
            return False
        polls = self.parked[place]
        insort(polls, polls.pop(), key=_end_ms)
        for key in queues:
            places = self._places.get(key)
            if places is None:
                places = self._places[key] = {}
                self._long_polls.watch(key, self._on_message)
            places[place] = None
        return True

    def wake(self, place: PollKey) -> None:
        """Run the waiting requests of a key again."""
        polls = self.parked.get(place)
        while polls:
            poll = polls.pop(-1 if self._once else 0)
            self.count -= 1
            became = self.run(poll, is_last=False)
            if became == WAITS:
                polls.insert(len(polls) if self._once else 0, poll)
                self.count += 1
                return
            if became == ANSWERED and self._once:
                return

    def sweep(self, now_ms: int) -> None:
        """Answer the requests whose time is up: the first ones of each key."""
        for polls in self.parked.values():
            while polls and (polls[0].end_ms <= now_ms or polls[0].connection.is_lost):
                self.count -= 1
                self.run(polls.pop(0), is_last=True)

    def tidy(self) -> None:
        """Forget clients that left, and stop watching queues without a waiting request."""
        super().sweep(self._now_ms())
        for key, places in list(self._places.items()):
            for place in [place for place in places if place not in self.parked]:
                del places[place]
            if not places:
                del self._places[key]
                self._long_polls.unwatch(key, self._on_message)

    def _on_message(self, key: QueueKey) -> None:
        for place in list(self._places.get(key, ())):
            self.wake(place)
