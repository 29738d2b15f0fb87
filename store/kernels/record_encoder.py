"""Compiled encoder of the records of many eligible sends, with their entries and keys.

It does for a whole `SendTable` what `writing.put_all` does message by message.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...protocol.kernels.compiled import compiled, compiled_unchecked, int64
from ...protocol.kernels.parse_sends import GROUPS_MAX, Bytes, Numbers, Table, copied
from ...protocol.kernels.send_table import SendTable
from ...protocol.message.record import (
    BODY_CRC_AT,
    BODY_LENGTH_AT,
    BORN_HOST_AT,
    BORN_HOST_V6,
    BORN_MS_AT,
    FLAG_AT,
    HEAD_BYTES,
    HOST_BYTES_V4,
    LOG_OFFSET_AT,
    MAGIC_AT,
    PREPARED_OFFSET_AT,
    PROPERTIES_LENGTH,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECONSUME_TIMES_AT,
    SIZE_AT,
    STORE_HOST_AT,
    STORE_HOST_V6,
    STORE_MS_AT,
    SYS_FLAG_AT,
)
from ..index.index import KeyBlock
from ..queues.consume_queue import ENTRY_BYTES, OFFSET_AT, TAGS_AT, ConsumeQueue
from ..queues.consume_queue import SIZE_AT as ENTRY_SIZE_AT

CRC_STEP = 16  # bytes at a time, by as many tables
SHARED_BYTES = 256 << 10  # of texts that records of one destination have in common


def _crc_tables() -> npt.NDArray[np.uint32]:
    tables = np.zeros((CRC_STEP, 256), np.uint32)
    for at in range(256):
        value = at
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        tables[0, at] = value
    for at in range(1, CRC_STEP):
        tables[at] = tables[at - 1] >> 8 ^ tables[0, tables[at - 1] & 0xFF]
    return tables


CRC_TABLES = _crc_tables()
BLANK = 32
LENGTH_BYTES = PROPERTIES_LENGTH.size


@compiled_unchecked
def body_crc(data: Bytes, at: int, end: int) -> int:
    """The crc32 of these bytes, as zlib's."""
    if at < 0 or end > len(data):
        raise IndexError("the crc is to be of bytes outside of the array")
    crc = np.uint32(0xFFFFFFFF)
    tables = CRC_TABLES
    while end - at >= CRC_STEP:
        low = crc ^ (
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << np.uint32(8)
            | np.uint32(data[at + 2]) << np.uint32(16)
            | np.uint32(data[at + 3]) << np.uint32(24)
        )
        crc = (
            tables[15, low & np.uint32(255)]
            ^ tables[14, low >> np.uint32(8) & np.uint32(255)]
            ^ tables[13, low >> np.uint32(16) & np.uint32(255)]
            ^ tables[12, low >> np.uint32(24)]
            ^ tables[11, data[at + 4]]
            ^ tables[10, data[at + 5]]
            ^ tables[9, data[at + 6]]
            ^ tables[8, data[at + 7]]
            ^ tables[7, data[at + 8]]
            ^ tables[6, data[at + 9]]
            ^ tables[5, data[at + 10]]
            ^ tables[4, data[at + 11]]
            ^ tables[3, data[at + 12]]
            ^ tables[2, data[at + 13]]
            ^ tables[1, data[at + 14]]
            ^ tables[0, data[at + 15]]
        )
        at += CRC_STEP
    while at < end:
        crc = crc >> np.uint32(8) ^ tables[0, (crc ^ np.uint32(data[at])) & np.uint32(255)]
        at += 1
    return int64(crc ^ np.uint32(0xFFFFFFFF))


@compiled
def put32(out: Bytes, at: int, value: int) -> None:
    """Write a number of 32 bits, big-endian."""
    out[at] = value >> 24 & 255
    out[at + 1] = value >> 16 & 255
    out[at + 2] = value >> 8 & 255
    out[at + 3] = value & 255


@compiled
def put64(out: Bytes, at: int, value: int) -> None:
    """Write a number of 64 bits, big-endian."""
    put32(out, at, value >> 32)
    put32(out, at + 4, value)


@compiled
def _key_hash(before: int, texts: Bytes, at: int, end: int) -> int:
    found = before
    for place in range(at, end):
        found = (found * 31 + int64(texts[place])) & 0xFFFFFFFF
    if found >= int64(1) << 31:
        found = (int64(1) << 32) - found
        if found == int64(1) << 31:
            return int64(0)
    return found


@compiled
def _put_fields(records: Bytes, at: int, send: Any, extra: int, store_extra: int) -> None:
    """Write the fixed fields that a send has itself into the record at `at`.

    The hosts take `extra` bytes more than two of IPv4, `store_extra` of them the one of the store.
    """
    flags = send.sys_flag | (STORE_HOST_V6 if store_extra else 0)
    flags |= BORN_HOST_V6 if extra - store_extra else 0
    put32(records, at + SIZE_AT, send.size)
    put32(records, at + FLAG_AT, send.flag)
    put64(records, at + QUEUE_OFFSET_AT, send.queue_offset)
    put64(records, at + LOG_OFFSET_AT, send.log_offset)
    put32(records, at + SYS_FLAG_AT, flags)
    put64(records, at + BORN_MS_AT, send.born_ms)
    put32(records, at + RECONSUME_TIMES_AT + extra, send.times)
    put64(records, at + PREPARED_OFFSET_AT + extra, 0)
    put32(records, at + BODY_LENGTH_AT + extra, send.body_end - send.body_at)


@compiled
def _put_keys(
    texts: Bytes, send: Any, topic_hash: int, hashes: Numbers, places: Numbers, keys: int
) -> int:
    """Add the keys of a send to the `keys` that there are; returns the new number of them."""
    if send.unique_end:
        hashes[keys] = _key_hash(topic_hash, texts, send.unique_at, send.unique_end)
        places[keys] = send.log_offset
        keys += 1
    if send.keys_end:
        start = send.keys_at
        for place in range(send.keys_at, send.keys_end + 1):
            if place == send.keys_end or texts[place] == BLANK:
                if place > start:
                    hashes[keys] = _key_hash(topic_hash, texts, start, place)
                    places[keys] = send.log_offset
                    keys += 1
                start = place + 1
    return keys


class RecordDestination(NamedTuple):
    """The queue of a group of eligible sends, and the properties that are appended to their own
    (`properties_suffix`). With a delay level, entries have the delivery time in the place of the
    tags: `delay_ms` after the messages are stored; -1 without one.
    """

    queue: ConsumeQueue
    properties_suffix: bytes
    delay_ms: int = -1


@compiled
def make_records(
    data: Bytes,
    texts: Bytes,
    sends: Table,
    count: int,
    destinations: Numbers,
    queues: Numbers,
    shared: Bytes,
    hosts: Bytes,
    host_ends: Numbers,
    store_host: Bytes,
    base: int,
    store_ms: int,
    records: Bytes,
    entries: Bytes,
    hashes: Numbers,
    places: Numbers,
) -> tuple[int, int]:
    """Make the records of these sends, the first of which begins at `base` of the log.

    `hosts` has the hosts of the senders of the chunks, 8 or 20 bytes each, with ends at
    `host_ends`; `store_host` has 8 or 20 bytes, too. `destinations` has a row for each group: its
    row in `queues`, start and end in `shared` of the properties to be appended, and the delay in
    ms. `queues` has: the next queue offset, the place of its entry in `entries`, the magic of the
    records, start and end in `shared` of the topic field, the hash of the topic with a "#", and
    the queue id. Returns the bytes of the records and the number of keys.
    """
    to = keys = 0
    store_extra = len(store_host) - HOST_BYTES_V4  # bytes by which IPv6 moves what is behind
    for number in range(count):
        send = sends[number]
        destination = send.group
        queue = destinations[destination, 0]
        suffix_at, suffix_end = destinations[destination, 1], destinations[destination, 2]
        field_at, field_end = queues[queue, 3], queues[queue, 4]
        body = send.body_end - send.body_at
        text = send.text_end - send.text_at + suffix_end - suffix_at
        host_end = host_ends[send.chunk]
        host_at = host_ends[send.chunk - 1] if send.chunk else int64(0)
        born_extra = host_end - host_at - HOST_BYTES_V4
        extra = born_extra + store_extra
        size = HEAD_BYTES + extra + body + field_end - field_at + LENGTH_BYTES + text
        offset = base + to
        send.size, send.log_offset, send.queue_offset = size, offset, queues[queue, 0]
        queues[queue, 0] += 1
        put32(records, to + MAGIC_AT, queues[queue, 2])
        put32(records, to + BODY_CRC_AT, body_crc(data, send.body_at, send.body_end) & 0x7FFFFFFF)
        put32(records, to + QUEUE_ID_AT, queues[queue, 6])
        put64(records, to + STORE_MS_AT + born_extra, store_ms)
        _put_fields(records, to, send, extra, store_extra)
        copied(hosts, host_at, host_end, records, to + BORN_HOST_AT)
        copied(store_host, 0, len(store_host), records, to + STORE_HOST_AT + born_extra)
        to = copied(data, send.body_at, send.body_end, records, to + HEAD_BYTES + extra)
        to = copied(shared, field_at, field_end, records, to)
        records[to] = text >> 8
        records[to + 1] = text & 255
        to = copied(texts, send.text_at, send.text_end, records, to + LENGTH_BYTES)
        to = copied(shared, suffix_at, suffix_end, records, to)

        entry = queues[queue, 1]
        queues[queue, 1] = entry + ENTRY_BYTES
        delay_ms = destinations[destination, 3]
        put64(entries, entry + OFFSET_AT, offset)
        put32(entries, entry + ENTRY_SIZE_AT, size)
        put64(entries, entry + TAGS_AT, send.tags if delay_ms < 0 else store_ms + delay_ms)

        keys = _put_keys(texts, send, queues[queue, 5], hashes, places, keys)
    return to, keys


class RecordEncoder:
    """Encodes the records of eligible sends, in arrays that are reused; caches destinations."""

    def __init__(self) -> None:
        self._records = np.empty(0, np.uint8)
        self._entries = np.empty(0, np.uint8)
        self._hashes = np.empty(0, np.int64)
        self._places = np.empty(0, np.int64)
        self._destinations = np.empty((GROUPS_MAX, 4), np.int64)
        self._queues = np.empty((GROUPS_MAX, 7), np.int64)
        self._shared = np.empty(SHARED_BYTES, np.uint8)
        self._shared_end = 0
        self._known: dict[int, RecordDestination] = {}  # by the number of a group
        self._rows: dict[ConsumeQueue, int] = {}
        self._forgot = 0
        self.extra_bytes = 0  # of the records, because of hosts that are IPv6

    def set_hosts(self, table: SendTable, hosts: Sequence[bytes], host: bytes) -> None:
        """Take over the host of each chunk's sender and our own, for `make`: 8 or 20 bytes each."""
        joined = b"".join(hosts)
        bytes_v4 = len(hosts) * HOST_BYTES_V4
        self.extra_bytes = table.count * (len(host) - HOST_BYTES_V4)
        if len(joined) == bytes_v4:
            self._host_ends = np.arange(HOST_BYTES_V4, bytes_v4 + 1, HOST_BYTES_V4)
        else:
            self._host_ends = np.fromiter(accumulate(map(len, hosts)), np.int64, len(hosts))
            extra = np.diff(self._host_ends, prepend=0) - HOST_BYTES_V4
            self.extra_bytes += int(extra[table.sends["chunk"][: table.count]].sum())
        self._hosts = np.frombuffer(joined, np.uint8)
        self._host = np.frombuffer(host, np.uint8)

    def make(
        self,
        table: SendTable,
        destinations: Sequence[RecordDestination],
        counts: Mapping[ConsumeQueue, int],
        base: int,
        size: int,
        store_ms: int,
    ) -> tuple[bytes, bytes, KeyBlock]:
        """The records, `size` bytes, the first of which begins at `base` of the log; the entries
        of all queues, one queue behind the other; and the keys.

        `destinations` has one for each of `table.group_totals`, `counts` the messages that each
        queue gets. Call `set_hosts` first.
        """
        count = table.count
        if size > len(self._records):
            self._records = np.empty(2 * size, np.uint8)
        if count > len(self._entries) // ENTRY_BYTES:
            self._entries = np.empty(2 * count * ENTRY_BYTES, np.uint8)
        keys_max = count + len(table.texts) // 2
        if keys_max > len(self._hashes):
            self._hashes = np.empty(keys_max, np.int64)
            self._places = np.empty(keys_max, np.int64)
        if (
            table.forgot != self._forgot
            or len(self._rows) + len(counts) > GROUPS_MAX
            or self._shared_end > SHARED_BYTES
        ):
            self._forget()
            self._forgot = table.forgot
        known = self._known
        for (number, *_), destination in zip(table.group_totals, destinations, strict=True):
            if known.get(number) is not destination:
                self._learn(number, destination)
        entries_at = 0
        for queue, messages in counts.items():
            row = self._queues[self._rows[queue]]
            row[0], row[1] = queue.next, entries_at
            entries_at += messages * ENTRY_BYTES
        written, keys = make_records(
            table.data,
            table.texts,
            table.sends,
            count,
            self._destinations,
            self._queues,
            self._shared,
            self._hosts,
            self._host_ends,
            self._host,
            base,
            store_ms,
            self._records,
            self._entries,
            self._hashes,
            self._places,
        )
        assert written == size
        return (
            self._records[:size].tobytes(),
            self._entries[: count * ENTRY_BYTES].tobytes(),
            KeyBlock(self._hashes[:keys].copy(), self._places[:keys].copy(), base, store_ms, count),
        )

    def _learn(self, number: int, destination: RecordDestination) -> None:
        """Remember the destination of the group with this number."""
        queue, suffix, delay_ms = destination
        row = self._rows.get(queue)
        if row is None:
            row = self._rows[queue] = len(self._rows)
            places = self._share(queue.topic_field)
            self._queues[row] = (0, 0, queue.magic, *places, queue.topic_hash, queue.queue_id)
        self._destinations[number] = (row, *self._share(suffix), delay_ms)
        self._known[number] = destination

    def _share(self, text: bytes) -> tuple[int, int]:
        """Put a text where the compiled code finds it; returns its start and end there."""
        start, end = self._shared_end, self._shared_end + len(text)
        if end > len(self._shared):
            self._shared = np.concatenate((self._shared, np.empty(end, np.uint8)))
        self._shared[start:end] = np.frombuffer(text, np.uint8)
        self._shared_end = end
        return start, end

    def _forget(self) -> None:
        self._known.clear()
        self._rows.clear()
        self._shared_end = 0
