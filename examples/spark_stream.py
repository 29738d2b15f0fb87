"""Write what a topic has got since the last run to Parquet files, each message once."""

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
stream = spark.readStream.format("rocketmq").option("subscribe", "orders")
(
    stream.option("startingOffsets", "earliest")
    .load()
    .writeStream.format("parquet")
    .option("path", "orders.parquet")
    .option("checkpointLocation", "orders.checkpoint")
    .trigger(availableNow=True)
    .start()
    .awaitTermination()
)
print(spark.read.parquet("orders.parquet").count(), "rows")
