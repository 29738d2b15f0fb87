"""A body as text: JSON, plain text or hexadecimal, within limits that are said."""

import codecs
import json
from dataclasses import dataclass

from ...protocol.errors import Malformed
from ...protocol.message import properties as props
from ...protocol.message.compression import CompressionMissing, decompress
from ...protocol.message.record import Record

BODY_BYTES_MAX = 4 << 20  # of an unpacked body
SHOWN_CHARS_MAX = 64 << 10
HEX_BYTES_MAX = 4 << 10
BRIEF_CHARS_MAX = 160


@dataclass(frozen=True, slots=True)
class Shown:
    """A body for people. `kind` is JSON, text, hex or none; `bytes` is its whole length, None when
    it can't be unpacked; `note` says what is not shown, and why."""

    kind: str
    text: str
    bytes: int | None
    note: str | None = None


def unpacked(record: Record) -> bytes:
    """The body as it was sent; Malformed or CompressionMissing when it can't be unpacked."""
    return decompress(record.body, record.sys_flag, BODY_BYTES_MAX)


def shown(record: Record) -> Shown:
    """The body as JSON with indents, as text, or in hexadecimal."""
    try:
        body = unpacked(record)
    except (Malformed, CompressionMissing) as wrong:
        return Shown("none", "", None, str(wrong))
    try:
        text = body.decode()
    except UnicodeDecodeError:
        note = _cut(len(body), HEX_BYTES_MAX, "bytes")
        return Shown("hex", _hex(body[:HEX_BYTES_MAX]), len(body), note)
    kind = "text"
    if text[:1] in ("{", "[") and len(text) <= SHOWN_CHARS_MAX:
        try:
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
            kind = "JSON"
        except (ValueError, RecursionError):
            pass  # shown as the text that it is
    return Shown(
        kind, text[:SHOWN_CHARS_MAX], len(body), _cut(len(text), SHOWN_CHARS_MAX, "characters")
    )


def brief(record: Record) -> str:
    """The beginning of a body on one line."""
    try:
        body = unpacked(record)
    except (Malformed, CompressionMissing) as wrong:
        return f"[{wrong}]"
    try:
        # A letter that the cut divides is no fault of the body.
        text = codecs.getincrementaldecoder("utf-8")().decode(body[: 4 * BRIEF_CHARS_MAX + 4])
    except UnicodeDecodeError:
        text = body[: BRIEF_CHARS_MAX // 3].hex(" ")
    return text[:BRIEF_CHARS_MAX] + ("…" if len(text) > BRIEF_CHARS_MAX else "")


def id_of(record: Record) -> str:
    """The id that the sender gave it, or its offset id."""
    return record.properties.get(props.UNIQ_KEY) or record.offset_id


def _cut(size: int, limit: int, unit: str) -> str | None:
    return f"the first {limit:,} of {size:,} {unit} are shown" if size > limit else None


def _hex(body: bytes) -> str:
    lines = []
    for start in range(0, len(body), 16):
        part = body[start : start + 16]
        letters = "".join(chr(one) if 32 <= one < 127 else "." for one in part)
        lines.append(f"{start:06x}  {part.hex(' '):<47}  {letters}")
    return "\n".join(lines)
