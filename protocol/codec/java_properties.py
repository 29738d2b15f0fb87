"""The text format of java.util.Properties: RocketMQ's configuration files and config requests.

One `key=value` a line; `:` or a blank may stand for `=`, `#` and `!` begin a comment, a backslash
at the end continues a line, and `\\t \\n \\r \\f \\uXXXX` mean what they mean in Java.
"""

import re
from collections.abc import Mapping

_LINES = re.compile(r"\r\n|\r|\n")
_KEY_END = re.compile(r"(?<!\\)(?:\\\\)*[=: \t\f]")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_MEANINGS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse(text: str) -> dict[str, str]:
    """Keys and values; the last one of a key wins. ValueError when a `\\u` has no four digits."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        end = _KEY_END.search(line)
        at = end.end() - 1 if end else len(line)
        separator = _SEPARATOR.match(line, at)
        value_at = separator.end() if separator else at
        found[_unescape(line[:at])] = _unescape(line[value_at:])
    return found


def dump(values: Mapping[str, str]) -> str:
    """`key=value` lines in the order of the keys, unescaped, as RocketMQ answers and stores."""
    return "".join(f"{key}={values[key]}\n" for key in sorted(values))


def _logical_lines(text: str) -> list[str]:
    found: list[str] = []
    continued = False
    for line in _LINES.split(text):
        line = line.lstrip(" \t\f")
        if continued:
            found[-1] += line
        elif line and line[0] not in "#!":
            found.append(line)
        else:
            continue
        continued = _odd_backslashes(found[-1])
        if continued:
            found[-1] = found[-1][:-1]
    return found


def _odd_backslashes(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_meaning, text) if "\\" in text else text


def _meaning(found: re.Match[str]) -> str:
    what = found[1]
    if len(what) == 5:
        return chr(int(what[1:], 16))
    if what == "u":
        raise ValueError("properties can't be read: \\u is not followed by four hex digits")
    return _MEANINGS.get(what, what)
