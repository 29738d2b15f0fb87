"""Ask a topic's table, which `aerobee lake` has made, with DuckDB."""

import sys

import duckdb
from pyiceberg.catalog import load_catalog

folder = sys.argv[1] if len(sys.argv) > 1 else "tables"
catalog = load_catalog("aerobee", type="sql", uri=f"sqlite:///{folder}/catalog.db")
table = catalog.load_table("rocketmq.orders")

# The row filter picks the files: bounds of offsets, times, queues and brokers are in the manifests.
orders = table.scan(row_filter="timestamp >= '2026-01-01T00:00:00+00:00'").to_duckdb("orders")
for row in orders.sql("select tags, count(*) from orders group by tags order by tags").fetchall():
    print(*row)

# An engine without a catalog reads the files. No row is in two of them.
files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
print(duckdb.read_parquet(files).aggregate("count(*)").fetchall()[0][0], "rows")
