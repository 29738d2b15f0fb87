"""Tables for people, as lines of text."""

from collections.abc import Iterator, Sequence

from .shown import plain

Cell = str | int | float
Row = Sequence[Cell]
Columns = tuple[str, ...]


def table_lines(columns: Columns, rows: Sequence[Row]) -> Iterator[str]:
    """A table for people: numbers to the right, texts to the left."""
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
    return plain(cell) if isinstance(cell, str) else f"{cell:,}"
