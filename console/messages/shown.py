"""A body as text: JSON, plain text or hexadecimal, within limits that are said."""

import codecs
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...protocol.errors import Malformed
from ...protocol.message import properties as props
from ...protocol.message.compression import CompressionMissing, decompress
from ...protocol.message.record import Record
from ..access.rights import Bodies
from ..texts import Text, joined, text_of
from .binary import from_msgpack, may_be_msgpack, written
from .json_text import indented, parsed

BODY_BYTES_MAX = 4 << 20  # of an unpacked body
SHOWN_CHARS_MAX = 64 << 10
HEX_BYTES_MAX = 4 << 10
BRIEF_CHARS_MAX = 160


class Types(Protocol):
    """The types of bodies that an operator has given: their file, their names, and those of
    topics."""

    path: Path
    names: list[str]
    by_topic: dict[str, str]

    def text(self, name: str, body: bytes) -> str:
        """A body as JSON; ValueError, which says why, when it is none of this type."""

    def value(self, name: str, body: bytes) -> Any:
        """The same as values of JSON."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A body for people. `kind` is JSON, text, msgpack, a type's name, hex, masked, hidden or none;
    `bytes` is its whole length, None when it can't be unpacked; `note` says what is not shown, and
    why."""

    kind: str
    text: str
    bytes: int | None
    note: str | None = None


def unpacked(record: Record) -> bytes:
    """The body as it was sent; Malformed or CompressionMissing when it can't be unpacked."""
    return decompress(record.body, record.sys_flag, BODY_BYTES_MAX)


def shown(
    record: Record,
    bodies: Bodies = Bodies.SHOWN,
    types: Types | None = None,
    wanted: str = "",
) -> Shown:
    """The body as a type's JSON where one is wanted, as JSON with indents, as text, as msgpack, or
    in hexadecimal, as far as a visitor may see it."""
    try:
        body = unpacked(record)
    except (Malformed, CompressionMissing) as wrong:
        return Shown("none", "", None, text_of(wrong))
    if bodies != Bodies.SHOWN:
        return _less(body, bodies)
    if not wanted:
        return _read(body)
    try:
        if types is None:
            raise ValueError(Text("no file of descriptors was given (--descriptors)"))
        text = types.text(wanted, body)
    except ValueError as wrong:
        untyped = _read(body)
        return Shown(
            untyped.kind, untyped.text, untyped.bytes, _joined(text_of(wrong), untyped.note)
        )
    cut = _cut(len(text), SHOWN_CHARS_MAX, Text("characters"))
    return Shown(wanted, text[:SHOWN_CHARS_MAX], len(body), cut)


def _read(body: bytes) -> Shown:
    kind, why = "text", None
    try:
        text = body.decode()
    except UnicodeDecodeError:
        try:
            kind, text = "msgpack", written(from_msgpack(body))
        except ValueError as wrong:
            why = text_of(wrong) if may_be_msgpack(body) else None
            note = _joined(_cut(len(body), HEX_BYTES_MAX, Text("bytes")), why)
            return Shown("hex", _hex(body[:HEX_BYTES_MAX]), len(body), note)
    if kind == "text" and text[:1] in ("{", "["):
        if len(text) > SHOWN_CHARS_MAX:
            why = Text(
                "a text of %(size)s characters is not read as JSON, the limit is %(limit)s",
                size=f"{len(text):,}",
                limit=f"{SHOWN_CHARS_MAX:,}",
            )
        else:
            try:
                text = indented(parsed(text))
                kind = "JSON"
            except RecursionError:
                why = Text("it is nested too deep to be read as JSON")
            except ValueError:
                pass  # shown as the text that it is
    note = _joined(_cut(len(text), SHOWN_CHARS_MAX, Text("characters")), why)
    return Shown(kind, text[:SHOWN_CHARS_MAX], len(body), note)


def brief(record: Record, bodies: Bodies = Bodies.SHOWN) -> str:
    """The beginning of a body on one line."""
    if bodies != Bodies.SHOWN:
        return f"[{bodies}]"
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


def _less(body: bytes, bodies: Bodies) -> Shown:
    """A body that a visitor may not see, masked where it is JSON."""
    note = Text(
        "bodies are %(bodies)s for you; an administrator of this console can change that",
        bodies=Text(bodies),
    )
    if bodies == Bodies.MASKED and len(body) <= SHOWN_CHARS_MAX:
        try:
            text = json.dumps(_masked(json.loads(body)), indent=2, ensure_ascii=False)
            return Shown("masked", text, len(body), note)
        except (ValueError, RecursionError):
            pass  # it has no names to show
    return Shown("hidden", "", len(body), note)


def _masked(value: object) -> object:
    """The names and the kinds of values."""
    if isinstance(value, dict):
        return {key: _masked(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_masked(one) for one in value]
    kinds = {str: "text", bool: "true or false", int: "number", float: "number"}
    return f"({kinds.get(type(value), 'null')})"


def _cut(size: int, limit: int, unit: str) -> str | None:
    return (
        Text(
            "the first %(limit)s of %(size)s %(unit)s are shown",
            limit=f"{limit:,}",
            size=f"{size:,}",
            unit=unit,
        )
        if size > limit
        else None
    )


def _joined(*notes: str | None) -> str | None:
    return joined("; ", [one for one in notes if one]) or None


def _hex(body: bytes) -> str:
    lines = []
    for start in range(0, len(body), 16):
        part = body[start : start + 16]
        letters = "".join(chr(one) if 32 <= one < 127 else "." for one in part)
        lines.append(f"{start:06x}  {part.hex(' '):<47}  {letters}")
    return "\n".join(lines)
