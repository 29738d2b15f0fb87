"""Parked pops: pops that found nothing, as records in a table, without a task or a timer each.

A pop may wait for all queues of a topic at once, and for messages that come again. So the queues of
a topic are watched as long as a request waits for one: at the end of the loop iteration `LongPolls`
reports new messages, and the oldest waiting pops of each group run again, one after the other,
until one finds nothing. Of the waiting notifications only the newest is answered, as in RocketMQ:
the older ones expire soon and ask again. A sweep answers the requests whose time is up.
"""

from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from ...protocol.aio.connection import Connection
from ...protocol.command import Command, Response
from ..pull.long_polls import LongPolls, QueueKey

END_EARLY_MS = 50  # the answer is under way when the client's time is up

PollKey = tuple[str, str, int]  # topic, group, queue id or -1
# Runs a request again; the last word says that it may not wait any more.
Rerun = Callable[[Any, Command, Connection, bool], Response | bytes | None]


@dataclass(slots=True, order=True)
class Poll:
    """One waiting request. The requests of a key are in the order of their ends."""

    end_ms: int
    number: int
    since_ms: int = field(compare=False)
    header: Any = field(compare=False)
    command: Command = field(compare=False)
    connection: Connection = field(compare=False)
    bytes: int = field(compare=False)  # of an unusually long one, for the limit of memory


@dataclass(slots=True, eq=False)
class PopPolls:
    """The waiting requests of one kind. `once`: a message is news for the newest of them only."""

    _long_polls: LongPolls
    _rerun: Rerun
    _per_place_max: int
    _total_max: int
    _now_ms: Callable[[], int]
    _: KW_ONLY
    once: bool = False
    count: int = field(init=False, default=0)
    _waiting: dict[PollKey, list[Poll]] = field(init=False, default_factory=dict)
    # By queue: the keys whose requests its messages concern.
    _places: dict[QueueKey, dict[PollKey, None]] = field(init=False, default_factory=dict)
    _number: int = field(init=False, default=0)

    def waiting(self, topic: str, group: str, queue_id: int) -> int:
        """How many wait under this topic, group and queue id."""
        return len(self._waiting.get((topic, group, queue_id), ()))

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
        polls = self._waiting.get(place)
        if self.count >= self._total_max or (
            polls is not None and len(polls) > self._per_place_max
        ):
            return False
        weight = command.weight()
        if weight and not connection.budget.may_wait(weight):
            return False
        self._number += 1
        poll = Poll(
            end_ms - END_EARLY_MS, self._number, self._now_ms(), header, command, connection, weight
        )  # fmt: skip
        if polls is None:
            polls = self._waiting[place] = []
        for key in queues:
            places = self._places.get(key)
            if places is None:
                places = self._places[key] = {}
                self._long_polls.watch(key, self._on_message)
            places[place] = None
        insort(polls, poll)
        self.count += 1
        return True

    def wake(self, place: PollKey) -> None:
        """Run the waiting requests of a key again."""
        polls = self._waiting.get(place)
        first = -1 if self.once else 0
        while polls:
            poll = polls.pop(first)
            self.count -= 1
            if poll.connection.is_lost:
                _let_go(poll)
                continue
            if (
                poll.connection.is_to_wait
            ):  # the popped messages would be invisible to all others meanwhile
                _let_go(poll)
                poll.connection.postpone(poll.command)
                continue
            reply = self._rerun(poll.header, poll.command, poll.connection, False)
            if reply is None:
                insort(polls, poll)
                self.count += 1
                return
            _let_go(poll)
            self._answer(poll, reply)
            if self.once:
                return

    def sweep(self, now_ms: int) -> None:
        """Answer the requests whose time is up."""
        for polls in self._waiting.values():
            while polls and (polls[0].end_ms < now_ms or polls[0].connection.is_lost):
                poll = polls.pop(0)
                self.count -= 1
                _let_go(poll)
                if poll.connection.is_lost:
                    continue
                reply = self._rerun(poll.header, poll.command, poll.connection, True)
                assert reply is not None, "a last run has an answer"
                self._answer(poll, reply)

    def tidy(self) -> None:
        """Forget clients that left, and stop watching queues without a waiting request."""
        for place, polls in list(self._waiting.items()):
            left = [poll for poll in polls if not poll.connection.is_lost]
            for poll in polls:
                if poll.connection.is_lost:
                    _let_go(poll)
            self.count -= len(polls) - len(left)
            if left:
                self._waiting[place] = left
            else:
                del self._waiting[place]
        for key, places in list(self._places.items()):
            for place in [place for place in places if place not in self._waiting]:
                del places[place]
            if not places:
                del self._places[key]
                self._long_polls.unwatch(key, self._on_message)

    def _answer(self, poll: Poll, reply: Response | bytes) -> None:
        waited_ms = self._now_ms() - poll.since_ms
        poll.connection.respond_late(poll.command, reply, waited_ms, is_long_polling=True)

    def _on_message(self, key: QueueKey) -> None:
        for place in list(self._places.get(key, ())):
            self.wake(place)


def _let_go(poll: Poll) -> None:
    """It waits no more: its memory is free."""
    if poll.bytes:
        poll.connection.budget.waiting -= poll.bytes
