"""The mean departure delay of each carrier, from flights that were sent as messages.

Reads the Parquet files that `aerobee ingest` writes; each message is one flight as a JSON object,
its tag the carrier.
"""

from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.functions import avg, col, count, from_json

FLIGHT = "carrier string, dep_delay double"


class CarrierDelay(NamedTuple):
    """One carrier: its flights, and the mean delay in minutes of the flights that departed."""

    carrier: str
    flights: int
    mean_minutes: float


def delays_by_carrier(spark: SparkSession, folder: str) -> list[CarrierDelay]:
    """The carriers in order of their names."""
    flights = spark.read.parquet(folder).select(
        col("tags"), from_json(col("value").cast("string"), FLIGHT).alias("flight")
    )
    means = (
        flights.where("tags = flight.carrier")
        .groupBy("flight.carrier")
        .agg(count("*").alias("flights"), avg("flight.dep_delay").alias("mean"))
        .orderBy("carrier")
    )
    return [CarrierDelay(row.carrier, row.flights, row["mean"]) for row in means.collect()]
