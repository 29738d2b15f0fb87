"""What an expression of the search asks about a message: its properties and fields of its body.

`tag`, `key` (all keys, with blanks between), `id`, `topic`, `queue`, `offset`, `born`, `stored`
(ms) are the message's own; `body` is its text, and `body.order.total` or `body.items.0` a field of
a JSON body. Any other name is a property.
"""

import json
from typing import Any

from ...protocol.errors import Malformed
from ...protocol.message import properties as props
from ...protocol.message.compression import CompressionMissing
from ...protocol.message.record import Record
from .shown import id_of, unpacked

BODY = "body"
PATH_MAX = 32  # dots of a name

_NONE: Any = object()


class Fields:
    """The fields of one message, worked out when they are asked for."""

    __slots__ = ("_body", "_properties", "_record", "_text")

    def __init__(self, record: Record) -> None:
        self._record = record
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

    def _field(self, path: list[str]) -> object:
        if self._body is _NONE:
            text = self._body_text()
            try:
                self._body = None if text is None or text[:1] not in "{[ \n\t" else json.loads(text)
            except (ValueError, RecursionError):
                self._body = None
        found = self._body
        for name in path:
            if isinstance(found, dict):
                found = found.get(name)
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                return None
        return None if isinstance(found, dict | list) else found
