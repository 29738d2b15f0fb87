"""Text from elsewhere as a terminal may get it: nothing in it acts, everything in it is seen.

Remarks, names and messages come over the network from whoever wrote them, and a terminal obeys
control characters: it would move its cursor, change its title, or show another text than there is.
They are written as Python writes them (`\\x1b`, `\\u202e`), in JSON as JSON does.
"""

import json
import logging
import re
from typing import Any

# C0 and C1, the separators and overrides that change how a line is laid out, halves of a character.
_ACTS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Of several lines: their ends and the tabs in them stay.
_ACTS_IN_LINES = re.compile(_ACTS.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def plain(text: str) -> str:
    """The text on one line."""
    return _ACTS.sub(_escaped, text)


def plain_lines(text: str) -> str:
    """The text with its line ends and tabs."""
    return _ACTS_IN_LINES.sub(_escaped, text.replace("\r\n", "\n"))


def plain_body(body: bytes) -> bytes:
    """A message's body: text with its line ends, what is no UTF-8 byte by byte."""
    return plain_lines(body.decode(errors="backslashreplace")).encode()


def json_line(value: Any) -> str:
    """The value as JSON on one line, letters of all languages as they are."""
    text = json.dumps(value, ensure_ascii=False)
    return _ACTS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class PlainFormatter(logging.Formatter):
    """Log lines: a message is one line, whatever was said to us."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = plain(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return plain_lines(super().formatException(ei))


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
