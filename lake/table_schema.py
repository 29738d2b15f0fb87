"""The schema of a topic's table: the columns of the Spark source with rowSchema full, by field id.

Partitions are days of the store time in UTC; rows are sorted by broker, queue and offset.
"""

from collections.abc import Sequence
from functools import cache

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestamptzType,
)

from .rows.columns import row_columns
from .rows.decode import schema_of
from .rows.table_part import KEYS

COLUMNS = row_columns(full=True)
STORE_TIME = "timestamp"
REASON = "reason"  # of a dead letter
SORTED_BY = KEYS
DAY_FIELD_ID = 1_000  # the first id of partition fields
FIELD_ID = b"PARQUET:field_id"

_PLAIN: dict[str, type[IcebergType]] = {
    "string": StringType,
    "binary": BinaryType,
    "int": IntegerType,
    "bigint": LongType,
    "timestamp": TimestamptzType,
}

# Engines prune files by these; statistics of bodies and properties would only take room.
_BOUNDED = ("partition", "offset", "timestamp", "queueId", "brokerName", "bornTimestamp")
_PREFIXED = ("key", "tags", "msgId")
_UNMEASURED = ("value", "keys.element", "properties.key", "properties.value")
_NOT_MEASURED = ("value", "keys", "properties")

PROPERTIES = {
    # pyiceberg's writers would append once more after a conflict, with offsets that are not theirs.
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.metrics.default": "counts",
    **{f"write.metadata.metrics.column.{name}": "full" for name in _BOUNDED},
    **{f"write.metadata.metrics.column.{name}": "truncate(16)" for name in _PREFIXED},
    **{f"write.metadata.metrics.column.{name}": "none" for name in _UNMEASURED},
}


@cache
def table_schema() -> Schema:
    """The Iceberg schema: field ids 1 to 18 in the order of the columns, then those inside."""
    inner = iter(range(len(COLUMNS) + 1, 100))
    fields = []
    for number, column in enumerate(COLUMNS, 1):
        kind: IcebergType
        if column.ddl == "array<string>":
            kind = ListType(next(inner), StringType(), element_required=False)
        elif column.ddl == "map<string,string>":
            kind = MapType(next(inner), StringType(), next(inner), StringType(), False)
        else:
            kind = _PLAIN[column.ddl]()
        fields.append(NestedField(number, column.name, kind, required=False))
    return Schema(*fields)


@cache
def dead_letter_schema() -> Schema:
    """The schema of a table of dead letters: that of messages, and the reason."""
    fields = table_schema().fields
    return Schema(
        *fields, NestedField(table_schema().highest_field_id + 1, REASON, StringType(), False)
    )


@cache
def partition_spec() -> PartitionSpec:
    """One partition for each day of the store time."""
    source = table_schema().find_field(STORE_TIME).field_id
    return PartitionSpec(PartitionField(source, DAY_FIELD_ID, DayTransform(), "timestamp_day"))


@cache
def sort_order() -> SortOrder:
    """By broker, queue and offset."""
    ids = [table_schema().find_field(name).field_id for name in SORTED_BY]
    return SortOrder(*(SortField(each, IdentityTransform()) for each in ids))


def measured(schema: pa.Schema) -> list[str]:
    """The columns of a file with statistics: all plain ones besides bodies."""
    return [
        each.name
        for each in schema
        if each.name not in _NOT_MEASURED and not pa.types.is_nested(each.type)
    ]


def row_schema(more: Sequence[pa.Field] = ()) -> pa.Schema:
    """The Arrow schema of rows: the columns of a message, then `more`."""
    return pa.schema([*schema_of(COLUMNS), *more])


def file_schema(schema: Schema, more: Sequence[pa.Field] = ()) -> pa.Schema:
    """The Arrow schema of a Parquet file, with the field ids that the table's schema gives: the
    columns of a message, then `more`."""

    def field(path: str, name: str, kind: pa.DataType, nullable: bool = True) -> pa.Field:
        if pa.types.is_list(kind):
            kind = pa.list_(field(f"{path}.element", "element", kind.value_type))
        elif pa.types.is_map(kind):
            kind = pa.map_(
                field(f"{path}.key", "key", kind.key_type, False),
                field(f"{path}.value", "value", kind.item_type),
            )
        elif pa.types.is_struct(kind):
            kind = pa.struct([field(f"{path}.{each.name}", each.name, each.type) for each in kind])
        return pa.field(
            name, kind, nullable, {FIELD_ID: str(schema.find_field(path).field_id).encode()}
        )

    return pa.schema([field(each.name, each.name, each.type) for each in row_schema(more)])
