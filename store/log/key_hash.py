"""Hashes of message keys as the index keeps them, many at once.

Java's String.hashCode of `topic#key`, made positive: the sum over UTF-16 units of
unit · 31^(units behind it), modulo 2^32. Numpy does it for all keys of a batch together, whatever
their lengths.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...protocol.message.tags import string_hash
from ..base.kernels import RunKernels

Hashes = npt.NDArray[np.int64]

ONE_LENGTH_MIN = 300  # keys, below which that has no advantage
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
        int64 = [key.decode(errors="replace").encode("utf-16-le", "surrogatepass") for key in keys]
        lengths = np.fromiter(map(len, int64), np.int64, len(int64)) // 2
        units = np.frombuffer(b"".join(int64), "<u2")
    size = int(lengths[0])
    if len(keys) >= ONE_LENGTH_MIN and (lengths == size).all():
        return positive_hashes(_hashes_of_one_length(units.reshape(-1, size)))
    ends = np.cumsum(lengths)
    behind = np.repeat(ends, lengths) - np.arange(1, len(units) + 1)
    powers = _powers_of_31(int(lengths.max()))
    with np.errstate(over="ignore"):
        products = units.astype(np.uint32) * powers[behind]
        sums = np.add.reduceat(products, ends - lengths, dtype=np.uint32)
    return positive_hashes(sums)


def slice_hashes(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    before: npt.NDArray[np.uint32] | None = None,
    kernels: RunKernels | None = None,
) -> npt.NDArray[np.uint32]:
    """The hashes of the pieces `data[start:end]` (UTF-8, none empty) as Java's String.hashCode.

    With `before`, of each piece behind a text that has this hash. Without `kernels` pieces of one
    length are hashed together.
    """
    if kernels is not None:
        whole = np.zeros(len(starts), np.int64) if before is None else before.astype(np.int64)
        if kernels.hashes(data, starts, ends, whole):
            return whole.astype(np.uint32)
    found = np.zeros(len(starts), np.uint32) if before is None else before.copy()
    lengths = ends - starts
    with np.errstate(over="ignore"):
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            columns = data[starts[rows] + np.arange(length)[:, None]]
            sums = found[rows]
            for column in columns:
                sums *= np.uint32(31)
                sums += column
            if (columns >= 0x80).any():
                for number in np.flatnonzero((columns >= 0x80).any(axis=0)):
                    sums[number] = _hash_behind(int(found[rows[number]]), columns[:, number])
            found[rows] = sums
    return found


def _hash_behind(before: int, piece: npt.NDArray[np.uint8]) -> int:
    """The hash of one piece that is not ASCII, behind a text with the hash `before`."""
    text = piece.tobytes().decode(errors="replace")
    units = len(text.encode("utf-16-le", "surrogatepass")) // 2
    return (before * pow(31, units, 1 << 32) + string_hash(text)) & 0xFFFFFFFF


def _hashes_of_one_length(units: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """The sums of keys of one length, one key a row: for many, far quicker than the general way.

    Unique keys have one length, so most large batches come here.
    """
    columns = units.T.astype(np.uint32, order="C")
    with np.errstate(over="ignore"):
        found: npt.NDArray[np.uint32] = columns[0].copy()
        for column in columns[1:]:
            found *= np.uint32(31)
            found += column
    return found


def positive_hashes(sums: npt.NDArray[np.uint32]) -> Hashes:
    """Hash codes as the index has them."""
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
