"""Replays flights by their time through a topic and the job; the test of it reads what this prints.

python flights_program.py NAME_SERVER FOLDER FLIGHTS

The flights come in two parts, each in the order of time, and a last one a month later, which closes
all windows before it.
"""

import asyncio
import json
import os
import sys
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

from aerobee.spark import register
from aerobee.spark.jobs.flight_windows import Places, run_available
from aerobee.tools.demo import TOPIC, create_topic, publish, read_flights
from pyspark.sql import SparkSession

MEANS_TOPIC = "means"


def main(name_server: str, folder: str, count: int) -> None:
    import pandas

    flights = read_flights(count).sort_values("time_hour", kind="stable")
    last = flights.tail(1).copy()
    later = pandas.to_datetime(last["time_hour"]) + pandas.Timedelta(days=30)
    last["time_hour"] = later.dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    half = len(flights) // 2

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .getOrCreate()
    )
    register(spark)
    places = Places(name_server, TOPIC, folder, MEANS_TOPIC)
    asyncio.run(create_topic(name_server))
    found: dict[str, Any] = {}
    for name, part in (
        ("first", flights.head(half)),
        ("second", pandas.concat([flights.tail(len(flights) - half), last])),
    ):
        asyncio.run(publish(name_server, part))
        run_available(spark, places)
        found[name] = spark.read.parquet(places.means).count()
    found["files"] = [
        [row.begin.strftime("%Y-%m-%d"), row.carrier, row.origin, row.departed, row.mean_minutes]
        for row in spark.read.parquet(places.means).collect()
    ]
    messages = spark.read.format("rocketmq").option("nameServer", name_server)
    rows = messages.option("subscribe", MEANS_TOPIC).load().select("key", "tags", "value").collect()
    found["messages"] = [[row.key, row.tags, json.loads(bytes(row.value))] for row in rows]
    print("FOUND " + json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
