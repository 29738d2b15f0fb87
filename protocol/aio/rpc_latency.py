"""How long requests took, by the codes of request and answer (RocketMQ's rpc_latency).

The responses of a tick leave together, so they are counted by their codes while the tick lasts,
and the clock is read once at its end. A response that comes in a later tick says how long its
request waited.
"""

from collections import defaultdict
from collections.abc import Iterator
from time import perf_counter
from typing import NamedTuple

from ..histogram import Histogram

BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
AT_ONCE_SECONDS = 0.001  # a tick that took less is one of 0 ms
SERIES_MAX = 10_000  # combinations of codes; clients choose request codes, even unknown ones

RESPONSE_BITS = 32
ONEWAY = 1 << 31  # of a key: the peer expects no response
_SUSPENDED = 1 << 30
_CODE = _SUSPENDED - 1  # of a key, the response


class Rpc(NamedTuple):
    """A kind of request and answer. `is_long_polling`: the request waited for a message."""

    request: int
    response: int
    is_oneway: bool
    is_long_polling: bool


def rpc_key(request: int, response: int) -> int:
    """The number under which answers with `response` to `request` are counted."""
    return request << RESPONSE_BITS | response & _CODE


class RpcLatency:
    """The histograms of one server.

    `began` is when the first bytes of this tick came, 0.0 before (time.perf_counter). `answered`
    counts the responses of this tick by `rpc_key`. `at_once` counts those of ticks that took less
    than AT_ONCE_SECONDS, which are not in the histograms yet.
    """

    __slots__ = ("_histograms", "answered", "at_once", "began")

    def __init__(self) -> None:
        self.began = 0.0
        self.answered: defaultdict[int, int] = defaultdict(int)
        self.at_once: defaultdict[int, int] = defaultdict(int)
        self._histograms: dict[int, Histogram] = {}

    def oneway(self, request: int, response: int, count: int = 1) -> None:
        """Requests that want no answer were done in this tick."""
        if count:
            self.answered[rpc_key(request, response) | ONEWAY] += count

    def late(
        self,
        request: int,
        response: int,
        waited_ms: int,
        count: int = 1,
        *,
        is_long_polling: bool = False,
    ) -> None:
        """Requests that came in an earlier tick are answered."""
        key = rpc_key(request, response) | (_SUSPENDED if is_long_polling else 0)
        self._record(key, max(0, waited_ms), count)

    def end_tick(self) -> None:
        """The responses of this tick have left."""
        self._take_at_once()
        answered = self.answered
        if answered:
            waited_ms = int((perf_counter() - self.began) * 1_000) if self.began else 0
            for key, count in answered.items():
                self._record(key, waited_ms, count)
            answered.clear()
        self.began = 0.0

    def histograms(self) -> Iterator[tuple[Rpc, Histogram]]:
        """The histograms, in ms."""
        self._take_at_once()
        for key, histogram in list(self._histograms.items()):
            flags = bool(key & ONEWAY), bool(key & _SUSPENDED)
            yield Rpc(key >> RESPONSE_BITS, key & _CODE, *flags), histogram

    def _take_at_once(self) -> None:
        for key, count in self.at_once.items():
            self._record(key, 0, count)
        self.at_once.clear()

    def _record(self, key: int, value: int, times: int) -> None:
        histogram = self._histograms.get(key)
        if histogram is None:
            if len(self._histograms) >= SERIES_MAX:
                return
            histogram = self._histograms[key] = Histogram(BOUNDS_MS)
        histogram.record(value, times)
