"""Encodes uniform batches: their messages all have one layout, so all records are made at once.

The messages have bodies of one size, and properties with the same names at the same places. Their
records differ in few places, so they are the rows of one table: a template in each row, then a
column of bodies, one of properties, and the numbers. Several batches of a loop iteration share a
table, since the number of steps costs time, not the number of rows. Other batches are left to
`Batches`, which encodes message by message and gives the same bytes.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...protocol.message.batch import (
    BODY_LENGTH_AT,
    ENTRY,
    ENTRY_BYTES_MIN,
    FLAG_AND_LENGTH,
    FLAG_AT,
)
from ...protocol.message.properties import PROPERTIES_BYTES_MAX, scan
from ...protocol.message.record import CRC_MASK, HEAD, HEAD_BYTES, LAYOUT, PROPERTIES_LENGTH, crc32
from ...protocol.message.tags import TAG_HASHES
from ..index.index import Pending
from ..queues.consume_queue import ENTRY_TYPE, ConsumeQueue
from .messages import Batch

MESSAGES_MIN = 8  # for fewer the table costs more than it saves
LAYOUTS_KEPT = 1_024
UNIQUE_KEY, KEYS, TAGS = b"UNIQ_KEY", b"KEYS", b"TAGS"
_length = Struct(">H").unpack_from


class Shape(NamedTuple):
    """The layout that batches in one table have in common, besides their topic; sizes in bytes."""

    batch: int
    entry: int
    body: int
    properties: int


class BatchRun(NamedTuple):
    """The records of uniform batches, one after the other."""

    data: bytes
    size: int  # of each record, in bytes
    entries: npt.NDArray[np.void]  # `ENTRY_TYPE`, one a record
    pending: list[Pending]


def shape_of(batch: bytes) -> Shape | None:
    """The shape that a batch has if it is uniform, by its first message; None if it can't be."""
    if len(batch) < ENTRY_BYTES_MIN:
        return None
    _, body = FLAG_AND_LENGTH.unpack_from(batch, 0)
    length_at = ENTRY.size + body
    if body <= 0 or length_at + 2 > len(batch):
        return None
    (own,) = _length(batch, length_at)
    entry = length_at + 2 + own
    return None if len(batch) % entry else Shape(len(batch), entry, body, own)


def uniform_records(
    queues: Sequence[ConsumeQueue],
    batches: Sequence[Batch],
    shape: Shape,
    base: int,
    shared: bytes,
    store_ms: int,
    host: bytes,
) -> BatchRun | None:
    """The records of batches of this shape; the first one begins at log offset `base`.

    `queues` has the queue of each batch; all are of one topic. `shared` properties are appended to
    each message's own. Hosts are IPv4. None where the messages are not uniform.
    """
    data = b"".join([batch[4] for batch in batches])
    entry_bytes, body_bytes, own = shape.entry, shape.body, shape.properties
    rows = len(data) // entry_bytes
    length_at = ENTRY.size + body_bytes
    text_at = length_at + 2
    if rows < MESSAGES_MIN or not (
        (_column(data, ">i4", BODY_LENGTH_AT, entry_bytes) == body_bytes).all()
        and (_column(data, ">u2", length_at, entry_bytes) == own).all()
    ):
        return None
    pairs = scan(data[text_at:entry_bytes])
    source = np.frombuffer(data, np.uint8).reshape(rows, entry_bytes)
    texts = source[:, text_at:]
    differs = (texts != texts[0]).any(axis=0) if own else np.zeros(0, np.bool_)
    if pairs is None or not _are_alike(pairs, texts, differs):
        return None
    if own and data[entry_bytes - 1] != 2:
        shared = b"\x02" + shared
    properties_bytes = own + len(shared)
    if properties_bytes > PROPERTIES_BYTES_MAX:
        return None

    size = queues[0].fixed_bytes + body_bytes + properties_bytes
    properties_at = size - properties_bytes
    count = rows // len(batches)
    tail = b"".join(
        (
            bytes(body_bytes), queues[0].topic_field, PROPERTIES_LENGTH.pack(properties_bytes),
            bytes(own), shared,
        )
    )  # fmt: skip
    heads, firsts = _heads(queues, batches, size, count, body_bytes, store_ms, host)
    records = np.frombuffer(tail.join([*heads, b""]), np.uint8).reshape(-1, size).repeat(count, 0)
    records[:, HEAD_BYTES : HEAD_BYTES + body_bytes] = source[:, ENTRY.size : length_at]
    records[:, properties_at : properties_at + own] = texts
    places = np.arange(base, base + rows * size, size)
    numbers = np.ndarray(rows, _numbers(size), records)
    bodies = range(ENTRY.size, len(data), entry_bytes)
    numbers["body_crc"] = [crc32(data[at : at + body_bytes]) & CRC_MASK for at in bodies]
    numbers["flag"] = _column(data, ">i4", FLAG_AT, entry_bytes)
    numbers["queue_offset"] = (np.array(firsts)[:, None] + np.arange(count)).ravel()
    numbers["log_offset"] = places
    encoded = records.tobytes()

    tags, _ = _values(data, pairs.get(TAGS), text_at, entry_bytes, differs)
    entries = _entries(places, size, tags)
    pending: list[Pending] = []
    is_keyed = KEYS in pairs or b"KEY" in shared
    if is_keyed or UNIQUE_KEY in pairs:
        keys: Iterable[bytes | None] = repeat(None)
        if not is_keyed:
            unique, is_one = _values(data, pairs.get(UNIQUE_KEY), text_at, entry_bytes, differs)
            keys = repeat(unique[0]) if is_one else unique
        pending = _pending(queues[0].topic, encoded, size, properties_at, base, store_ms, keys)
    return BatchRun(encoded, size, entries, pending)


def _heads(
    queues: Sequence[ConsumeQueue],
    batches: Sequence[Batch],
    size: int,
    count: int,
    body_bytes: int,
    store_ms: int,
    host: bytes,
) -> tuple[list[bytes], list[int]]:
    """The head that the records of each batch have in common, and its first queue offset.

    `size` is that of a record in bytes, `count` the messages of a batch.
    """
    heads: list[bytes] = []
    firsts: list[int] = []
    following: dict[int, int] = {}
    for queue, (_, sys_flag, born_ms, born_host, _, times) in zip(queues, batches, strict=True):
        first = following.get(queue.queue_id, queue.next)
        following[queue.queue_id] = first + count
        firsts.append(first)
        heads.append(
            HEAD.pack(
                size, queue.magic, 0, queue.queue_id, 0, 0, 0, sys_flag, born_ms, born_host,
                store_ms, host, times, 0, body_bytes,
            )
        )  # fmt: skip
    return heads, firsts


def _entries(
    offsets: npt.NDArray[np.int64], size: int, tags: Sequence[bytes]
) -> npt.NDArray[np.void]:
    """The queue entries of records of this size in bytes; `tags` has one for each, or for all."""
    entries = np.empty(len(offsets), ENTRY_TYPE)
    entries["offset"] = offsets
    entries["size"] = size
    entries["tags"] = [TAG_HASHES[each] for each in tags] if len(tags) > 1 else TAG_HASHES[tags[0]]
    return entries


def _pending(
    topic: str,
    records: bytes,
    size: int,
    properties_at: int,
    base: int,
    store_ms: int,
    keys: Iterable[bytes | None],
) -> list[Pending]:
    """What the index needs of records of this size; `keys` has the only key of each, or None."""
    return [
        (topic, records[start + properties_at : start + size], base + start, store_ms, key)
        for start, key in zip(range(0, len(records), size), keys, strict=False)
    ]


def _are_alike(
    pairs: dict[bytes, tuple[int, int]],
    texts: npt.NDArray[np.uint8],
    differs: npt.NDArray[np.bool_],
) -> bool:
    """Whether all messages have their properties at these places: only values differ, and no byte
    that differs is a separator."""
    if not differs.any():
        return True
    fixed = np.ones(len(differs), np.bool_)
    for start, end in pairs.values():
        fixed[start:end] = False
    return not (differs & fixed).any() and not (texts[:, differs] == 2).any()


def _values(
    data: bytes,
    pair: tuple[int, int] | None,
    text_at: int,
    entry_bytes: int,
    differs: npt.NDArray[np.bool_],
) -> tuple[list[bytes], bool]:
    """The values of a property, one per message, and False; or only one value, which all messages
    have, and True.

    An absent property counts as one empty value.
    """
    if pair is None:
        return [b""], True
    start, end = pair
    first = text_at + start
    if not differs[start:end].any():
        return [data[first : text_at + end]], True
    length = end - start
    return [data[at : at + length] for at in range(first, len(data), entry_bytes)], False


def _column(data: bytes, kind: str, at: int, entry_bytes: int) -> npt.NDArray[np.integer]:
    """The number at this place of each entry."""
    return np.ndarray(len(data) // entry_bytes, kind, data, at, entry_bytes)


@lru_cache(maxsize=LAYOUTS_KEPT)
def _numbers(size: int) -> "np.dtype[np.void]":
    """The numbers that differ between records of this size."""
    columns = LAYOUT.dtype("body_crc", "flag", "queue_offset", "log_offset", size=size)
    found: np.dtype[np.void] = np.dtype(columns)
    return found
