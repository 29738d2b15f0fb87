"""Found messages as lines of a file: JSON objects, or CSV whose cells no spreadsheet runs."""

import base64
import csv
import io
import json
from typing import Any

from ...protocol.errors import Malformed
from ...protocol.message import properties as props
from ...protocol.message.compression import CompressionMissing
from ...protocol.message.record import Record
from ..access.rights import Bodies
from .search import Progress
from .shown import id_of, shown, unpacked

MESSAGES_MAX = 100_000  # of one export
BYTES_MAX = 256 << 20
COLUMNS = (
    "topic",
    "broker",
    "queue",
    "offset",
    "id",
    "tag",
    "keys",
    "stored_ms",
    "born_ms",
    "retries",
    "properties",
    "encoding",
    "body",
)
FORMATS = {"jsonl": "application/x-ndjson", "csv": "text/csv"}
# What a spreadsheet takes for the beginning of a formula, also behind blanks.
FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")


def exported(record: Record, broker: str, bodies: Bodies) -> dict[str, Any]:
    """A message with its whole body, as far as the visitor may see it.

    `encoding` is text, base64, masked, hidden, or none for a body that can't be unpacked.
    """
    pairs = record.properties
    encoding, body = _body(record, bodies)
    values = (
        record.topic,
        broker,
        record.queue_id,
        record.queue_offset,
        id_of(record),
        pairs.get(props.TAGS, ""),
        pairs.get(props.KEYS, ""),
        record.store_ms,
        record.born_ms,
        record.reconsume_times,
        props.own(pairs),
        encoding,
        body,
    )
    return dict(zip(COLUMNS, values, strict=True))


class Lines:
    """The lines of one file of a format of FORMATS."""

    def __init__(self, kind: str) -> None:
        self._is_csv = kind == "csv"

    def head(self) -> bytes:
        """The bytes before the first message."""
        return _csv(COLUMNS) if self._is_csv else b""

    def line(self, row: dict[str, Any]) -> bytes:
        """The line of one message."""
        if not self._is_csv:
            return json.dumps(row).encode() + b"\n"
        return _csv([row[name] for name in COLUMNS])

    def end(self, progress: Progress, why: str | None) -> bytes:
        """The line about the end of the export; in CSV only if the export is not whole."""
        told = {
            "scanned": progress.scanned,
            "found": progress.found,
            "left": progress.left,
            "why": why,
            "cursor": progress.cursor,
            "faults": progress.faults,
        }
        if not self._is_csv:
            return json.dumps({"end": told}).encode() + b"\n"
        wrong = [*([why] if why else []), *progress.faults]
        return _csv([f"not whole: {'; '.join(wrong)}"]) if wrong else b""


def _body(record: Record, bodies: Bodies) -> tuple[str, str]:
    if bodies != Bodies.SHOWN:
        less = shown(record, bodies)
        return less.kind, less.text
    try:
        body = unpacked(record)
    except (Malformed, CompressionMissing) as wrong:
        return "none", str(wrong)
    try:
        return "text", body.decode()
    except UnicodeDecodeError:
        return "base64", base64.b64encode(body).decode()


def _csv(cells: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerow([_cell(one) for one in cells])
    return text.getvalue().encode(errors="replace")


def _cell(value: Any) -> Any:
    if isinstance(value, int):
        return value
    text = json.dumps(value) if isinstance(value, dict) else str(value)
    is_formula = text[:1] in ("\t", "\r", "\n") or text.lstrip().startswith(FORMULA)
    return f"'{text}" if is_formula else text
