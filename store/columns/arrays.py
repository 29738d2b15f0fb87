"""Arrow arrays over numpy's memory, or of one value.

They are not made by `pa.array` and `pa.scalar`: these import pandas to recognize its types, and a
Spark worker would load 30 MB for nothing.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def numbers(values: NDArray[Any], *, absent: NDArray[np.bool_] | None = None) -> pa.Array:
    """The numbers as an Arrow array over the same memory; null where `absent` is true."""
    values = np.ascontiguousarray(values)
    valid = None
    if absent is not None:
        valid = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])


def constant(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    """An Arrow array with the same text or whole number `count` times."""
    if isinstance(value, int):
        return numbers(np.full(count, value, kind.to_pandas_dtype()))
    data = value.encode()
    bounds = np.array([0, len(data)], np.int32)
    one = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return one.take(numbers(np.zeros(count, np.int32)))
