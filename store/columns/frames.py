"""Arrow batches as a DataFrame of polars, which is imported here only."""

from collections.abc import Iterable
from typing import TypeAlias

import polars
import pyarrow as pa

DataFrame: TypeAlias = polars.DataFrame


def to_polars(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> DataFrame:
    """All rows of the batches; an empty frame with these columns when there are none."""
    return polars.DataFrame(pa.Table.from_batches(list(batches), schema))
