"""Tables for tests: a catalog in a folder, and what is in a table."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from aerobee.lake.catalog import LakeCatalog
from aerobee.lake.data_files import DataFiles
from aerobee.lake.progress import ACCEPTED_KEY
from aerobee.lake.table_schema import file_schema
from pyiceberg.table import Table


def catalog_in(folder: Path, **properties: str) -> LakeCatalog:
    """A catalog of SQLite with its tables, in this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", **properties}
    return LakeCatalog(given, place=str(folder / "tables"), namespace="rocketmq")


def rewrite(
    table: Table, change: Callable[[pa.Table], pa.Table], more: Sequence[pa.Field] = ()
) -> None:
    """Replace the rows of a table by what `change` makes of them, and accept that: what an operator
    may do with another engine. `more` are the columns behind those of a message."""
    before = [task.file for task in table.scan().plan_files()]
    schema = file_schema(table.schema(), more).remove_metadata()
    rows = table.scan().to_arrow().select(schema.names).cast(schema)
    files = DataFiles(table, more)
    for batch in change(rows).combine_chunks().to_batches():
        files.write(batch)
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
        for old in before:
            snapshot.delete_data_file(old)
        for new in files.finish():
            snapshot.append_data_file(new)
    head = table.refresh().current_snapshot()
    assert head is not None
    with table.transaction() as transaction:
        transaction.set_properties({ACCEPTED_KEY: str(head.snapshot_id)})


def contents(table: Table) -> dict[tuple[str, int, int], bytes]:
    """The bodies of a table by broker, queue and offset; AssertionError if a row is there twice."""
    rows = table.scan(selected_fields=("brokerName", "queueId", "offset", "value")).to_arrow()
    columns = [rows.column(name).to_pylist() for name in ("brokerName", "queueId", "offset")]
    keys = list(zip(*columns, strict=True))
    twice = [key for key, count in Counter(keys).items() if count > 1]
    assert not twice, f"{len(twice)} rows are there twice, first {twice[0]}"
    return dict(zip(keys, rows.column("value").to_pylist(), strict=True))
