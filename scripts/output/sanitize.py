"""Untrusted text for a terminal: control characters are escaped.

Remarks, names and messages come over the network, and a terminal obeys control characters: they
move its cursor, change its title or hide text. They are written as Python escapes (`\\x1b`,
`\\u202e`), in JSON as JSON escapes.
"""

import json
import logging
import re
from typing import Any

# C0 and C1, line separators, bidirectional overrides, and surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# For text of several lines: line feeds and tabs stay.
_CONTROL_IN_LINES = re.compile(_CONTROL.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def sanitize(text: str) -> str:
    """The text on one line."""
    return _CONTROL.sub(_escaped, text)


def sanitize_lines(text: str) -> str:
    """The text with its line ends and tabs."""
    return _CONTROL_IN_LINES.sub(_escaped, text.replace("\r\n", "\n"))


def sanitize_body(body: bytes) -> bytes:
    """A message's body as text with its line ends; bytes that are no UTF-8 are escaped."""
    return sanitize_lines(body.decode(errors="backslashreplace")).encode()


def json_line(value: Any) -> str:
    """The value as JSON on one line; letters of all languages stay."""
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class SanitizingFormatter(logging.Formatter):
    """Log lines: each message is one line."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = sanitize(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return sanitize_lines(super().formatException(ei))


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
