"""Tables: aligned text for people, JSON objects for programs."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from .sanitize import json_line, sanitize

Cell = str | int | float
Row = Sequence[Cell]
Columns = tuple[str, ...]


def table_lines(columns: Columns, rows: Sequence[Row]) -> Iterator[str]:
    """The lines of a table: numbers right-aligned, texts left-aligned."""
    table = [columns, *([_text(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    numeric = [bool(rows) and not isinstance(cell, str) for cell in (rows or [columns])[0]]
    for line in table:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        yield "  ".join(cells).rstrip()


def _text(cell: Cell) -> str:
    return sanitize(cell) if isinstance(cell, str) else f"{cell:,}"


def print_rows(columns: Columns, rows: Sequence[Row], *, as_json: bool) -> int:
    """Prints a table, or one JSON object per line; returns the exit code 0."""
    lines = map(json_line, objects(columns, rows)) if as_json else table_lines(columns, rows)
    for line in lines:
        print(line)
    return 0


def latest(times_ms: Iterable[int]) -> str:
    """The latest of these times, in local time; without one "never", or "-" where a time is below
    0: brokers say so of a queue whose messages are all gone."""
    times = list(times_ms)
    last_ms = max(times, default=0)
    if last_ms > 0:
        return datetime.fromtimestamp(last_ms / 1000).isoformat(" ", "seconds")
    return "-" if min(times, default=0) < 0 else "never"


def objects(columns: Columns, rows: Sequence[Row]) -> Iterator[dict[str, Cell]]:
    """The rows as objects, keyed by the columns' names in lower case."""
    names = [name.lower().replace(" ", "_").replace("/", "_per_") for name in columns]
    for row in rows:
        yield dict(zip(names, row, strict=True))
