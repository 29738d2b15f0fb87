"""Parked requests: requests that wait, as records without a task or a timer each.

A parking lot has the requests of one kind. Each is parked at a place, which names what it waits
for. The owner of the lot decides when the requests of a place run again, and in which order. A
re-run calls the same function as a new request, so the two can't differ. A sweep answers the
requests whose time is up.
"""

from collections.abc import Callable, Container, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ...protocol.aio.connection import Connection
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal

CHECKED_PER_PART = 2_000  # requests that a sweep checks before it pauses

Place = TypeVar("Place", bound=Hashable)
# Runs a request again: header, command, connection, whether it is the last time. None: the request
# waits on.
Rerun = Callable[[Any, Command, Connection, bool], Response | bytes | None]

WAITS, ANSWERED, GONE = range(3)  # what became of a request that ran again


@dataclass(slots=True, eq=False)
class ParkedRequest:
    """One parked request. `bytes` is the size of an unusually long one, for the limit of memory."""

    header: Any
    command: Command
    connection: Connection
    since_ms: int
    end_ms: int
    bytes: int = 0


class ParkingLot(Generic[Place]):
    """The parked requests of one kind, by place.

    `is_long_polling` tells how the time that they waited is counted. `may_overstay`: a request
    whose time is up still waits until its peer has read what it was sent.
    """

    def __init__(
        self,
        rerun: Rerun,
        now_ms: Callable[[], int],
        *,
        is_long_polling: bool = True,
        may_overstay: bool = False,
    ) -> None:
        self.parked: dict[Place, list[ParkedRequest]] = {}
        self.count = 0
        self._rerun = rerun
        self._now_ms = now_ms
        self._is_long_polling = is_long_polling
        self._may_overstay = may_overstay
        self._kept: Container[Place] = ()  # places that stay in `parked` without a request

    def add(self, place: Place, request: ParkedRequest, place_max: int, all_max: int) -> bool:
        """Park a request behind the others of its place. False at a limit: of the place, of all
        places, or of the memory."""
        requests = self.parked.get(place)
        if self.count >= all_max or (requests is not None and len(requests) >= place_max):
            return False
        if request.bytes and not request.connection.budget.may_wait(request.bytes):
            return False
        if requests is None:
            self.parked[place] = [request]
        else:
            requests.append(request)
        self.count += 1
        return True

    def run(self, request: ParkedRequest, *, is_last: bool) -> int:
        """Run a request again that was taken out of the lot, and answer it; what became of it. One
        that `WAITS` has to be put back, unless somebody else keeps it."""
        connection, became = request.connection, GONE
        if not connection.is_lost:
            if connection.should_defer and (self._may_overstay or not is_last):
                # What it would find waits in memory, and is invisible to others if it pops.
                connection.postpone(request.command)
            else:
                try:
                    reply = self._rerun(request.header, request.command, connection, is_last)
                except Refusal as refusal:
                    reply = Response(refusal.code, refusal.fields, refusal.remark)
                if reply is None:
                    return WAITS
                waited_ms = self._now_ms() - request.since_ms
                connection.respond_late(
                    request.command, reply, waited_ms, is_long_polling=self._is_long_polling
                )
                became = ANSWERED
        if request.bytes:
            connection.budget.waiting -= request.bytes
        return became

    def sweep(self, now_ms: int) -> None:
        """Answer the requests whose time is up, and drop those of lost connections."""
        for _ in self.sweep_in_parts(now_ms):
            pass

    def sweep_in_parts(self, now_ms: int) -> Iterator[None]:
        """The same, with pauses in which others may work, where many wait."""
        checked = 0
        for place in list(self.parked):
            if checked >= CHECKED_PER_PART:
                checked = 0
                yield
            requests = self.parked.get(place)
            if requests is None:
                continue
            checked += 1 + len(requests)
            due = [r for r in requests if r.end_ms <= now_ms or r.connection.is_lost]
            if requests and not due:
                continue
            left = [r for r in requests if r.end_ms > now_ms and not r.connection.is_lost]
            self.count -= len(due)
            if left or place in self._kept:
                self.parked[place] = left
            else:
                del self.parked[place]
            for request in due:
                self.run(request, is_last=True)
