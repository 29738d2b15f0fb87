"""How values are spread over bounds, as Prometheus counts them."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """`counts` has one number for each of the `bounds`, of the values up to it and above the bound
    before it; the last number is of the values above all bounds. `sum` is the sum of all values."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[int]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0

    def record(self, value: int, times: int = 1) -> None:
        """Count this value, so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times
