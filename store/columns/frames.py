"""Arrow batches as a DataFrame of polars, which is imported here only."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import polars
import pyarrow as pa

DataFrame: TypeAlias = polars.DataFrame


def to_polars(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> DataFrame:
    """All rows of the batches; an empty frame with these columns when there are none."""
    found: Any = polars.from_arrow(pa.Table.from_batches(list(batches), schema))
    return found
