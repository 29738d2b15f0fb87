"""Hashes of message keys as the index keeps them, many at once.

Java's String.hashCode of `topic#key`, made positive: the sum over UTF-16 units of
unit · 31^(units behind it), modulo 2^32. Numpy does it for all keys of a batch together, whatever
their lengths.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..protocol.tags import string_hash

Hashes = npt.NDArray[np.int64]

_POWERS_KEPT = 1 << 16
_powers = np.ones(1, np.uint32)


def key_hash(key: str) -> int:
    """The hash of one `topic#key`."""
    return _positive(string_hash(key))


def key_hashes(keys: Sequence[bytes]) -> Hashes:
    """The hashes of these keys (`topic#key` in UTF-8, none of them empty)."""
    if not keys:
        return np.empty(0, np.int64)
    joined = b"".join(keys)
    if joined.isascii():
        lengths = np.fromiter(map(len, keys), np.int64, len(keys))
        units = np.frombuffer(joined, np.uint8)
    else:
        wide = [key.decode(errors="replace").encode("utf-16-le", "surrogatepass") for key in keys]
        lengths = np.fromiter(map(len, wide), np.int64, len(wide)) // 2
        units = np.frombuffer(b"".join(wide), "<u2")
    size = int(lengths[0])
    if (lengths == size).all():
        return _positives(_hashes_of_one_length(units.reshape(-1, size)))
    ends = np.cumsum(lengths)
    behind = np.repeat(ends, lengths) - np.arange(1, len(units) + 1)
    powers = _powers_of_31(int(lengths.max()))
    with np.errstate(over="ignore"):
        products = units.astype(np.uint32) * powers[behind]
        sums = np.add.reduceat(products, ends - lengths, dtype=np.uint32)
    return _positives(sums)


def _hashes_of_one_length(units: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """The sums of keys of one length, one key a row: ten times quicker than the general way.

    Unique keys have one length, so most batches come here.
    """
    columns = units.T.astype(np.uint32, order="C")
    with np.errstate(over="ignore"):
        found: npt.NDArray[np.uint32] = columns[0].copy()
        for column in columns[1:]:
            found *= np.uint32(31)
            found += column
    return found


def _positives(sums: npt.NDArray[np.uint32]) -> Hashes:
    found = np.abs(sums.view(np.int32).astype(np.int64))
    # Math.abs leaves the least int negative, and RocketMQ makes that 0.
    found[found == 1 << 31] = 0
    return found


def _positive(value: int) -> int:
    return 0 if value == -(1 << 31) else abs(value)


def _powers_of_31(count: int) -> npt.NDArray[np.uint32]:
    global _powers
    if len(_powers) >= count:
        return _powers
    size = max(256, count)
    with np.errstate(over="ignore"):
        factors = np.full(size, 31, np.uint32)
        factors[0] = 1
        powers = np.cumprod(factors, dtype=np.uint32)
    if size <= _POWERS_KEPT:
        _powers = powers
    return powers
