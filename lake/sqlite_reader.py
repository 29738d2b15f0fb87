"""Tables of pyiceberg's SQLite catalog, for who only reads: without SQLAlchemy, which takes longer
to import than a small query to run."""

import sqlite3
from contextlib import closing
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

SCHEME = "sqlite:///"
_LOCATION = (
    "SELECT metadata_location FROM iceberg_tables "
    "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)


def is_sqlite(uri: str) -> bool:
    """True for the address of a file, without options for its driver."""
    return uri.startswith(SCHEME) and "?" not in uri


class SqliteReader(NoopCatalog):
    """A catalog in the file that the property `uri` (sqlite:///PATH) names; it loads tables."""

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table as it is now. NoSuchTableError when it is not there; sqlite3.Error."""
        names = Catalog.identifier_to_tuple(identifier)
        path = Path(self.properties["uri"].removeprefix(SCHEME)).absolute()
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute(
                _LOCATION, (self.name, ".".join(names[:-1]), names[-1])
            ).fetchone()
        if row is None:
            raise NoSuchTableError(f"{path} has no table {'.'.join(names)}")
        io = load_file_io(self.properties, row[0])
        metadata = FromInputFile.table_metadata(io.new_input(row[0]))
        return Table(names, metadata, row[0], io, self)
