"""The tables that `aerobee ingest` writes as a stream."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyarrow import parquet


def rows_of(table: Path) -> list[dict[str, Any]]:
    """The rows of the files that micro-batches have finished, as Spark's log of the table says."""
    found = []
    for batch in sorted((table / "_spark_metadata").glob("[0-9]*")):
        for line in batch.read_text().splitlines()[1:]:
            file = Path(unquote(urlparse(json.loads(line)["path"]).path))
            folder = dict(part.split("=") for part in file.parts if "=" in part)
            found += [row | folder for row in parquet.ParquetFile(file).read().to_pylist()]
    return found
