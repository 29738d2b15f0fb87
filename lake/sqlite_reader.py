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

from .errors import LakeError

SCHEME = "sqlite:///"
_LOCATION = (
    "SELECT metadata_location FROM iceberg_tables "
    "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)


def file_of(uri: str) -> Path | None:
    """The file of a catalog's address without options for its driver; None for another kind."""
    is_file = uri.startswith(SCHEME) and "?" not in uri and uri.removeprefix(SCHEME)
    return Path(uri.removeprefix(SCHEME)).absolute() if is_file else None


def check_file(uri: str) -> None:
    """LakeError when the address is that of a file that does not exist."""
    path = file_of(uri)
    if path is not None and not path.exists():
        raise LakeError(
            f"the catalog {path} does not exist: it was moved or deleted, or lake.yaml names "
            "another one; bring it back, as only it knows the state of the tables. For new tables "
            "give another --config and --to"
        )


class SqliteReader(NoopCatalog):
    """A catalog in the file that the property `uri` (sqlite:///PATH) names; it loads tables."""

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table as it is now. NoSuchTableError when it is not there; sqlite3.Error."""
        names = Catalog.identifier_to_tuple(identifier)
        path = file_of(self.properties["uri"])
        assert path is not None
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute(
                _LOCATION, (self.name, ".".join(names[:-1]), names[-1])
            ).fetchone()
        if row is None:
            raise NoSuchTableError(f"{path} has no table {'.'.join(names)}")
        io = load_file_io(self.properties, row[0])
        metadata = FromInputFile.table_metadata(io.new_input(row[0]))
        return Table(names, metadata, row[0], io, self)
