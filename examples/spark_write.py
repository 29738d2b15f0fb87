"""Send the rows of a table to a topic."""

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.createDataFrame([("o-1", "paid"), ("o-2", "refunded")], "key string, value string")
rows.write.format("rocketmq").mode("append").option("topic", "paid-orders").save()
