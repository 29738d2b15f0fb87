"""One turn of the event loop: what came in is handled, then all answers go out together.

A connection that has something to write puts itself on the list; when the turn ends the list is
worked off, with one write per connection. Before that the owner's `before_write` runs: the broker
writes the staged messages there, so that no answer leaves before its message is in the log. When it
raises, the answers of this turn are not sent and their connections are aborted: a client that
hears nothing tries again, one that hears a lie doesn't.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import accumulate
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from .memory_budget import OWED_IN_TURN_MAX, MemoryBudget
from .rpc_latency import AT_ONCE_SECONDS, SERIES_MAX, RpcLatency

if TYPE_CHECKING:
    from .connection import Connection
    from .epoll_reader import Crowd

log = logging.getLogger(__name__)

TICK_SECONDS = 0.05  # how late a request's timeout may be noticed
COMMANDS_ALONE = 64  # of one connection in a turn, when nobody else wants anything
COMMANDS_SHARED = 8  # when somebody else did
SHARED_SECONDS = 0.1  # for how long after that
LANE_BYTES_MAX = 1 << 20  # in one turn; what comes beyond that goes the common way
LANE_SHARE = 2 << 10  # bytes in a turn of who asks for much, when somebody else asks for little
CROWD_MIN = 16  # connections served in a turn, from which on they are read together
START = slice(8, 20)  # of a frame with a JSON header: the twelve bytes that begin the header
LANE_FEW = 4  # connections served in a turn; with fewer the lane takes longer than the common way


class Lane:
    """What came in this turn from connections that sent plain messages, to be read all at once.

    Such a connection leaves its bytes in `laned`; those that a `crowd` (`crowd.py`) read together
    are one `block`. The owner takes all at the end of the iteration (`Scheduler.before_write`) and
    adds the connections whose messages it took, or for which it has responses, to `answered`. When
    all is stored the scheduler calls `write`, which writes these responses, else `drop`. `starts`
    are what the headers (`START`) of requests begin with that may go there; `is_worth` says of what
    came from one connection alone whether this is the shorter way for it.
    `served` is for how many connections the turn before had one. While it `is_held` it is for the
    next turn.
    """

    __slots__ = (
        "answered",
        "block",
        "bytes",
        "connections",
        "crowd",
        "drop",
        "few",
        "is_held",
        "is_worth",
        "many",
        "served",
        "starts",
        "write",
    )

    def __init__(
        self,
        write: Callable[[], None],
        drop: Callable[[], None],
        starts: frozenset[bytes],
        is_worth: Callable[[bytes], bool],
    ) -> None:
        self.connections: list[Connection] = []
        self.block: Block | None = None
        self.bytes = 0
        self.answered: list[Connection] = []
        self.few = LANE_FEW
        self.many = CROWD_MIN
        self.served = 0
        self.is_held = False
        self.write = write
        self.drop = drop
        self.starts = starts
        self.is_worth = is_worth
        self.crowd: Crowd | None = None

    def split(self) -> None:
        """Have what is in the block wait as what came by itself does."""
        if self.block is not None:
            for connection, piece in zip(self.block.senders, self.block.pieces(), strict=True):
                connection.laned = piece
            self.connections += self.block.senders
            self.block = None

    def empty(self) -> "Block":
        """Take all that waits."""
        block = self.block
        if self.connections or block is None:
            self.split()
            pieces = [connection.laned for connection in self.connections]
            for connection in self.connections:
                connection.laned = b""
            block = block_of(self.connections, pieces)
            self.connections = []
        self.block = None
        self.bytes = 0
        return block


class Block(NamedTuple):
    """What came from these connections, one behind the other; where what came from each ends."""

    senders: "list[Connection]"
    data: bytes
    ends: list[int]

    def pieces(self) -> list[bytes]:
        starts = [0, *self.ends]
        return [self.data[start:end] for start, end in zip(starts, self.ends, strict=False)]


def block_of(senders: "list[Connection]", pieces: list[bytes]) -> Block:
    """The block of what came from these, one piece each."""
    return Block(senders, b"".join(pieces), list(accumulate(map(len, pieces))))


class Scheduler:
    """The writes of one loop turn, the one timer behind all waiting requests, and the `backlog` of
    all its connections."""

    __slots__ = (
        "_dirty",
        "_greedy",
        "_queue",
        "_scheduled",
        "_serving",
        "_shared_until",
        "_ticking",
        "_waiting",
        "_woken",
        "before_write",
        "budget",
        "given",
        "lane",
        "latency",
        "loop",
        "served",
        "share",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        before_write: Callable[[], None] | None = None,
        budget: MemoryBudget | None = None,
        latency: RpcLatency | None = None,
    ) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self.budget = budget or MemoryBudget()
        self.before_write = before_write
        self.latency = latency  # where somebody wants to know how long requests take
        self.lane: Lane | None = None
        self._dirty: list[Connection] = []
        self._queue: dict[Connection, None] = {}
        self._serving = False  # some of these, in this turn or the next
        self._greedy: dict[Connection, float] = {}  # when they last asked for much
        self._shared_until = 0.0
        self.share = COMMANDS_ALONE  # requests of one connection that are served in a turn
        self.given = 0  # bytes of large answers in this turn
        self.served = 0  # connections that were written to, each turn's added up
        self._scheduled = False
        self._woken = False  # since this turn's end began
        self._waiting: dict[Connection, None] = {}
        self._ticking = False

    def add(self, connection: "Connection") -> None:
        """The connection has output; called once a turn for each."""
        self._dirty.append(connection)
        if not self._scheduled:  # as `plan_end`, without a call: this is done for every send
            self._scheduled = True
            self.loop.call_soon(self._end)

    def plan_end(self) -> None:
        """Have this iteration's end run, unless it is running already."""
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._end)

    def wake(self) -> None:
        """Run `before_write` at the end of this turn even when nothing is to be written yet.

        From inside of it: at the end of the next one.
        """
        self._woken = True
        self.plan_end()

    @property
    def is_shared(self) -> bool:
        """Somebody asks for much and somebody else for little, who is not to wait for it."""
        return self.share == COMMANDS_SHARED

    @property
    def is_busy(self) -> bool:
        """Some connection has more to be served than one turn allows."""
        return bool(self._queue)

    @property
    def gave_much(self) -> bool:
        """The answers of this turn have so many bytes that it is enough for one turn."""
        return self.given > OWED_IN_TURN_MAX

    def unserved(self) -> Iterator[int]:
        """The codes of requests that were read and wait for a later turn."""
        for connection in self._queue:
            yield from connection.unserved_codes()

    def queue(self, connection: "Connection") -> None:
        """The connection has requests that wait: it is served again, after those that came before.

        One such connection is served a turn, so that whoever asks for little waits for no more; or
        as many as have one share of the lane together.
        """
        self._queue[connection] = None
        if not self._serving:
            self._serving = True
            self.loop.call_soon(self._serve_some)

    def asked_much(self, connection: "Connection") -> None:
        """More than a small share of requests came in at once."""
        now = self._greedy[connection] = self.loop.time()
        if now >= self._shared_until:
            self.share = COMMANDS_ALONE

    def watch(self, connection: "Connection") -> None:
        """The connection waits for answers: look for overdue ones from now on."""
        self._waiting[connection] = None
        if not self._ticking:
            self._ticking = True
            self.loop.call_later(TICK_SECONDS, self._tick)

    def _serve_some(self) -> None:
        lane, queue = self.lane, self._queue
        self.given = 0  # whatever came first in this turn: who waits for one is served
        try:
            for _ in range(len(queue)):
                before = 0 if lane is None else lane.bytes
                connection = next(iter(queue))
                del queue[connection]
                connection.serve_more()
                if lane is None or not before < lane.bytes < LANE_SHARE:
                    break
        finally:  # whatever happened to one, the others have their turn
            self._serving = bool(queue)
            if self._serving:
                self.loop.call_soon(self._serve_some)

    def _end(self) -> None:
        lane = self.lane
        self._woken = False
        if lane is not None:
            # Who asks for little has his answer before the others' messages are stored.
            lane.is_held = bool(self.is_shared and self._dirty and lane.bytes and not lane.is_held)
            self._woken = lane.is_held
        is_stored = True
        if self.before_write is not None:
            try:
                self.before_write()  # what it answers goes out with the rest
            except Exception:
                is_stored = False
                log.exception("the store did not take this turn's messages")
        self._scheduled = False
        self.given = 0
        if self._woken:
            self.wake()
        dirty, self._dirty = self._dirty, []
        answered: list[Connection] = []
        if lane is not None:
            answered, lane.answered = lane.answered, []
            lane.served = len(answered) + len(dirty)
        if not is_stored:
            dirty += answered
            if lane is not None:
                lane.drop()
            log.error("closing %d connections whose answers would not be true", len(dirty))
            for connection in dirty:
                connection.abort()
            return
        self.served += len(dirty) + len(answered)
        if self._greedy:
            self._look_for_others(answered + dirty)
        # Those of the lane are many, or have much: they come last.
        for connection in dirty:
            connection.flush()
        if lane is not None and answered:
            lane.write()
        latency = self.latency
        if latency is not None and latency.answered:
            at_once = latency.at_once
            # Here and without a call: this is done for each send.
            if perf_counter() - latency.began < AT_ONCE_SECONDS and len(at_once) < SERIES_MAX:
                for key, count in latency.answered.items():
                    at_once[key] += count
                latency.answered.clear()
                latency.began = 0.0
            else:
                latency.end_turn()

    def _look_for_others(self, served: list["Connection"]) -> None:
        """Whether somebody was served who asks for little: then the others get smaller shares."""
        now = self.loop.time()
        greedy = self._greedy = {
            connection: at for connection, at in self._greedy.items() if now - at < SHARED_SECONDS
        }
        if greedy and any(connection not in greedy for connection in served):
            self._shared_until = now + SHARED_SECONDS
            self.share = COMMANDS_SHARED

    def _tick(self) -> None:
        now = self.loop.time()
        for connection in list(self._waiting):
            if not connection.expire(now):
                del self._waiting[connection]
        if self._waiting:
            self.loop.call_later(TICK_SECONDS, self._tick)
        else:
            self._ticking = False
