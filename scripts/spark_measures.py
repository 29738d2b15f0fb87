"""What `scripts/bench --only spark` measures: rows a second of the data source, read into nothing.

A topic of one queue is read by 1, 2 and 4 tasks at two places each: through a broker, which then
works on the same cores as the tasks, and from its files. Each time is that of a whole query, with
what Spark takes to plan and to start it; a query to warm up comes before.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..client import Message, Producer
from . import loadgen
from .clusters import AerobeeCluster
from .java_side import JavaMissing
from .measures import Say
from .store_measures import Held

SIZES = ((128, 1_000_000), (1024, 400_000))  # bytes of a body, rows
PARTITIONS = (1, 2, 4)
CORES = 2
ROWS_MIN = 500_000  # a second, at 128 bytes through the broker
IN_A_CALL = 2_000  # messages handed to the producer, which cuts them into requests


def source(folder: Path, rounds: int, scale: float, say: Say) -> list[Held]:
    """A row for each size, place and number of tasks; the best one at 128 B has a mark."""
    if find_spec("pyspark") is None:
        raise JavaMissing('pyspark is not installed; run pip install ".[fast,spark]"')
    from ..spark.session import session

    cluster = AerobeeCluster(folder / "ours")
    cluster.start()
    try:
        for size, count in SIZES:
            loadgen.create_topic(cluster.broker, _topic(size), queues=1)
            asyncio.run(_fill(cluster.namesrv, _topic(size), size, int(count * scale)))
        with session("aerobee bench", f"local[{CORES}]") as spark:
            return [
                row
                for size, count in SIZES
                for row in _rows(spark, cluster, size, int(count * scale), rounds, say)
            ]
    finally:
        cluster.stop()


def _rows(
    spark: Any, cluster: AerobeeCluster, size: int, count: int, rounds: int, say: Say
) -> list[Held]:
    from ..spark import register

    register(spark)
    found: list[Held] = []
    for store, place in ((None, "through the broker"), (str(cluster.store), "from its files")):
        rates = {}
        for tasks in PARTITIONS:
            seconds = [
                _query(spark, cluster.namesrv, _topic(size), tasks, store)
                for _ in range(rounds + 1)
            ]
            rates[tasks] = count / statistics.median(seconds[1:])
            say(f"{size} B {place}, {tasks} tasks: {rates[tasks]:,.0f} rows/s")
        best = max(rates.values())
        for tasks, rate in rates.items():
            is_held = size == SIZES[0][0] and store is None and rate == best
            found.append(
                Held(
                    f"{size} B {place}, {tasks} {'task' if tasks == 1 else 'tasks'}, rows a second",
                    f"{rate:,.0f}",
                    f">= {ROWS_MIN:,}" if is_held else "",
                    rate >= ROWS_MIN if is_held else True,
                    f"{rate * size / 1e6:,.0f} MB/s of bodies",
                )
            )
    return found


def _query(spark: Any, name_server: str, topic: str, tasks: int, store: str | None) -> float:
    """Seconds that it takes to read the whole topic."""
    reader = spark.read.format("rocketmq").option("nameServer", name_server)
    reader = reader.option("subscribe", topic).option("minPartitions", str(tasks))
    if store is not None:
        reader = reader.option("storePath", store)
    begin = time.monotonic()
    reader.load().write.format("noop").mode("overwrite").save()
    return time.monotonic() - begin


async def _fill(name_server: str, topic: str, size: int, count: int) -> None:
    body = bytes(range(128)) * (size // 128)
    async with Producer(name_server, group="bench") as producer:
        for at in range(0, count, IN_A_CALL):
            some = [Message(topic, body) for _ in range(min(IN_A_CALL, count - at))]
            await producer.send_batch(some)


def _topic(size: int) -> str:
    return f"Rows{size}"
