"""A check of a schema in Spark's DDL without Spark: its parser is in the JVM, which starts slowly.

Finds simple mistakes (a bracket, a column without a type, an unknown type), so that the user learns
of them at once. Spark still parses what passes here.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches

TYPES = frozenset(
    (
        "boolean",
        "tinyint",
        "byte",
        "smallint",
        "short",
        "int",
        "integer",
        "bigint",
        "long",
        "float",
        "real",
        "double",
        "decimal",
        "dec",
        "numeric",
        "string",
        "char",
        "character",
        "varchar",
        "binary",
        "date",
        "time",
        "timestamp",
        "timestamp_ntz",
        "timestamp_ltz",
        "interval",
        "void",
        "variant",
        "geometry",
        "geography",
        "array",
        "map",
        "struct",
    )
)
# A name with or without backquotes, then a colon or a blank, then the word of its type.
_COLUMN = re.compile(r"(?:`(?:[^`]|``)+`|\w+)(?:\s*:\s*|\s+)(\w+)")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")  # a comment, with \\ before a quote
_PAIRS = {")": "(", ">": "<"}


def fault_in(text: str) -> str | None:
    """The first obvious mistake in a schema in DDL; None when there is none."""
    text = _QUOTED.sub("''", text)
    try:
        columns = list(_columns(text))
    except ValueError as wrong:
        return str(wrong)
    if text.lower().startswith("struct<"):
        return None
    for column in columns:
        found = _COLUMN.match(column)
        if found is None:
            return f"{column[:80]!r} is no column; write a name and a type"
        kind = found[1].lower()
        if kind not in TYPES:
            near = get_close_matches(kind, TYPES, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            return f"{kind!r} is no type{hint}"
    return None


def _columns(text: str) -> Iterator[str]:
    """The text cut at the commas that are in no bracket and no quotes."""
    opened: list[str] = []
    begin, quote = 0, ""
    for place, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "`'\"":
            quote = sign
        elif sign in "(<":
            opened.append(sign)
        elif sign in _PAIRS:
            if not opened or opened.pop() != _PAIRS[sign]:
                raise ValueError(f"{sign!r} at character {place + 1} closes nothing")
        elif sign == "," and not opened:
            yield text[begin:place].strip()
            begin = place + 1
    if opened or quote:
        raise ValueError(f"{(quote or opened[-1])!r} is not closed")
    yield text[begin:].strip()
