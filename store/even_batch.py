"""The records of a batch whose messages all have one size: made for all of them at once.

They differ from message to message in few places, so they are rows of one table: a template in each
of them, and then a column of bodies, one of properties, and the numbers. What is not even, or
unusual in another way, is left to `Writing`, which takes message by message and comes to the same.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import repeat
from struct import Struct

import numpy as np
import numpy.typing as npt

from ..protocol.batch import ENTRY, ENTRY_BYTES_MIN, FLAG_AND_LENGTH
from ..protocol.properties import PROPERTIES_BYTES_MAX
from ..protocol.record import CRC_MASK, HEAD, HEAD_BYTES, PROPERTIES_LENGTH, crc32
from ..protocol.tags import TAG_HASHES
from .consume_queue import ConsumeQueue
from .index import Pending

MESSAGES_MIN = 8  # in fewer the table costs more than it saves
LAYOUTS_KEPT = 1_024
FLAG_AT = 12  # in an entry of a batch
LENGTH_AT = 16  # of its body
TAGS = b"TAGS\x01"
UNIQUE = b"UNIQ_KEY\x01"
# Records in pieces, flat queue entries, keys, the end of the log.
Made = tuple[list[bytes], list[int], list[Pending], int]
_length = Struct(">H").unpack_from


def even_records(
    queue: ConsumeQueue,
    batch: bytes,
    base: int,
    sys_flag: int,
    born_ms: int,
    born_host: bytes,
    shared: bytes,
    reconsume_times: int,
    store_ms: int,
    host: bytes,
    body_bytes_max: int,
) -> Made | None:
    """The records, which begin at `base`, in pieces; flat entries; keys; the end. Hosts are IPv4.

    None where the batch is not even, or has something else that is to be looked at more closely.
    """
    if len(batch) < MESSAGES_MIN * ENTRY_BYTES_MIN:
        return None
    _, body_bytes = FLAG_AND_LENGTH.unpack_from(batch, 0)
    length_at = ENTRY.size + body_bytes
    if not 0 < body_bytes <= body_bytes_max or length_at + 2 > len(batch):
        return None
    (own,) = _length(batch, length_at)
    entry_bytes = length_at + 2 + own
    count, rest = divmod(len(batch), entry_bytes)
    if rest or count < MESSAGES_MIN or own == 0:
        return None
    # The lengths of all, byte for byte; and each ends its properties as the first does.
    lengths = (*range(LENGTH_AT, LENGTH_AT + 4), length_at, length_at + 1)
    if not _is_even(batch, lengths, entry_bytes, count):
        return None
    ends = batch[entry_bytes - 1 :: entry_bytes].count(2)
    if ends not in (0, count):
        return None
    properties_bytes = own + (ends == 0) + len(shared)
    code = _tags_code(batch, length_at + 2, entry_bytes, count)
    if code is None or properties_bytes > PROPERTIES_BYTES_MAX:
        return None
    size = queue.fixed_bytes + body_bytes + properties_bytes
    properties_at = size - properties_bytes
    head = HEAD.pack(
        size, queue.magic, 0, queue.queue_id, 0, 0, 0, sys_flag, born_ms, born_host, store_ms,
        host, reconsume_times, 0, body_bytes,
    )  # fmt: skip
    template = b"".join(
        (
            head, bytes(body_bytes), queue.topic_field, PROPERTIES_LENGTH.pack(properties_bytes),
            bytes(own), b"" if ends else b"\x02", shared,
        )
    )  # fmt: skip
    source = np.frombuffer(batch, np.uint8).reshape(count, entry_bytes)
    rows = np.empty((count, size), np.uint8)
    rows[:] = np.frombuffer(template, np.uint8)
    rows[:, HEAD_BYTES : HEAD_BYTES + body_bytes] = source[:, ENTRY.size : length_at]
    rows[:, properties_at : properties_at + own] = source[:, length_at + 2 :]
    numbers = np.ndarray(count, _layout(size), rows)
    bodies = range(ENTRY.size, len(batch), entry_bytes)
    numbers["crc"] = [crc32(batch[at : at + body_bytes]) & CRC_MASK for at in bodies]
    flags = b"".join([batch[at::entry_bytes] for at in range(FLAG_AT, FLAG_AT + 4)])
    if flags.strip(b"\0"):
        numbers["flag"] = source[:, FLAG_AT : FLAG_AT + 4].copy().view(">i4")[:, 0]
    first = queue.next
    numbers["queue_offset"] = np.arange(first, first + count)
    end = base + count * size
    numbers["log_offset"] = np.arange(base, end, size)
    data = rows.tobytes()
    entries = [size] * (3 * count)
    entries[0::3] = range(base, end, size)
    entries[2::3] = [code] * count
    pending: list[Pending] = []
    if b"KEY" in batch or b"KEY" in shared:
        topic = queue.topic
        places = range(0, count * size, size)
        only = _unique_keys(batch, source, length_at + 2) if b"KEY" not in shared else None
        pending = [
            (topic, data[at + properties_at : at + size], base + at, store_ms, key)
            for at, key in zip(places, only or repeat(None), strict=False)
        ]
    return [data], entries, pending, end


def _tags_code(batch: bytes, start: int, entry_bytes: int, count: int) -> int | None:
    """The tags code that all messages have; None when they differ, or it takes a closer look.

    `start` is where the properties of the first begin.
    """
    number = batch.count(TAGS)
    if number == 0:
        return 0
    pair = _pair(batch, TAGS, start, entry_bytes)
    if number != count or pair is None:
        return None
    first, value, end = pair
    if not _is_even(batch, range(first, end + 1), entry_bytes, count):
        return None
    return TAG_HASHES[batch[value:end]]


def _unique_keys(batch: bytes, source: npt.NDArray[np.uint8], start: int) -> list[bytes] | None:
    """The unique key of each message where it is its only one and stands at the same place in all;
    None where it takes a closer look. The properties begin at `start` of each row of `source`."""
    count, entry_bytes = source.shape
    pair = _pair(batch, UNIQUE, start, entry_bytes)
    if pair is None or batch.count(b"KEY") != count:
        return None
    first, value, end = pair
    if not _is_even(batch, (*range(first, value), end), entry_bytes, count):
        return None
    if (source[:, value:end] == 2).any():
        return None
    return [batch[row + value : row + end] for row in range(0, len(batch), entry_bytes)]


def _pair(batch: bytes, name: bytes, start: int, entry_bytes: int) -> tuple[int, int, int] | None:
    """Where in the first message this property begins, its value, and the separator behind it; None
    when it isn't there as a pair of its own with a value. The separator before it counts as its."""
    at = batch.find(name, start, entry_bytes)
    value = at + len(name)
    end = batch.find(b"\x02", value, entry_bytes)
    if at < 0 or end <= value:
        return None
    if at > start:  # it begins a pair
        at -= 1
        if batch[at] != 2:
            return None
    return at, value, end


def _is_even(batch: bytes, columns: Iterable[int], entry_bytes: int, count: int) -> bool:
    """Whether all messages have the same bytes in these columns."""
    for at in columns:  # noqa: SIM110 - a generator costs as much as the comparing
        if batch[at::entry_bytes] != batch[at : at + 1] * count:
            return False
    return True


@lru_cache(maxsize=LAYOUTS_KEPT)
def _layout(size: int) -> npt.DTypeLike:
    """The numbers that differ between records of this size."""
    return np.dtype(
        {
            "names": ["crc", "flag", "queue_offset", "log_offset"],
            "formats": [">i4", ">i4", ">i8", ">i8"],
            "offsets": [8, 16, 20, 28],
            "itemsize": size,
        }
    )
