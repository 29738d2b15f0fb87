"""How many calls of each RPC ended with which code, and how long they took."""

from bisect import bisect_left

BOUNDS_MS = (1, 3, 5, 7, 10, 100, 200, 400, 600, 800, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000)


class Latencies:
    """A histogram: the calls up to each bound, those above the last one, and the sum in ms."""

    __slots__ = ("counts", "total_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.total_ms = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)


class CallCounts:
    """By RPC and code. There are few of both, so this stays small."""

    def __init__(self) -> None:
        self.latencies: dict[tuple[str, int], Latencies] = {}

    def add(self, rpc: str, code: int, seconds: float) -> None:
        """A call has ended."""
        found = self.latencies.get((rpc, code))
        if found is None:
            found = self.latencies[rpc, code] = Latencies()
        ms = seconds * 1_000
        found.counts[bisect_left(BOUNDS_MS, ms)] += 1
        found.total_ms += ms
