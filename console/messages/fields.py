"""What an expression of the search asks about a message: its properties and fields of its body.

`tag`, `key` (all keys, with blanks between), `id`, `topic`, `queue`, `offset`, `born`, `stored`
(ms) are the message's own; `body` is its text, and `body.order.total` or `body.items.0` a field of
a JSON or msgpack body, or of one of a type that was given. Any other name is a property.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from ...protocol.errors import Malformed
from ...protocol.filters.sql92 import Predicate, Properties
from ...protocol.message import properties as props
from ...protocol.message.compression import CompressionMissing
from ...protocol.message.record import Record
from .binary import from_msgpack, may_be_msgpack
from .shown import id_of, unpacked

BODY = "body"
PATH_MAX = 32  # dots of a name
KEY = re.compile(r"[^\s=<>'()]+")

# The value of a body, ValueError for one that can't be read.
Reads = Callable[[bytes], object]

_NONE: Any = object()
_JSON_BEGINS = (b"{", b"[", b" ", b"\n", b"\r", b"\t")


class Sought(NamedTuple):
    """What a visitor looks for: an id or a key, an expression, or nothing."""

    key: str
    expression: str


def sought_by(text: str) -> Sought:
    """A text is an id or a key without a blank or a sign of SQL92, else an expression."""
    text = text.strip()
    return Sought(text, "") if KEY.fullmatch(text) else Sought("", text)


def named(word: str) -> Predicate:
    """True for a message with this id, or with this as one of its keys."""

    def is_named(fields: Properties) -> bool:
        keys = fields.get("key")
        return fields.get("id") == word or (
            isinstance(keys, str) and word in keys.split(props.KEY_SEPARATOR)
        )

    return is_named


class Bodiless:
    """The fields of a message for a visitor that may not see bodies: they have no value."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Properties) -> None:
        self._fields = fields

    def get(self, name: str) -> object:
        """The value of a field, None when the message does not have it, or it is in the body."""
        return None if name.split(".")[0] == BODY else self._fields.get(name)


class Fields:
    """The fields of one message, worked out when they are asked for. `reads` gives the value of a
    body whose type is known."""

    __slots__ = ("_body", "_properties", "_reads", "_record", "_text")

    def __init__(self, record: Record, reads: Reads | None = None) -> None:
        self._record = record
        self._reads = reads
        self._properties: dict[str, str] | None = None
        self._text: Any = _NONE
        self._body: Any = _NONE

    def get(self, name: str) -> object:
        """The value of a field, None when the message does not have it."""
        if name == BODY:
            return self._body_text()
        if name.startswith("body."):
            return self._field(name.split(".", PATH_MAX)[1:])
        record = self._record
        match name:
            case "id":
                return id_of(record)
            case "topic":
                return record.topic
            case "queue":
                return record.queue_id
            case "offset":
                return record.queue_offset
            case "born":
                return record.born_ms
            case "stored":
                return record.store_ms
            case "retries":
                return record.reconsume_times
        if self._properties is None:
            self._properties = record.properties
        return self._properties.get({"tag": props.TAGS, "key": props.KEYS}.get(name, name))

    def _body_text(self) -> str | None:
        if self._text is _NONE:
            try:
                self._text = unpacked(self._record).decode(errors="replace")
            except (Malformed, CompressionMissing):
                self._text = None
        found: str | None = self._text
        return found

    def _read_body(self) -> object:
        """The value of a body with a type, of JSON or msgpack, None for another."""
        try:
            body = unpacked(self._record)
            if self._reads is not None:
                with suppress(ValueError):  # it may be JSON all the same
                    return self._reads(body)
            if body[:1] in _JSON_BEGINS:
                try:
                    return msgspec.json.decode(body)  # several times as fast
                except msgspec.DecodeError:  # it is stricter: NaN, bytes that are no UTF-8
                    return json.loads(body.decode(errors="replace"))
            return from_msgpack(body) if may_be_msgpack(body) else None
        except (Malformed, CompressionMissing, ValueError, RecursionError):
            return None

    def _field(self, path: list[str]) -> object:
        if self._body is _NONE:
            self._body = self._read_body()
        found = self._body
        for name in path:
            if isinstance(found, dict):
                found = found.get(name)
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                return None
        return None if isinstance(found, dict | list) else found
