"""How RocketMQ's SQL92 filter compares values: Java's types, conversions and their failures.

A property is a text. Numbers come only from the expression: `int` stands for Integer, `Long` for
Long, `float` for Double; which of them decides how a text is read before it is compared. A text
that can't be read raises ValueError, and the message then doesn't match.
"""

import math
import re

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

WHOLE_CHARS_MAX = 64  # of a number without the zeros before it

_WHOLE = re.compile(r"([+-]?)((?:(?![\U00010000-\U0010ffff])\d)+)")  # any script's, of 16 bits
_DECIMAL = re.compile(
    r"[\0- ]*[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)[\0- ]*"
)
_HEX = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_BLANKS = "".join(map(chr, range(33)))  # what Java trims


class Long(int):
    """A whole number that Java keeps in 64 bits, not in 32."""


def read_int(text: str) -> int:
    """Integer.valueOf; ValueError when the text is no such number."""
    return _whole(text, INT_MIN, INT_MAX)


def read_long(text: str) -> int:
    """Long.valueOf; ValueError when the text is no such number."""
    return _whole(text, LONG_MIN, LONG_MAX)


def read_double(text: str) -> float:
    """Double.valueOf; ValueError when the text is no such number."""
    if _DECIMAL.fullmatch(text) is not None:
        return float(text.strip(_BLANKS).rstrip("fFdD"))
    found = _HEX.fullmatch(text.strip(_BLANKS))
    if found is None:
        raise ValueError(f"{text!r} is no decimal number")
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return float("-inf" if found[1].startswith("-") else "inf")


def compare(left: object, right: object) -> int:
    """Below, at or above 0 as `left` is to `right`; ValueError when a text can't be read.

    Kinds that don't go together count as smaller, as they do in Java.
    """
    kind, other = type(left), type(right)
    if kind is str and other is str:
        return int(left > right) - int(left < right)  # type: ignore[operator]
    if kind is str:
        return _order(_read(str(left), right), right)
    if other is str:
        if kind is bool:
            raise ValueError("a truth value to the left of a text can't be compared")
        return _order(left, _read(str(right), left))
    if (kind is bool) != (other is bool):
        return -1
    return _order(left, right)


def _whole(text: str, least: int, most: int) -> int:
    matched = _WHOLE.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text[:WHOLE_CHARS_MAX]!r} is no whole number")
    if len(text) > WHOLE_CHARS_MAX:
        text = matched[1] + (matched[2].lstrip("0") or "0")
        if len(text) > WHOLE_CHARS_MAX:
            raise ValueError(f"{text[:WHOLE_CHARS_MAX]!r}... is not within {least} to {most}")
    found = int(text)
    if not least <= found <= most:
        raise ValueError(f"{text!r} is not within {least} to {most}")
    return found


def _read(text: str, wanted: object) -> object:
    """The text as a value of the wanted one's kind."""
    if type(wanted) is bool:
        return text.lower() == "true"
    if type(wanted) is float:
        return read_double(text)
    return read_long(text) if type(wanted) is Long else read_int(text)


def _order(left: object, right: object) -> int:
    if type(left) is float or type(right) is float:
        # Double.compareTo: NaN is above all and like itself, -0.0 is below 0.0.
        one, two = float(left), float(right)  # type: ignore[arg-type]
        key = (math.isnan(one), 0.0 if math.isnan(one) else one, math.copysign(1, one))
        other = (math.isnan(two), 0.0 if math.isnan(two) else two, math.copysign(1, two))
        if key[0] and other[0]:
            return 0
        return (key > other) - (key < other)
    return int(left > right) - int(left < right)  # type: ignore[operator]
