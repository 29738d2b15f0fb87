"""What `scripts/bench --only spark` measures: rows a second of our source beside Spark's Kafka one.

One topic of one queue (Kafka: one partition) of the same bodies is read into nothing by 1, 2 and 4
tasks: from a Kafka broker, through our broker, and from our broker's files, in turns. Brokers work
on the same cores as the tasks. Each time is that of a whole query, with what Spark takes to plan
and to start it; two queries of each kind to warm up come before. The processor time is that of
Spark, of its Python workers and of the broker that is read: what other work on the machine leaves
alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from ..client import Message, Producer
from ..harness import kafka_side
from ..harness.clusters import BROKER_NAME, AerobeeCluster
from ..harness.java_side import JavaMissing
from .loads import loadgen
from .report import Held, Row, held
from .turns import Run, command, cpu_seconds, descendants, resident_mib, running, say

SIZES = ((128, 2_000_000), (1024, 600_000))  # bytes of a body, rows
TASKS = (1, 2, 4)
CORES = 2
ROWS_MARK = ">= 500,000"  # a second, at 128 bytes through the broker
WARM_UPS = 2  # queries of a kind whose times don't count: Java compiles what it runs often
IN_A_CALL = 2_000  # messages handed to the producer, which cuts them into requests
PART = 10  # of a topic, whose memory is compared with that of the whole
FIXED_SIZE = 256  # the body of the one message of a topic: what a query costs before its rows
FIXED_QUERIES = 20  # of each kind, in turns, when all is warm
FIXED_MARK = "<= 0.4"  # s
GROWTH_MIB_MAX = 32  # of a worker, from the part to the whole
PATTERN = bytes(range(128))
KAFKA, BROKER, FILES = "from Kafka", "through the broker", "from its files"


@dataclass
class Taken:
    """The costs of the queries of one kind: seconds and processor seconds of each."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def rate(self, rows: int) -> float:
        """Rows a second, without the queries that warmed up."""
        return rows / statistics.median(self.seconds[WARM_UPS:])

    def micros(self, rows: int) -> float:
        """Microseconds of processor time a row."""
        return statistics.median(self.processor[WARM_UPS:]) / rows * 1e6


class Place:
    """The source of rows: `load` gives the table of a size and a number of tasks."""

    def __init__(self, name: str, broker_pid: int, load: Callable[[int, int], Any]) -> None:
        self.name = name
        self.broker_pid = broker_pid
        self.load = load

    def query(self, size: int, tasks: int, taken: Taken) -> None:
        """Read the whole topic once."""
        rows = self.load(size, tasks)
        before, begin = self._processor_seconds(), time.monotonic()
        rows.write.format("noop").mode("overwrite").save()
        taken.seconds.append(time.monotonic() - begin)
        taken.processor.append(self._processor_seconds() - before)

    def _processor_seconds(self) -> float:
        return cpu_seconds([*descendants(os.getpid()), self.broker_pid], with_children=True)


def source(run: Run) -> list[Row]:
    """A row for each size, place and number of tasks; JavaMissing without Spark or Kafka."""
    if find_spec("pyspark") is None:
        raise JavaMissing('pyspark is not installed; run pip install ".[fast,spark]"')
    from ..spark import register
    from ..spark.session import session

    sizes = [(size, int(count * run.scale)) for size, count in SIZES]
    filled = [*sizes, (FIXED_SIZE, 1)]
    kafka, cluster = kafka_side.KafkaBroker(run.folder / "kafka"), run.ours()
    jars = ",".join(map(str, sorted(kafka_side.jars("source").glob("*.jar"))))
    with ExitStack() as stack:
        stack.callback(kafka.stop)
        kafka.start()
        stack.enter_context(running(cluster))
        for size, count in filled:
            loadgen.create_topic(cluster.broker, _topic(size), queues=1)
            asyncio.run(_fill(cluster.namesrv, _topic(size), size, count))
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {jars} pyspark-shell"
        with session("aerobee bench", f"local[{CORES}]") as spark:
            register(spark)
            for size, count in filled:
                _fill_kafka(spark, kafka.address, size, count)
            # First, while the workers have read nothing else.
            memory = [_memory(spark, cluster, *each) for each in sizes]
            places = _places(spark, kafka, cluster)
            rows = [row for each in sizes for row in _rows(places, *each, run.rounds)]
            return [*rows, *_fixed(places), *memory]


def _places(spark: Any, kafka: kafka_side.KafkaBroker, cluster: AerobeeCluster) -> list[Place]:
    def from_kafka(size: int, tasks: int) -> Any:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.address)
        return reader.option("subscribe", _topic(size)).option("minPartitions", str(tasks)).load()

    def ours(size: int, tasks: int, **more: str) -> Any:
        reader = spark.read.format("rocketmq").option("nameServer", cluster.namesrv)
        reader = reader.option("subscribe", _topic(size)).option("minPartitions", str(tasks))
        return reader.options(**more).load()

    def from_files(size: int, tasks: int) -> Any:
        return ours(size, tasks, storePath=str(cluster.store))

    pid = cluster.broker_pid()
    return [
        Place(KAFKA, kafka.pid(), from_kafka),
        Place(BROKER, pid, ours),
        Place(FILES, pid, from_files),
    ]


def _taken(places: list[Place], size: int, tasks: int, rounds: int) -> dict[str, Taken]:
    taken = {place.name: Taken() for place in places}
    for _ in range(rounds + WARM_UPS):
        for place in places:
            place.query(size, tasks, taken[place.name])
    return taken


def _rows(places: list[Place], size: int, count: int, rounds: int) -> list[Held]:
    found: list[Held] = []
    best = 0.0
    for tasks in TASKS:
        taken = _taken(places, size, tasks, rounds)
        kafka = taken[KAFKA].rate(count)
        for name, each in taken.items():
            rate = each.rate(count)
            note = f"{rate * size / 1e6:,.0f} MB/s of bodies, {each.micros(count):.2f} us a row"
            if name != KAFKA:
                note = f"{rate / kafka:.2f} times Kafka's, {note}"
            title = f"{size} B {name}, {tasks} {'task' if tasks == 1 else 'tasks'}, rows a second"
            say(f"{title}: {rate:,.0f}, {note}")
            is_held = name == BROKER
            wanted = ">= Kafka's" if is_held else ""
            found.append(Held(title, f"{rate:,.0f}", wanted, not is_held or rate >= kafka, note))
        best = max(best, taken[BROKER].rate(count))
    if size == SIZES[0][0]:
        found.append(held(f"{size} B {BROKER}, the best of these", best, "{:,.0f}", ROWS_MARK))
    return found


def _fixed(places: list[Place]) -> list[Held]:
    """The fixed cost of a warm query: it reads one row."""
    found = []
    for name, each in _taken(places, FIXED_SIZE, CORES, FIXED_QUERIES).items():
        seconds, processor = 1 / each.rate(1), each.micros(1) / 1e6
        title, note = (
            f"a query that reads one row {name}, seconds",
            f"{processor:.2f} s of processor time",
        )
        say(f"{title}: {seconds:.2f}, {note}")
        found.append(held(title, seconds, "{:.2f}", FIXED_MARK if name == BROKER else "", note))
    return found


def _memory(spark: Any, cluster: AerobeeCluster, size: int, count: int) -> Held:
    """The memory of a Python worker that has read a part of a topic, and then all of it."""
    topic, peaks = _topic(size), []
    for rows in (count // PART, count):
        ending = json.dumps({topic: {f"{BROKER_NAME}:0": rows}})
        reader = spark.read.format("rocketmq").option("nameServer", cluster.namesrv)
        reader = reader.option("subscribe", topic).option("endingOffsets", ending)
        reader.load().write.format("noop").mode("overwrite").save()
        workers = [pid for pid in descendants(os.getpid()) if b"pyspark.daemon" in command(pid)]
        peaks.append(max(resident_mib(pid)["VmHWM"] for pid in workers))
        say(f"worker after {rows:,} rows: {peaks[-1]:,.0f} MiB at most")
    part, whole = peaks
    return Held(
        f"a Python worker's memory at most, after {count // PART:,} rows of {size} B and after"
        f" {count:,}, MiB",
        f"{part:,.0f}, {whole:,.0f}",
        f"< {GROWTH_MIB_MAX} more",
        whole - part < GROWTH_MIB_MAX,
    )


def _fill_kafka(spark: Any, address: str, size: int, count: int) -> None:
    from pyspark.sql import functions as F

    body = F.lit(PATTERN * (size // len(PATTERN))).alias("value")
    writer = spark.range(0, count, 1, 1).select(body).write.format("kafka")
    writer.option("kafka.bootstrap.servers", address).option("topic", _topic(size)).save()


async def _fill(name_server: str, topic: str, size: int, count: int) -> None:
    body = PATTERN * (size // len(PATTERN))
    async with Producer(name_server, group="bench") as producer:
        for at in range(0, count, IN_A_CALL):
            some = [Message(topic, body) for _ in range(min(IN_A_CALL, count - at))]
            await producer.send_batch(some)


def _topic(size: int) -> str:
    return f"Rows{size}"
