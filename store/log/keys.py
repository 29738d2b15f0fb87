"""The keys that messages are indexed under: the unique key first, then each word of KEYS.

`index_keys` reads one message, `places_of_keys` and `hashes_of_keys` many at once.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...protocol.message import properties as props
from ...protocol.message.tags import string_hash
from ..base.kernels import RunKernels
from .key_hash import positive_hashes, slice_hashes
from .property_table import PropertyTable
from .records import Positions

BLANK = ord(props.KEY_SEPARATOR)


def index_keys(raw: bytes) -> list[bytes]:
    """The keys of a message with these properties."""
    found = []
    unique = props.find(raw, b"UNIQ_KEY")
    if unique:
        found.append(unique)
    keys = props.find(raw, b"KEYS") if b"KEYS\x01" in raw else None
    if keys:
        found += [key for key in keys.split(b" ") if key]
    return found


def places_of_keys(table: PropertyTable) -> tuple[Positions, Positions, Positions]:
    """The keys of all messages of a table: the row of each, ascending, and where it lies."""
    rows, starts, ends = table.find(props.UNIQ_KEY)
    more = _words(table, *table.find(props.KEYS))
    if len(more[0]):
        both = [np.concatenate(pair) for pair in zip((rows, starts, ends), more, strict=True)]
        order = np.argsort(both[0], kind="stable")
        rows, starts, ends = (values[order] for values in both)
    return rows, starts, ends


def hashes_of_keys(
    table: PropertyTable,
    starts: Positions,
    ends: Positions,
    topics: Sequence[str],
    topic_of: Positions,
    kernels: RunKernels | None = None,
) -> Positions:
    """The hashes of `topic#key` of the keys that lie there; `topic_of` has the topic of each."""
    prefixes = [string_hash(f"{topic}#") & 0xFFFFFFFF for topic in topics]
    before = np.array(prefixes, np.uint32)[topic_of]
    return positive_hashes(slice_hashes(table.data, starts, ends, before, kernels))


def table_of(texts: Sequence[bytes]) -> PropertyTable:
    """A table of these properties texts."""
    bounds = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1, out=bounds[1:])
    # A separator too many is an entry without a name, which is none.
    return PropertyTable(b"\x02".join(texts) + b"\x02", bounds)


def _words(
    table: PropertyTable, rows: Positions, starts: Positions, ends: Positions
) -> tuple[Positions, Positions, Positions]:
    """The words that these values consist of; a value is cut at each blank."""
    if not len(rows):
        return rows, starts, ends
    blanks: NDArray[np.int64] = np.flatnonzero(table.data == BLANK)
    holder = np.searchsorted(starts, blanks, side="right") - 1
    blanks = blanks[(holder >= 0) & (blanks < ends[holder])]
    if not len(blanks):
        return rows, starts, ends
    begins = np.sort(np.concatenate((starts, blanks + 1)))
    stops = np.sort(np.concatenate((blanks, ends)))
    owner = rows[np.searchsorted(starts, begins, side="right") - 1]
    is_word = stops > begins
    return owner[is_word], begins[is_word], stops[is_word]
