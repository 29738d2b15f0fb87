"""Ask a store folder with polars, pandas and DuckDB, without a broker or beside one."""

import sys

import duckdb
import pyarrow as pa
from aerobee.store import StoreView

COLUMNS = ["queue_id", "queue_offset", "store_time", "body"]

view = StoreView(sys.argv[1] if len(sys.argv) > 1 else "aerobee-data")

frame = view.to_polars("orders", columns=COLUMNS)
print("polars:", frame.height, "messages,", frame["body"].bin.size().sum(), "bytes")

# Arrow batches of bounded size go into pandas and DuckDB one by one, or together as a table.
schema = view.schema(COLUMNS)
table = pa.Table.from_batches(view.batches("orders", columns=COLUMNS), schema)
print("pandas:", table.to_pandas()["body"].str.decode("utf-8").tolist())

(count,) = duckdb.from_arrow(table).aggregate("count(*)").fetchall()[0]
print("DuckDB:", count, "messages")
