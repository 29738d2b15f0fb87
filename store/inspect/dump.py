"""`dump`: the contents of the files of a store, item by item, as JSON values. It only reads.

Each function yields dictionaries that JSON can represent. Damaged items are yielded, too, with the
reason in `damage`, so a dump of a damaged store shows where the damage is.
"""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...protocol.errors import Malformed
from ...protocol.message import properties as props
from ...protocol.message.compression import CompressionMissing, decompress
from ...protocol.message.message_id import host_text
from ...protocol.message.record import COMPRESSED, MAGIC_BLANK, Record, decode_record
from ..base.errors import StoreError
from ..columns.view import StoreView
from ..files import checkpoint as checkpoints
from ..files.listing import Row, entries_of
from ..files.segment import Segment
from ..index.index_file import ENTRY, ENTRY_BYTES, HEADER, HEADER_BYTES, SLOT_BYTES
from ..log.commit_log import BLANK
from ..log.walk import MAGICS
from .check_index import layout_of

Line = dict[str, Any]
BODY_BYTES_MAX = 64 << 20  # of an unpacked body
PIECE_ENTRIES = 10_000


def log_lines(root: Path, place: int = 0, log_folder: Path | None = None) -> Iterator[Line]:
    """The records of the log from the first one at or behind the log offset `place`."""
    row = Row(log_folder or root / "commitlog")
    for segment in row.items:
        at = max(0, place - segment.base)
        if at >= segment.size:
            continue
        if at:
            at = _next_record(segment, at)
        yield from _segment_lines(segment, at)


def queue_lines(
    root: Path, topic: str, queue_id: int, start: int = 0, log_folder: Path | None = None
) -> Iterator[Line]:
    """The entries of a queue from number `start` on. StoreError when there is no such queue."""
    view = StoreView(root, log_folder)
    queue = view.queue(topic, queue_id)
    first, end = queue.count()
    for at in range(max(first, start), end, PIECE_ENTRIES):
        entries = queue.array(at, min(at + PIECE_ENTRIES, end))
        names = entries.dtype.names or ()
        for number, values in enumerate(entries.tolist(), at):
            yield {"number": number, **dict(zip(names, values, strict=True))}


def index_lines(root: Path, slots: int = 0, capacity: int = 0) -> Iterator[Line]:
    """The headers and entries of the index files."""
    for entry in entries_of(root / "index"):
        segment = Segment(root / "index" / entry.name, 0, entry.size, writable=False)
        layout = None if entry.size < HEADER_BYTES else layout_of(segment, slots, capacity)
        if layout is None:
            yield {"file": entry.name, "damage": f"{entry.size} bytes are no index file"}
            continue
        begin_ms, end_ms, begin_offset, end_offset, used, count = HEADER.unpack_from(segment.view)
        yield {
            "file": entry.name,
            "slots": layout[0],
            "capacity": layout[1],
            "begin": _moment(begin_ms),
            "end": _moment(end_ms),
            "beginOffset": begin_offset,
            "endOffset": end_offset,
            "usedSlots": used,
            "count": count,
        }
        entries_at = HEADER_BYTES + SLOT_BYTES * layout[0]
        for number in range(1, min(count, layout[1])):
            values = ENTRY.unpack_from(segment.view, entries_at + ENTRY_BYTES * number)
            names = ("hash", "logOffset", "seconds", "older")
            yield {"file": entry.name, "number": number, **dict(zip(names, values, strict=True))}


def checkpoint_lines(root: Path) -> Iterator[Line]:
    """The numbers of the checkpoint, in one line. StoreError when there is none."""
    path = root / "checkpoint"
    if not path.exists():
        raise StoreError(f"the store {root} has no checkpoint")
    found = checkpoints.load(path)
    yield {name: getattr(found, name) for name in found.__slots__}


def _segment_lines(segment: Segment, at: int) -> Iterator[Line]:
    while at < segment.size:
        size, magic = BLANK.unpack_from(segment.view, at)
        if magic == MAGIC_BLANK and size == segment.size - at:
            yield {"logOffset": segment.base + at, "size": size, "blank": True}
            return
        try:
            record = decode_record(segment.memory, at)
        except Malformed as wrong:
            following = _next_record(segment, at + 1)
            if following < segment.size or segment.view[at : at + 8].strip(b"\0"):
                yield {"logOffset": segment.base + at, "damage": str(wrong)}
            at = following
            continue
        yield _record_line(record, segment.base + at)
        at += record.size


def _record_line(record: Record, place: int) -> Line:
    pairs = record.properties
    line: Line = {
        "logOffset": place,
        "size": record.size,
        "topic": record.topic,
        "queue": record.queue_id,
        "offset": record.queue_offset,
        "stored": _moment(record.store_ms),
        "born": _moment(record.born_ms),
        "bornHost": host_text(record.born_host),
        "storeHost": host_text(record.store_host),
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "reconsumeTimes": record.reconsume_times,
        "preparedOffset": record.prepared_offset,
        "id": pairs.get(props.UNIQ_KEY) or record.offset_id,
        "tags": pairs.get(props.TAGS),
        "keys": props.keys_of(pairs),
        "properties": pairs,
    }
    if record.log_offset != place:
        line["damage"] = f"the record says that it lies at {record.log_offset}"
    elif not record.is_body_intact:
        line["damage"] = "the body has another crc"
    body = record.body
    if record.sys_flag & COMPRESSED:
        try:
            body = decompress(body, record.sys_flag, BODY_BYTES_MAX)
        except (Malformed, CompressionMissing) as wrong:
            line["packed"] = str(wrong)
    try:
        line["body"] = body.decode()
    except UnicodeDecodeError:
        line["bodyBase64"] = base64.b64encode(body).decode()
    return line


def _next_record(segment: Segment, at: int) -> int:
    """The byte at which the next whole record begins, or the size of the file."""
    while True:
        hits = [segment.view.find(magic, at + 4) for magic in MAGICS]
        places = [hit - 4 for hit in hits if hit >= 0]
        if not places:
            return segment.size
        at = min(places)
        try:
            if decode_record(segment.memory, at).log_offset == segment.base + at:
                return at
        except Malformed:
            pass
        at += 1


def _moment(moment_ms: int) -> str | None:
    """The time as ISO 8601 in UTC; None for 0 and for a number that is no time."""
    try:
        return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat() if moment_ms else None
    except (ValueError, OverflowError, OSError):
        return None
