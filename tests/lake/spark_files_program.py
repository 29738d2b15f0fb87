"""Reads files of a table with Spark alone, and writes the rows to a folder.

python spark_files_program.py FOLDER FILE...
"""

import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    .getOrCreate()
)
spark.read.parquet(*sys.argv[2:]).coalesce(1).write.parquet(sys.argv[1])
spark.stop()
