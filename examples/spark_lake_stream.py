"""Write all that a topic ever had to Parquet files, then what comes, each message once."""

import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
config = sys.argv[1] if len(sys.argv) > 1 else "lake.yaml"
stream = spark.readStream.format("rocketmq").option("subscribe", "orders")
(
    stream.option("lakeConfig", config)
    .option("startingOffsets", "earliest")  # or startingTimestamp, "30d"
    .option("maxBytesPerTrigger", "512m")
    .load()
    .writeStream.format("parquet")
    .option("path", "history.parquet")
    .option("checkpointLocation", "history.checkpoint")
    .trigger(availableNow=True)
    .start()
    .awaitTermination()
)
print(spark.read.parquet("history.parquet").count(), "rows")
