"""A histogram of values in buckets, as Prometheus has it."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts values by bucket.

    `counts[i]` is the number of values up to `bounds[i]` and above the bound before it; the last
    count is for values above all bounds. `sum` is the sum of all values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[int]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def record(self, value: float, times: int = 1) -> None:
        """Count this value `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times
