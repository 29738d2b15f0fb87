"""`aerobee sql`: a query over topics, their tables and what came since as one."""

import argparse
import csv
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from ..begin_at import TIMES, start_of
from ..connecting import add_options, security
from ..output.command_error import CommandError
from ..output.sanitize import json_line, sanitize
from ..output.table import table_lines

if TYPE_CHECKING:
    from ...lake.sql import Connection

ROWS_AT_ONCE = 10_000
TABLE_ROWS_MAX = 10_000  # a table is printed when all its rows are there


def declare(_: str, parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.epilog = (
        "select tags, count(*) from orders group by tags: a table is named as lake add said, by "
        "--table, else by its topic, where a character besides A-Z a-z 0-9 _ - is _ and its code "
        "(shop.a is shop_2ea, %DLQ%g is _25DLQ_25g; a name with - needs double quotes). Bodies are "
        "in the column value: decode(value) is their text."
    )
    add = parser.add_argument
    add("query", metavar="QUERY", help="of DuckDB, over the tables of the settings")
    add("--config", type=Path, default=Path("lake.yaml"), metavar="FILE", help="(lake.yaml)")
    add("--from", dest="start", metavar="WHERE", help=f"messages stored since: {TIMES}")
    add("--format", choices=("table", "json", "csv", "parquet"), default="table")
    add("--json", dest="format", action="store_const", const="json", help="as --format json")
    add("--output", type=Path, metavar="FILE", help="write there; parquet needs it")
    add_options(parser)
    parser.set_defaults(run=sql)


def sql(options: argparse.Namespace) -> int:
    """Print the rows of a query."""
    for package in ("pyiceberg", "duckdb"):
        if find_spec(package) is None:
            raise CommandError(
                f"SQL needs {package}, which is not installed; run pip install 'aerobee[lake]'"
            )
    if options.format == "parquet" and options.output is None:
        raise CommandError("--format parquet needs --output FILE")
    from ...lake import settings
    from ...lake.errors import LakeError
    from ...lake.sql import connect, readable_errors
    from ...lake.union import Tables

    since = None
    if options.start is not None:
        since = start_of(options.start, latest=False).ms or None
    try:
        found = settings.read(options.config)
        if options.namesrv:
            found = msgspec.structs.replace(found, namesrv_addr=options.namesrv)
        tables = Tables(found, security=security(options), since_ms=since)
        with tables, readable_errors(tables):
            _write(connect(tables, options.query), options)
    except LakeError as wrong:
        raise CommandError(str(wrong)) from wrong
    return 0


def _write(connection: "Connection", options: argparse.Namespace) -> None:
    _check_for_rows(connection, options.query)
    if options.format == "parquet":
        connection.sql(options.query).write_parquet(str(options.output))
        return
    found = connection.execute(options.query)
    names = [column[0] for column in found.description or ()]
    if options.output is None:
        _print(found, names, options.format, sys.stdout)
        return
    with options.output.open("w", newline="", encoding="utf-8") as file:
        _print(found, names, options.format, file)


def _check_for_rows(connection: "Connection", query: str) -> None:
    """CommandError for a query whose last statement gives no rows, or that has none."""
    example = "give one that does: select tags, count(*) from TABLE group by tags"
    statements = connection.extract_statements(query)
    if not statements:
        raise CommandError(f"the query {query!r} asks for nothing; {example}")
    kinds = [each.name for each in statements[-1].expected_result_type]
    if "NOTHING" in kinds and statements[-1].type.name != "MULTI":  # which is a pivot
        kind = statements[-1].type.name
        raise CommandError(f"the query ends in a statement ({kind}) that gives no rows; {example}")


def _print(found: "Connection", names: list[str], form: str, out: TextIO) -> None:
    if form == "table":
        rows = found.fetchmany(TABLE_ROWS_MAX + 1)
        shown = [[_cell(each) for each in row] for row in rows[:TABLE_ROWS_MAX]]
        for line in table_lines(tuple(names), shown):
            print(line, file=out)
        if len(rows) > TABLE_ROWS_MAX:
            print("there are more rows; --format csv, json, parquet give all", file=sys.stderr)
        return
    lines = csv.writer(out, lineterminator="\n")
    if form == "csv":
        lines.writerow(names)
    while rows := found.fetchmany(ROWS_AT_ONCE):
        for row in rows:
            if form == "csv":
                lines.writerow([_cell(each) for each in row])
            else:
                line = json_line({name: _json(each) for name, each in zip(names, row, strict=True)})
                print(line, file=out)


def _cell(value: object) -> str | int | float:
    """The value as text; of lists, structs and maps their JSON."""
    if isinstance(value, list | tuple | dict):
        return json_line(_json(value))
    if isinstance(value, bool) or not isinstance(value, int | float | str | bytes):
        return "" if value is None else sanitize(str(_json(value)))
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def _json(value: object) -> object:
    """The value in JSON: bytes as text, times in ISO 8601."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _json(each) for key, each in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if isoformat is not None else str(value)
