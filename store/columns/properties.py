"""The properties of many messages at once, as Arrow columns."""

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...protocol.message.properties import RESERVED
from ..log.property_table import ENTRY_END, PropertyTable
from ..log.records import Positions
from .arrays import codes, numbers, slices

NAMES_FEW = 32  # different ones, among which it is cheap to look for a name that is there twice


class Properties:
    """The property texts of a batch of messages; element i of a column belongs to message i."""

    def __init__(self, texts: pa.BinaryArray) -> None:
        ended = _ended(texts)
        self._table = PropertyTable(*_parts(ended))

    def __len__(self) -> int:
        return len(self._table)

    def column(self, name: str) -> pa.StringArray:
        """Each message's value of this property, null where it has none."""
        found = self._entries
        names = found.names.dictionary.to_pylist()
        wanted = name.encode()
        at = np.flatnonzero(found.codes == names.index(wanted) if wanted in names else [])
        places = np.zeros(len(self), np.int64)
        absent = np.ones(len(self), bool)
        rows = found.rows[at]
        places[rows] = at
        absent[rows] = False
        return found.values.take(numbers(places, absent=absent))

    def headers(self, kind: pa.ListType) -> pa.ListArray:
        """The properties that the application set, in the form of Kafka's headers; null if none."""
        found = self._entries
        names, values = found.texts(), found.raw
        own = pc.invert(pc.is_in(names, value_set=pa.array(sorted(RESERVED), pa.string())))
        kept = own.to_numpy(zero_copy_only=False)
        bounds = _row_bounds(found.rows[kept], len(self))
        entries = pa.StructArray.from_arrays(
            [names.filter(own), values.filter(own)], fields=list(kind.value_type)
        )
        none = pa.array(bounds[1:] == bounds[:-1])
        return pa.ListArray.from_arrays(numbers(bounds), entries, type=kind, mask=none)

    def maps(self, kind: pa.MapType) -> pa.MapArray:
        """All properties of each message."""
        found = self._entries
        bounds = numbers(_row_bounds(found.rows, len(self)))
        return pa.MapArray.from_arrays(bounds, found.texts(), found.values, type=kind)

    @cached_property
    def _entries(self) -> "_Entries":
        """The valid entries, in order; of equal names in a message only the last."""
        table = self._table
        starts, split, ends = table.starts, table.splits, table.ends
        rows = table.entry_rows()
        whole = (split > starts) & (split + 1 < ends)
        if not whole.all():
            starts, split, ends, rows = starts[whole], split[whole], ends[whole], rows[whole]
        names = slices(table.data, starts, split).dictionary_encode()
        values = slices(table.data, split + 1, ends)
        count = len(names.dictionary)
        pairs = rows * count + codes(names)
        if count > NAMES_FEW or np.bincount(pairs).max(initial=0) > 1:
            _, last_from_behind = np.unique(pairs[::-1], return_index=True)
            last = np.sort(len(pairs) - 1 - last_from_behind)
            rows, names, values = rows[last], names.take(last), values.take(last)
        return _Entries(rows, names, values)


class _Entries:
    """The row, name and value of each entry."""

    def __init__(self, rows: Positions, names: pa.DictionaryArray, raw: pa.BinaryArray) -> None:
        self.rows = rows
        self.names = names
        self.raw = raw
        self.codes = codes(names)

    @cached_property
    def values(self) -> pa.StringArray:
        """The values as text."""
        return as_text(self.raw)

    def texts(self) -> pa.StringArray:
        """The names as text."""
        return as_text(self.names.dictionary).take(self.names.indices)


def as_text(values: pa.BinaryArray) -> pa.StringArray:
    """The values as text; bytes that are not UTF-8 become U+FFFD, as Java decodes them."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = values.to_pylist()
        return pa.array(
            [None if value is None else value.decode("utf-8", "replace") for value in texts],
            pa.string(),
        )


def _ended(texts: pa.BinaryArray) -> pa.BinaryArray:
    """The texts, each with a separator at its end, except empty ones."""
    data, bounds = _parts(texts)
    ends = bounds[1:][bounds[1:] > bounds[:-1]]
    if (data[ends - 1] == ENTRY_END).all():
        return texts
    ended = pc.or_(pc.ends_with(texts, bytes((ENTRY_END,))), pc.equal(pc.binary_length(texts), 0))
    more = pc.binary_join_element_wise(texts, bytes((ENTRY_END,)), b"")
    return pc.if_else(ended, texts, more)


def _parts(texts: pa.BinaryArray) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """The bytes of all strings, and the bounds: where each begins, and the end of the last."""
    _, bounds, held = texts.buffers()
    data = np.zeros(0, np.uint8) if held is None else np.frombuffer(held, np.uint8)
    return data, np.frombuffer(bounds, np.int32)[: len(texts) + 1]


def _row_bounds(rows: Positions, row_count: int) -> NDArray[np.int32]:
    """The bounds of each row's entries, given the row of each entry: starts, and the last end."""
    return np.searchsorted(rows, np.arange(row_count + 1)).astype(np.int32)
