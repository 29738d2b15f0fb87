"""SQL over tables and live log, by DuckDB in this process."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlparse

from .errors import LakeError
from .local_files import LocalFileIO, path_of
from .table_schema import STORE_TIME, row_schema
from .union import Tables, TopicTable

if TYPE_CHECKING:
    import duckdb

    Connection: TypeAlias = duckdb.DuckDBPyConnection

_WORD = re.compile(r'"((?:[^"]|"")+)"|([A-Za-z_][A-Za-z0-9_]*)')
_ALL = re.compile(r"\*")
_COUNT = re.compile(r"count\s*\(\s*\*\s*\)", re.IGNORECASE)


def connect(tables: Tables, text: str) -> "duckdb.DuckDBPyConnection":
    """A database in memory with a view of each table that a query names, to `execute` it.

    A view has the table's name in the catalog, and the columns that the query names. LakeError
    where a table can't be read.
    """
    import duckdb

    connection = duckdb.connect(
        config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
    connection.execute("set timezone = 'UTC'")
    words = {(quoted or bare).lower() for quoted, bare in _WORD.findall(text)}
    seen: dict[str, str] = {}
    for name in tables.names:
        if name.lower() in words:
            other = seen.setdefault(name.lower(), name)
            if other != name:
                raise LakeError(
                    f"tables {other} and {name} differ in capital letters only, which SQL does "
                    "not see; give one of them another name: aerobee lake add "
                    f"{tables.names[name]} --table NAME"
                )
            found = tables[name]
            _add(connection, name, found, _columns(text, words, found.names))
    return connection


@contextmanager
def readable_errors(tables: Tables) -> Iterator[None]:
    """Raise what goes wrong in a query, or in the live messages that it reads, as a LakeError."""
    import duckdb

    try:
        yield
    except duckdb.Error as wrong:
        cause = tables.failures[0] if tables.failures else wrong
        raise LakeError(str(cause)) from wrong


def _columns(text: str, words: set[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that a query may use: those that it names, or all for a star."""
    if _ALL.search(_COUNT.sub("", text)):
        return names
    return tuple(name for name in names if name.lower() in words or name == STORE_TIME)


def _add(
    connection: "duckdb.DuckDBPyConnection",
    name: str,
    found: TopicTable,
    columns: tuple[str, ...],
) -> None:
    """Make a view of a table and its live part."""
    from duckdb import ColumnExpression, ConstantExpression

    live = f"{name} live"
    connection.register(live, found.live(columns))
    both = connection.table(live)
    kinds = dict(zip(both.columns, both.types, strict=True))

    def chosen(relation: "duckdb.DuckDBPyRelation") -> "duckdb.DuckDBPyRelation":
        have = set(relation.columns)
        return relation.select(
            *(
                ColumnExpression(each)
                if each in have
                else ConstantExpression(None).cast(kinds[each]).alias(each)
                for each in columns
            )
        )

    both = chosen(both)
    if found.files:
        both = chosen(_stored(connection, name, found)).union(both)
    if found.since_ms is not None:
        moment = datetime.fromtimestamp(found.since_ms / 1000, UTC)
        both = both.filter(ColumnExpression(STORE_TIME) >= ConstantExpression(moment))
    both.create_view(name)


def _stored(
    connection: "duckdb.DuckDBPyConnection", name: str, found: TopicTable
) -> "duckdb.DuckDBPyRelation":
    """The table's files: DuckDB reads local ones itself, Arrow the others."""
    io = found.table.io
    if isinstance(io, LocalFileIO):
        paths = [str(path_of(file)) for file in found.files]
        # Columns are added: files that were written before have fewer.
        return connection.read_parquet(paths, union_by_name=bool(found.decoding.fields))
    import pyarrow.dataset as ds
    from pyiceberg.io.pyarrow import PyArrowFileIO

    if not isinstance(io, PyArrowFileIO):
        raise LakeError(
            f"the files of table {name} are read by {type(io).__name__}, which no query can use; "
            "leave py-io-impl out of the catalog's properties"
        )
    first = urlparse(found.files[0])
    files = io.fs_by_scheme(first.scheme, first.netloc)
    paths = [io.parse_location(file, io.properties)[2] for file in found.files]
    stored = f"{name} stored"
    given = row_schema(found.decoding.schema) if found.decoding.fields else None
    connection.register(stored, ds.dataset(paths, schema=given, format="parquet", filesystem=files))
    return connection.table(stored)
