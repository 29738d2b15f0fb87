"""The mean departure delay by carrier and airport in windows of time, from a stream of flights.

Each message is one flight as a JSON object. A window is written once, when the watermark has passed
its end: to Parquet files exactly once, and as a message of another topic at least once. Flights
more than `WATERMARK` behind the newest one are left out, as in Spark.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..stream import SPARK_ADMITS

FLIGHT = "carrier string, origin string, dep_delay double, time_hour timestamp"
WINDOW = "1 day"
WATERMARK = "1 hour"


@dataclass(frozen=True, slots=True)
class Places:
    """The places of flights and means; `folder` also has the progress of both."""

    name_server: str
    topic: str
    folder: str
    means_topic: str

    @property
    def means(self) -> str:
        """The folder of the Parquet files."""
        return f"{self.folder}/means"


def means(messages: DataFrame) -> DataFrame:
    """begin, carrier, origin, departed (flights) and mean_minutes of each window.

    `messages` has the column `value`, and may be a stream or not.
    """
    flight = F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight")
    return (
        messages.select(flight)
        .select("flight.*")
        .withWatermark("time_hour", WATERMARK)
        .groupBy(F.window("time_hour", WINDOW).alias("window"), "carrier", "origin")
        .agg(
            F.count("dep_delay").alias("departed"),
            F.avg("dep_delay").alias("mean_minutes"),
        )
        .select(
            F.col("window.start").alias("begin"), "carrier", "origin", "departed", "mean_minutes"
        )
    )


def as_messages(rows: DataFrame) -> DataFrame:
    """The rows as the sink takes them: JSON, found by carrier (the tag) and by both (the key)."""
    return rows.select(
        F.to_json(F.struct(*rows.columns)).alias("value"),
        F.concat_ws("-", "carrier", "origin").alias("key"),
        F.col("carrier").alias("tags"),
    )


def run_available(spark: SparkSession, places: Places) -> None:
    """Go on with what is new in the topic, into both tables, and return when it is done."""
    source = spark.readStream.format("rocketmq").option("nameServer", places.name_server)
    source = source.option("subscribe", places.topic).option("startingOffsets", "earliest")
    windows = means(source.load())
    to_files = (
        windows.writeStream.format("parquet")
        .option("path", places.means)
        .option("checkpointLocation", f"{places.folder}/means.checkpoint")
    )
    to_topic = (
        as_messages(windows)
        .writeStream.format("rocketmq")
        .option("nameServer", places.name_server)
        .option("topic", places.means_topic)
        .option("checkpointLocation", f"{places.folder}/messages.checkpoint")
    )
    for writer in (to_files, to_topic):
        if SPARK_ADMITS:
            writer.trigger(availableNow=True).start().awaitTermination()
            continue
        # Before PySpark 4.2 that is one micro-batch, after which no window would be closed.
        query = writer.start()
        query.processAllAvailable()
        query.stop()
