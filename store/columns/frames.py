"""Converts Arrow batches to a polars DataFrame; polars is imported here only."""

from collections.abc import Iterable
from typing import TypeAlias

import polars
import pyarrow as pa

DataFrame: TypeAlias = polars.DataFrame


def to_polars(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> DataFrame:
    """All rows of the batches; an empty frame with the columns of `schema` without batches."""
    return polars.DataFrame(pa.Table.from_batches(list(batches), schema))
