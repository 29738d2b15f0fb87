"""The catalog that has the tables, and the table of a topic in it.

A catalog is pyiceberg's: SQLite by default, REST, Hive or Glue. What it raises becomes a LakeError
that says which call failed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pyiceberg.catalog import AVAILABLE_CATALOGS, Catalog, CatalogType, load_catalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.typedef import Properties

from . import local_files
from .bodies.fields import Field, ddl_of
from .errors import LakeError, NoTable
from .sqlite_reader import SqliteReader, check_file, file_of
from .table_schema import (
    PROPERTIES,
    dead_letter_schema,
    partition_spec,
    sort_order,
    table_schema,
)

TOPIC_KEY = "aerobee.topic"
RETRIES_KEY = "commit.retry.num-retries"
NAME_MAX = 200  # characters of a table's name


def table_name(topic: str) -> str:
    """The name of a topic's table: each character besides A-Z a-z 0-9 _ - as _ and its code."""
    return re.sub(r"[^A-Za-z0-9_-]", lambda found: f"_{ord(found[0]):02x}", topic)


def location_of(place: str) -> str:
    """Where tables lie, as a URI: a path of this machine becomes one. LakeError for no place."""
    if not place.strip():
        raise LakeError("the place of the tables is empty; give a folder, or s3://bucket/folder")
    if re.match(r"[a-z][a-z0-9+.-]*://", place):
        return place.rstrip("/")
    return f"file://{Path(place).absolute()}"


class LakeCatalog:
    """One catalog, with the place of new tables.

    `properties` are pyiceberg's of a catalog ("type", "uri", "token", "s3.endpoint" ...); with
    `name` alone those of its configuration file. With `only_reads` tables are loaded, never made or
    written.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        place: str,
        namespace: str,
        name: str = "aerobee",
        only_reads: bool = False,
    ) -> None:
        self._place = location_of(place)
        self.namespace = namespace
        given = dict(properties)
        self._uri = given.get("uri", "")
        if self._place.startswith("file://"):
            given.setdefault("py-io-impl", local_files.IMPLEMENTATION)
        with _said(f"open the catalog {name} ({properties.get('uri', 'configured')})"):
            self._catalog: Catalog = (
                SqliteReader(name, **given)
                if only_reads and file_of(given.get("uri", "")) is not None
                else load_catalog(name, **given)
            )

    def identifier(self, name: str) -> tuple[str, ...]:
        """The name of a table with its namespace."""
        return (*self.namespace.split("."), name)

    def create(self, name: str, topic: str, *, of_dead_letters: bool = False) -> Table:
        """Make the table of a topic, or load it. LakeError when it is another's, or no name.

        That of dead letters has their reasons, and no partitions.
        """
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name) or len(name) > NAME_MAX:
            raise LakeError(
                f"the table's name is {name!r}; give up to {NAME_MAX} of A-Z a-z 0-9 _ -"
            )
        parts = self.namespace.split(".")
        with _said(f"make the namespace {self.namespace}"):
            for count in range(1, len(parts) + 1):
                try:
                    self._catalog.create_namespace(tuple(parts[:count]))
                except NamespaceAlreadyExistsError:
                    continue
        # Where a table is there, some catalogs write the metadata of another before they look.
        what = f"make the table {self.full_name(name)}"
        with _said(what), suppress(TableAlreadyExistsError):
            if not self._catalog.table_exists(self.identifier(name)):
                self._catalog.create_table(
                    self.identifier(name),
                    dead_letter_schema() if of_dead_letters else table_schema(),
                    location="/".join((self._place, *parts, name)),
                    partition_spec=PartitionSpec() if of_dead_letters else partition_spec(),
                    sort_order=sort_order(),
                    properties=PROPERTIES | {TOPIC_KEY: topic, "format-version": "2"},
                )
        return self.load(name, topic, of_dead_letters=of_dead_letters)

    def full_name(self, name: str) -> str:
        """The name of a table for people: namespace.table."""
        return f"{self.namespace}.{name}"

    def load(self, name: str, topic: str, *, of_dead_letters: bool = False) -> Table:
        """The table as it is now. LakeError when it is gone, or not one of this topic."""
        check_file(self._uri)
        with _said(f"load the table {self.full_name(name)}"):
            try:
                table = self._catalog.load_table(self.identifier(name))
            except NoSuchTableError:
                raise NoTable(
                    f"the catalog has no table {self.full_name(name)}: it was dropped, or the "
                    f"catalog is another one; make it again with aerobee lake add {topic}"
                ) from None
        check(table, self.full_name(name), topic, of_dead_letters=of_dead_letters)
        return table


def _load_rest(name: str, properties: Properties) -> Catalog:
    from .rest import TimedCatalog  # HTTP, which other catalogs do without

    return TimedCatalog(name, **properties)


AVAILABLE_CATALOGS[CatalogType.REST] = _load_rest


def check(table: Table, name: str, topic: str, *, of_dead_letters: bool = False) -> None:
    """LakeError unless aerobee made this table for this topic, and nobody changed what counts."""
    properties = table.metadata.properties
    made_for = properties.get(TOPIC_KEY)
    if made_for is None:
        raise LakeError(
            f"table {name} has no property {TOPIC_KEY}: aerobee did not make it; give another name "
            f"with aerobee lake add {topic} --table NAME"
        )
    if made_for != topic:
        raise LakeError(
            f"table {name} is that of topic {made_for}, not of {topic}; give another name with "
            f"aerobee lake add {topic} --table NAME"
        )
    if properties.get(RETRIES_KEY) != "0":
        raise LakeError(
            f"table {name} has {RETRIES_KEY} {properties.get(RETRIES_KEY)!r}, which must be 0: "
            "with other values a writer that meets a conflict appends rows a second time; set the "
            "property back to 0"
        )
    have = {field.name: field for field in table.schema().fields}
    for wanted in (dead_letter_schema() if of_dead_letters else table_schema()).fields:
        found = have.pop(wanted.name, None)
        if found is None:
            raise LakeError(
                f"table {name} has no column {wanted.name}, which every message has; roll its "
                "schema back, or begin another table with --table: a column that is added again is "
                "null in the rows of before"
            )
        if str(found.field_type) != str(wanted.field_type):  # texts have no ids of fields
            raise LakeError(
                f"column {wanted.name} of table {name} is {found.field_type}, it must be "
                f"{wanted.field_type}; change it back, or give another name with --table"
            )
    needed = [field.name for field in have.values() if field.required]
    if needed:
        raise LakeError(
            f"table {name} requires a value in column {needed[0]}, which no message has; make the "
            "column optional"
        )
    transforms = [str(field.transform) for field in table.spec().fields]
    if transforms != ([] if of_dead_letters else ["day"]):
        must = "have none" if of_dead_letters else "be by the day of the store time alone"
        raise LakeError(
            f"table {name} is partitioned by {table.spec()}, it must {must}; set the partition back"
        )


def missing_columns(table: Table, name: str, fields: Sequence[Field]) -> list[Field]:
    """The declared columns that a table does not have yet. LakeError for one of another type, and
    for one named as the table's partition."""
    partitions = {each.name for spec in table.specs().values() for each in spec.fields}
    have = {each.name.lower(): each for each in table.schema().fields}
    missing = []
    for each in fields:
        found = have.get(each.name.lower())
        if found is None and each.name in partitions:
            raise LakeError(
                f"the schema names {each.name}, which is the name of table {name}'s partition; "
                "leave that field out, or give another table with --table"
            )
        if found is None:
            missing.append(each)
        elif found.name != each.name or ddl_of(found.field_type) != str(each.kind):
            raise LakeError(
                f"the schema says {each.name} {each.kind}, column {found.name} of table {name} is "
                f"{ddl_of(found.field_type)}: columns are added, never changed; declare it as it "
                "is, or give another table with --table"
            )
    return missing


@contextmanager
def _said(what: str) -> Iterator[None]:
    try:
        yield
    except LakeError:
        raise
    except Exception as wrong:
        kind = type(wrong).__name__
        raise LakeError(
            f"could not {what}: {kind}: {wrong}; look after the catalog, or its rights and address"
        ) from wrong
