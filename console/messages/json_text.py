"""JSON for people: with indents, and otherwise as it is written.

A number keeps its digits, and a name that is there twice stays twice: neither survives in Python's
own values.
"""

import json
from collections.abc import Iterator
from typing import Any

INDENT = "  "


class Number(str):
    """A number as it is written."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """The names of an object and their values, in their order."""


def parsed(text: str) -> Any:
    """The value of a JSON text, with `Number` and `Pairs`; ValueError or RecursionError for a text
    that is none."""
    return json.loads(
        text,
        parse_int=Number,
        parse_float=Number,
        parse_constant=Number,
        object_pairs_hook=Pairs,
    )


def written(value: Any) -> str:
    """A text, a number, a truth value, or null, as JSON."""
    if isinstance(value, Number):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def indented(value: Any) -> str:
    """A value of `parsed` as a text with indents."""
    return "".join(_parts(value, "\n"))


def _parts(value: Any, line: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield written(value)
        return
    sign, end = "{}" if isinstance(value, Pairs) else "[]"
    inner = line + INDENT
    begin = sign + inner
    for one in value:
        yield begin
        if isinstance(value, Pairs):
            yield f"{written(one[0])}: "
            one = one[1]
        yield from _parts(one, inner)
        begin = "," + inner
    yield line + end if value else sign + end
