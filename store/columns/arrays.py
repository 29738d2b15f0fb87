"""Arrow arrays over numpy's memory, of one value, or of slices of bytes, which Arrow copies.

They are not made by `pa.array` and `pa.scalar`, nor read by `to_numpy`: these import pandas to
recognize its types, and a Spark worker would load 30 MB for nothing.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..log.records import Positions


def numbers(values: NDArray[Any], *, absent: NDArray[np.bool_] | None = None) -> pa.Array:
    """The numbers as an Arrow array over the same memory; null where `absent` is true."""
    values = np.ascontiguousarray(values)
    valid = None
    if absent is not None:
        valid = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])


def codes(values: pa.DictionaryArray) -> NDArray[np.int32]:
    """The places in the dictionary, over the same memory; no value may be null."""
    indices = values.indices
    return np.frombuffer(indices.buffers()[1], np.int32, len(indices), 4 * indices.offset)


def constant(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    """An Arrow array with the same text or whole number `count` times."""
    if isinstance(value, int):
        return numbers(np.full(count, value, kind.to_pandas_dtype()))
    data = value.encode()
    bounds = np.array([0, len(data)], np.int32)
    one = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return one.take(numbers(np.zeros(count, np.int32)))


def slices(data: Any, starts: Positions, ends: Positions) -> pa.BinaryArray:
    """The slices `data[start:end]` as one Arrow array.

    The slices must be in ascending order and not overlap. They and the gaps between them are the
    elements of one array over the same bytes; every second element is taken.
    """
    bounds = np.zeros(2 * len(starts) + 1, np.int32)
    bounds[0:-1:2] = starts
    bounds[1::2] = ends
    bounds[-1] = bounds[-2] if len(starts) else 0
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    every = pa.Array.from_buffers(pa.binary(), 2 * len(starts), buffers)
    return every.take(numbers(np.arange(0, 2 * len(starts), 2)))
