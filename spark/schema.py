"""The columns that a query of the source asks for; `lake.rows.columns` has all of them."""

from collections.abc import Sequence

from ..lake.rows.columns import BY_NAME, Column


def ddl(columns: Sequence[Column]) -> str:
    """The columns as Spark's DDL, for `DataSource.schema`."""
    return ", ".join(f"`{column.name}` {column.ddl}" for column in columns)


def chosen_columns(fields: Sequence[tuple[str, str, bool]]) -> tuple[Column, ...]:
    """The columns that a schema asks for, in its order.

    A field is its name, its type as Spark's `simpleString` has it, and whether it may be null.
    ValueError naming the field when the source has no such column or not of this type.
    """
    columns = []
    for name, kind, nullable in fields:
        column = BY_NAME.get(name)
        if column is None:
            raise ValueError(
                f"the schema asks for a column {name!r}; the source has {', '.join(BY_NAME)}"
            )
        if kind != column.ddl:
            raise ValueError(
                f"the schema asks for column {name} as {kind}; it is {column.ddl}, "
                "cast it in the query"
            )
        if not nullable:
            raise ValueError(
                f"the schema says NOT NULL for column {name}; leave it out, "
                "a message may have no such value"
            )
        columns.append(column)
    if not columns:
        raise ValueError(f"the schema has no column; the source has {', '.join(BY_NAME)}")
    return tuple(columns)
