"""The properties of many messages at once, as Arrow columns.

Each message carries one string, `name \\x01 value \\x02 name \\x01 value \\x02 ...`. `Properties`
holds all of them behind one another and knows where each entry lies; looking a name up or splitting
all entries works on these positions, without a Python object per message. Read as RocketMQ reads:
the first \\x01 splits, an entry without name or without value is none, of two with one name the
last counts.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..protocol.properties import RESERVED
from .records import Positions, slices, slices_in_rows

NAME_END = 1
ENTRY_END = 2
_WORD_BYTES = 8


class Properties:
    """The property strings of a batch of messages; element i of a column belongs to message i."""

    def __init__(self, texts: pa.BinaryArray) -> None:
        self._texts = _ended(texts)
        self._bounds = np.frombuffer(self._texts.buffers()[1], np.int32)[: len(texts) + 1]
        held = self._texts.buffers()[2]
        size = int(self._bounds[-1]) if len(texts) else 0
        # Some room behind, so that a name is compared in words at the very end too.
        self._data = np.zeros(size + 2 * _WORD_BYTES, np.uint8)
        if size:
            self._data[:size] = np.frombuffer(held, np.uint8)[:size]
        self._ends: Positions = np.flatnonzero(self._data == ENTRY_END)
        self._starts = np.zeros_like(self._ends)
        self._starts[1:] = self._ends[:-1] + 1

    def __len__(self) -> int:
        return len(self._texts)

    def column(self, name: str) -> pa.StringArray:
        """Each message's value of this property, null where it has none."""
        return as_text(self.binary_column(name))

    def binary_column(self, name: str) -> pa.BinaryArray:
        """As `column`, not checked to be UTF-8."""
        wanted = name.encode() + bytes((NAME_END,))
        found = self._starts
        for at in range(0, len(wanted), _WORD_BYTES):
            part = wanted[at : at + _WORD_BYTES]
            mask = np.uint64((1 << 8 * len(part)) - 1)
            words = self._words()[found + at] & mask
            matching = words == np.uint64(int.from_bytes(part, "little"))
            found = found[matching]
        # The name holds no separator, so a match lies within one entry.
        ends = self._ends[np.searchsorted(self._starts, found)]
        starts = found + len(wanted)
        full = ends > starts
        starts, ends = starts[full], ends[full]
        return slices_in_rows(self._data, self._rows(starts), starts, ends, len(self))

    def headers(self, kind: pa.ListType) -> pa.ListArray:
        """The properties that the application set itself, as Kafka's headers; null for none."""
        rows, names, values = self._entries()
        own = pc.invert(pc.is_in(names, value_set=pa.array(sorted(RESERVED), pa.string())))
        kept = own.to_numpy(zero_copy_only=False)
        bounds = _row_bounds(rows[kept], len(self))
        entries = pa.StructArray.from_arrays(
            [names.filter(own), values.filter(own)], fields=list(kind.value_type)
        )
        none = pa.array(bounds[1:] == bounds[:-1])
        return pa.ListArray.from_arrays(pa.array(bounds), entries, type=kind, mask=none)

    def maps(self, kind: pa.MapType) -> pa.MapArray:
        """All properties of each message."""
        rows, names, values = self._entries()
        bounds = pa.array(_row_bounds(rows, len(self)))
        return pa.MapArray.from_arrays(bounds, names, as_text(values), type=kind)

    def _entries(self) -> tuple[NDArray[Any], pa.StringArray, pa.BinaryArray]:
        """Row, name and value of each entry that counts, in order."""
        splits = np.append(np.flatnonzero(self._data == NAME_END), len(self._data))
        split = splits[np.searchsorted(splits, self._starts)]
        whole = (split > self._starts) & (split + 1 < self._ends)
        starts, split, ends = self._starts[whole], split[whole], self._ends[whole]
        rows = self._rows(starts)
        names = slices(self._data, starts, split)
        values = slices(self._data, split + 1, ends)
        codes = names.dictionary_encode()
        pairs = rows * len(codes.dictionary) + codes.indices.to_numpy()
        _, last_from_behind = np.unique(pairs[::-1], return_index=True)
        if len(last_from_behind) < len(pairs):
            last = np.sort(len(pairs) - 1 - last_from_behind)
            rows, names, values = rows[last], names.take(last), values.take(last)
        return rows, as_text(names), values

    def _rows(self, positions: Positions) -> Positions:
        """The message that each of these positions lies in."""
        return np.searchsorted(self._bounds, positions, side="right") - 1

    def _words(self) -> NDArray[np.uint64]:
        """The 8 bytes from each position on, as a little-endian number."""
        count = len(self._data) - _WORD_BYTES + 1
        return np.ndarray((count,), np.dtype("<u8"), self._data, strides=(1,))


def as_text(values: pa.BinaryArray) -> pa.StringArray:
    """The values as text; bytes that are not UTF-8 become U+FFFD, as Java decodes them."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        plain = values.to_pylist()
        return pa.array(
            [None if value is None else value.decode("utf-8", "replace") for value in plain],
            pa.string(),
        )


def _ended(texts: pa.BinaryArray) -> pa.BinaryArray:
    """The strings, each but the empty ones with a separator at its end; readers accept both."""
    ended = pc.or_(pc.ends_with(texts, bytes((ENTRY_END,))), pc.equal(pc.binary_length(texts), 0))
    if pc.all(ended, min_count=0).as_py():
        return texts
    more = pc.binary_join_element_wise(texts, bytes((ENTRY_END,)), b"")
    return pc.if_else(ended, texts, more)


def _row_bounds(rows: Positions, row_count: int) -> NDArray[np.int32]:
    """Where each row's entries begin, given the row of each entry; one more for the end."""
    return np.searchsorted(rows, np.arange(row_count + 1)).astype(np.int32)
