"""One iteration of the event loop, a tick: the requests that came are served, then all responses
leave together.

Which requests a tick serves is one rule, `DeficitRoundRobin`, by bytes over connections. A
connection whose bytes arrive is served in the same tick, up to one quantum; what is left waits for
its round. Before the responses leave, the owner's `before_write` runs: the broker writes the staged
messages there, so that no response leaves before its message is in the log. When it raises, the
responses of this tick are not sent and their connections are aborted: a client without a response
tries again, a client with a false one does not.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

from .chunks import ChunkBatch
from .memory_budget import RESPONSE_BYTES_PER_TICK, MemoryBudget
from .rpc_latency import AT_ONCE_SECONDS, SERIES_MAX, RpcLatency

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 0.05  # how late a request's timeout may be noticed
QUANTUM_BYTES = 4 << 10  # of requests that a round adds to each connection, beside a light client
QUANTUM_BYTES_ALONE = 64 << 10  # the same while only heavy senders are active
REQUEST_BYTES = 512  # what a request that is handled by itself costs, on top of its bytes
TICK_BYTES_MAX = 1 << 20  # of requests that arrive and are served at once
LIGHT_SECONDS = 0.1  # how long a light client counts as active after a request


class Flow(Protocol):
    """A source of requests; `deficit` is the bytes that it may be served on top of a quantum."""

    deficit: int
    in_run_queue: bool  # it has its place among the flows, or comes in the next tick
    has_more: bool  # requests wait that can be served

    def serve(self, allowed: int) -> int:
        """Serve requests of `allowed` bytes; how many were served."""

    def abort(self) -> None:
        """Close: its requests can't be served."""


AnyFlow = TypeVar("AnyFlow", bound=Flow)


class DeficitRoundRobin(Generic[AnyFlow]):
    """The flows whose requests wait, in the order of their rounds.

    Deficit round robin (Shreedhar and Varghese, 1995): each round adds a quantum of bytes to what a
    flow may be served. What it doesn't use, because its next request is larger, is its deficit, and
    counts in its next round. A flow with nothing left to serve loses its deficit. So each flow gets
    the same number of bytes over time, however large its requests are and however many wait.
    """

    __slots__ = ("flows",)

    def __init__(self) -> None:
        self.flows: deque[AnyFlow] = deque()

    def add(self, flow: AnyFlow) -> None:
        """The flow has requests that wait; does nothing if it has its place already."""
        if not flow.in_run_queue:
            flow.in_run_queue = True
            self.flows.append(flow)

    def serve_next(self, quantum: int) -> int:
        """Serve the next flow for one quantum; how many bytes were served."""
        flow = self.flows.popleft()
        flow.in_run_queue = False
        allowed = flow.deficit + quantum
        flow.deficit = 0
        try:
            served = flow.serve(allowed)
        except Exception:
            _abort_failed(flow)
            return quantum
        if flow.has_more:
            flow.deficit = allowed - served
            self.add(flow)
        return served


class Scheduled(Flow, Protocol):
    """A connection: its requests are served, and its responses written, tick by tick."""

    def limit_ahead(self) -> None:
        """Stop reading if many of the connection's requests wait; they can't be served now."""

    def unserved_codes(self) -> list[int]:
        """The codes of its requests that were decoded and wait for a later tick."""

    def flush(self) -> None:
        """Write its responses."""


class Batched(Protocol):
    """Responses to many connections that go out together."""

    @property
    def receivers(self) -> Sequence[Scheduled]:
        """The connections that get the responses."""

    def write(self) -> None:
        """Write them."""


class Expiring(Protocol):
    """Requests that wait for responses, each until its deadline."""

    def expire(self, now: float) -> bool:
        """Fail the requests whose deadline is over; False when none is waiting any more."""


class Scheduler:
    """Serves the connections of a server or of a client, tick by tick.

    It has their memory `budget`, and the one timer behind all requests that wait for responses.
    With a `batch` the chunks that may be in it are left there for `before_write`.
    """

    __slots__ = (
        "_heavy",
        "_ready",
        "_shared_until",
        "_ticking",
        "_waiting",
        "_was_delayed",
        "_woken",
        "arrived",
        "batch",
        "before_write",
        "budget",
        "is_batching",
        "is_planned",
        "is_shared",
        "latency",
        "loop",
        "response_bytes",
        "round_robin",
        "served",
        "unflushed",
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
        self.latency = latency  # where the owner measures how long requests take
        self.batch: ChunkBatch[Any] | None = None  # its owner knows the class of the senders
        self.round_robin: DeficitRoundRobin[Scheduled] = DeficitRoundRobin()
        self.is_batching = False  # this tick has chunks of enough connections for a batch
        self.is_shared = False  # heavy senders and light clients are active
        self.response_bytes = 0  # bytes of large responses in this tick
        self.served = 0  # connections that were written to, added up over all ticks
        self.arrived: list[Scheduled] = []  # connections whose bytes came since the last tick
        self.unflushed: list[Scheduled] = []
        self._ready: list[Batched] = []
        self._heavy: dict[Scheduled, float] = {}  # when they last had more than a quantum
        self._shared_until = 0.0
        self._was_delayed = False  # the last tick left the heavy senders out
        self.is_planned = False  # a tick will run, or runs
        self._woken = False  # since this tick's end began
        self._waiting: dict[Expiring, None] = {}
        self._ticking = False

    def add(self, connection: Scheduled) -> None:
        """The connection has output; called once a tick for each."""
        self.unflushed.append(connection)
        self.plan_tick()

    def release(self, responses: Batched) -> None:
        """Send these responses at the end of this tick."""
        self._ready.append(responses)
        self.plan_tick()

    def plan_tick(self) -> None:
        """Have a tick run, unless it is running already."""
        if not self.is_planned:
            self.is_planned = True
            self.loop.call_soon(self.tick)

    def wake(self) -> None:
        """Run `before_write` in the next tick even when there is nothing to write yet.

        From inside of it: in the tick after this one.
        """
        self._woken = True
        self.plan_tick()

    @property
    def response_budget_spent(self) -> bool:
        """The responses of this tick have as many bytes as one tick may."""
        return self.response_bytes > RESPONSE_BYTES_PER_TICK

    def unserved(self) -> Iterator[int]:
        """The codes of requests that were decoded and wait for a later tick."""
        for connection in self.round_robin.flows:
            yield from connection.unserved_codes()

    def queue(self, connection: Scheduled) -> None:
        """The connection has requests that wait: it is served when its round comes."""
        self.round_robin.add(connection)
        self.plan_tick()

    def mark_heavy(self, connection: Scheduled) -> None:
        """The connection has sent more than its quantum."""
        self._heavy[connection] = self.loop.time()

    def watch(self, requests: Expiring) -> None:
        """Check these requests, which wait for responses, for overdue ones from now on."""
        self._waiting[requests] = None
        if not self._ticking:
            self._ticking = True
            self.loop.call_later(TIMEOUT_SECONDS, self._expire)

    def tick(self) -> None:  # noqa: PLR0915 - each call would cost
        """Serve what came, and what has waited for its round; then write the responses."""
        batch, round_robin = self.batch, self.round_robin
        flows = round_robin.flows
        waiting = len(flows)  # no connection is served twice in a tick
        self._woken = False
        self.response_bytes = 0
        arrived, self.arrived = self.arrived, []
        quantum = QUANTUM_BYTES if self.is_shared else QUANTUM_BYTES_ALONE
        left = TICK_BYTES_MAX
        if batch is not None:
            self.is_batching = len(arrived) + waiting + len(batch.senders) >= batch.chunks_min
        for connection in arrived:  # as `serve_next` does, without a call for each send
            connection.in_run_queue = False
            if left <= 0 or (self.is_shared and connection in self._heavy):
                round_robin.add(connection)
                connection.limit_ahead()
                continue
            try:
                served = connection.serve(quantum)
            except Exception:
                _abort_failed(connection)
                continue
            left -= served
            if connection.has_more:
                connection.deficit = quantum - served
                round_robin.add(connection)
        if waiting:
            # A light client has its response before the heavy senders' messages are stored.
            self._was_delayed = self.is_shared and bool(self.unflushed) and not self._was_delayed
            if not self._was_delayed:
                self._serve_waiting(waiting, quantum)
        taken: list[Scheduled] = [] if batch is None else batch.senders
        is_stored = True
        if self.before_write is not None:
            try:
                self.before_write()  # its responses go out with the rest
            except Exception:
                is_stored = False
                log.exception("the store did not take the messages of this loop iteration")
        self.is_planned = False
        if self._woken or flows or self.arrived:
            self.plan_tick()
        unflushed, self.unflushed = self.unflushed, []
        ready, self._ready = self._ready, []
        if not is_stored:
            self._abort(unflushed, taken, ready)
            return
        self.served += len(unflushed)
        if self._heavy or self.is_shared:
            self._choose_quantum([*unflushed, *taken])
        # Those of a batch are many, or large: they come last.
        for connection in unflushed:
            connection.flush()
        for responses in ready:
            self.served += len(responses.receivers)
            responses.write()
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
                latency.end_tick()

    def _serve_waiting(self, flows: int, left: int) -> None:
        """Serve the next of these flows, one quantum of bytes in all; one flow at a time while the
        memory budget is spent."""
        quantum = left
        for _ in range(flows):
            left -= self.round_robin.serve_next(quantum)
            if left <= 0 or self.response_budget_spent or not self.budget.unsent_max:
                return

    def _abort(
        self,
        unflushed: list[Scheduled],
        taken: list[Scheduled],
        ready: list[Batched],
    ) -> None:
        """Close all connections whose responses would be false."""
        connections = dict.fromkeys([*unflushed, *taken])
        for responses in ready:
            connections |= dict.fromkeys(responses.receivers)
        log.error("closing %d connections whose responses would be false", len(connections))
        for connection in connections:
            connection.abort()

    def _choose_quantum(self, served: list[Scheduled]) -> None:
        """Use the small quantum while a light client is active beside heavy senders."""
        now = self.loop.time()
        self._heavy = heavy = {
            connection: at for connection, at in self._heavy.items() if now - at < LIGHT_SECONDS
        }
        if heavy and any(connection not in heavy for connection in served):
            self._shared_until = now + LIGHT_SECONDS
        self.is_shared = now < self._shared_until

    def _expire(self) -> None:
        now = self.loop.time()
        for requests in list(self._waiting):
            if not requests.expire(now):
                del self._waiting[requests]
        if self._waiting:
            self.loop.call_later(TIMEOUT_SECONDS, self._expire)
        else:
            self._ticking = False


def _abort_failed(flow: Flow) -> None:
    log.exception("a connection can't be served; closing it")
    flow.has_more = False
    flow.abort()
