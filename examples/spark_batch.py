"""Read a topic as a table."""

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
orders = spark.read.format("rocketmq").option("subscribe", "orders").load()
orders.selectExpr("topic", "partition", "offset", "cast(value as string)").show()
