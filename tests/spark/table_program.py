"""A program that reads a table of a lake with what came since.

python table_program.py LAKE_YAML TABLE
"""

import json
import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

from aerobee.spark import read_table, register
from pyspark.sql import SparkSession
from pyspark.sql.functions import struct, to_json

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
register(spark)
rows = read_table(spark, sys.argv[2], config=sys.argv[1])
middle = sorted(row.timestamp for row in rows.select("timestamp").collect())[rows.count() // 2]
since_ms = int(middle.timestamp() * 1000)
found = {
    "bodies": [row.value.decode() for row in rows.select("value").collect()],
    "columns": rows.columns,
    "keys": sorted(row.keys or [] for row in rows.select("keys").collect()),
    "since": read_table(spark, sys.argv[2], config=sys.argv[1], since_ms=since_ms).count(),
    "expected_since": rows.where(f"timestamp >= timestamp_millis({since_ms})").count(),
    "files": len(rows.inputFiles()),
    "json": [row[0] for row in rows.select(to_json(struct(*rows.columns[18:]))).collect()],
}
print("FOUND", json.dumps(found))
