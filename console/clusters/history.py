"""Figures over time, in memory: all series have one step, which grows when they need more memory.

A point is the last value within a step, as a 32-bit float; a step without a value is NaN.
"""

from array import array
from collections.abc import Hashable, Iterable
from math import isnan, nan
from typing import Any, NamedTuple

Key = Hashable

STEP_MS = 10_000
SPAN_MS = 24 * 3_600_000
BYTES_MAX = 64 << 20
POINTS_MAX = 720  # of a chart
SERIES_BYTES = 400  # of a series without its points


# Of each series its key, the number of its first step, and its points as 32-bit floats.
Saved = list[tuple[Any, int, bytes]]


class Points(NamedTuple):
    """Values at `first_ms`, `first_ms + step_ms` and so on; None where nothing was measured."""

    first_ms: int
    step_ms: int
    values: list[float | None]


def summed(parts: Iterable[Points], span_ms: int, points_max: int = POINTS_MAX) -> Points:
    """The sum of series of one step over their last `span_ms`, with the mean of several steps where
    these are more than `points_max`. A point that one series lacks counts 0 of it."""
    found = [one for one in parts if one.values]
    if not found:
        return Points(0, STEP_MS, [])
    step_ms = found[0].step_ms
    end = max(one.first_ms // step_ms + len(one.values) for one in found)
    first = max(min(one.first_ms // step_ms for one in found), end - span_ms // step_ms)
    sums: list[float | None] = [None] * (end - first)
    for one in found:
        for at, value in enumerate(one.values, one.first_ms // step_ms - first):
            if at >= 0 and value is not None:
                sums[at] = (sums[at] or 0.0) + value
    wide = -(-len(sums) // points_max)
    before = first % wide  # places are those of the clock, so that a later look has the same ones
    means = [_mean(sums[max(0, at) : at + wide]) for at in range(-before, len(sums), wide)]
    return Points((first - before) * step_ms, step_ms * wide, means)


def _mean(values: list[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return round(sum(known) / len(known), 3) if known else None


class _Series:
    __slots__ = ("first", "values")

    def __init__(self, first: int) -> None:
        self.first = first  # the number of the first step
        self.values = array("f")


class History:
    """Series by key. When all together need more than `bytes_max`, two steps become one."""

    def __init__(self, bytes_max: int = BYTES_MAX, span_ms: int = SPAN_MS) -> None:
        self._bytes_max = bytes_max
        self._span_ms = span_ms
        self._series: dict[Key, _Series] = {}
        self._points = 0
        self.step_ms = STEP_MS

    @property
    def bytes(self) -> int:
        """About what the series need."""
        return len(self._series) * SERIES_BYTES + 4 * self._points

    def add(self, key: Key, at_ms: int, value: float | None) -> None:
        """A value of a series; None, which is not known, leaves a gap."""
        if value is None:
            return
        step = at_ms // self.step_ms
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(step)
        values = series.values
        at = step - series.first
        if at < 0:
            return  # the clock went back
        kept = self._span_ms // self.step_ms
        if at >= len(values) + kept:
            self._points -= len(values)
            series.first, at = step, 0
            del values[:]
        if at < len(values):
            values[at] = value
        else:
            gap = at - len(values)
            values.extend([nan] * gap)
            values.append(value)
            self._points += gap + 1
        if len(values) > kept:
            over = len(values) - kept
            del values[:over]
            series.first += over
            self._points -= over
        while self.bytes > self._bytes_max and self._points > len(self._series):
            self._thin()

    def points(self, key: Key, span_ms: int = SPAN_MS) -> Points:
        """The points of the last `span_ms` of a series, none for an unknown one."""
        series = self._series.get(key)
        if series is None:
            return Points(0, self.step_ms, [])
        before = max(0, len(series.values) - span_ms // self.step_ms)
        values = [None if isnan(one) else round(one, 3) for one in series.values[before:]]
        return Points((series.first + before) * self.step_ms, self.step_ms, values)

    def forget(self, keys: set[Key]) -> None:
        """Drop these series, of what is gone."""
        for key in keys & self._series.keys():
            self._points -= len(self._series.pop(key).values)

    def snapshot(self) -> tuple[int, Saved]:
        """The step in ms, and the series, with floats in the order of bytes of this machine."""
        return self.step_ms, [
            (key, one.first, one.values.tobytes()) for key, one in self._series.items()
        ]

    def restore(self, step_ms: int, series: Iterable[tuple[Any, int, "array[float]"]]) -> None:
        """Begin with these series, as of a snapshot; the same limits hold."""
        self.step_ms = step_ms
        kept = self._span_ms // step_ms
        for key, first, values in series:
            one = self._series[key] = _Series(first)
            one.values = values[-kept:]
            one.first += len(values) - len(one.values)
        self._points = sum(len(one.values) for one in self._series.values())
        while self.bytes > self._bytes_max and self._points > len(self._series):
            self._thin()

    def _thin(self) -> None:
        """Two steps become one: the later value that is known."""
        self.step_ms *= 2
        self._points = 0
        for series in self._series.values():
            before, first = series.values, series.first
            series.first = first // 2
            values = [nan] * (first % 2) + list(before)
            if len(values) % 2:
                values.append(nan)
            pairs = zip(values[::2], values[1::2], strict=True)
            series.values = array("f", [a if isnan(b) else b for a, b in pairs])
            self._points += len(series.values)
