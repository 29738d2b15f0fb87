"""Slices of bytes as Arrow arrays, copied by Arrow and not by Python."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..log.records import Positions
from .arrays import numbers


def slices(data: Any, starts: Positions, ends: Positions) -> pa.BinaryArray:
    """The slices `data[start:end]` as one Arrow array.

    The slices must be in ascending order and not overlap. They and the gaps between them are the
    elements of one array over the same bytes; every second element is taken.
    """
    return _every_second(data, starts, ends).take(numbers(np.arange(0, 2 * len(starts), 2)))


def slices_in_rows(
    data: Any, rows: NDArray[Any], starts: Positions, ends: Positions, row_count: int
) -> pa.BinaryArray:
    """As `slices`, with slice i in row `rows[i]` and null in the other rows."""
    places = np.zeros(row_count, np.int64)
    absent = np.ones(row_count, bool)
    places[rows] = np.arange(0, 2 * len(starts), 2)
    absent[rows] = False
    return _every_second(data, starts, ends).take(numbers(places, absent=absent))


def _every_second(data: Any, starts: Positions, ends: Positions) -> pa.BinaryArray:
    bounds = np.zeros(2 * len(starts) + 1, np.int32)
    bounds[0:-1:2] = starts
    bounds[1::2] = ends
    bounds[-1] = bounds[-2] if len(starts) else 0
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), 2 * len(starts), buffers)
