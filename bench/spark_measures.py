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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..client import Message, Producer
from ..harness import kafka_side
from ..harness.clusters import BROKER_NAME, AerobeeCluster
from ..harness.java_side import JavaMissing
from .loads import loadgen
from .measures import Say
from .store_measures import Held

SIZES = ((128, 2_000_000), (1024, 600_000))  # bytes of a body, rows
TASKS = (1, 2, 4)
CORES = 2
ROWS_MIN = 500_000  # a second, at 128 bytes through the broker
WARM_UPS = 2  # queries of a kind whose times don't count: Java compiles what it runs often
IN_A_CALL = 2_000  # messages handed to the producer, which cuts them into requests
PART = 10  # of a topic, whose memory is compared with that of the whole
FIXED_SIZE = 256  # the body of the one message of a topic: what a query costs before its rows
FIXED_QUERIES = 20  # of each kind, in turns, when all is warm
FIXED_SECONDS_MAX = 0.4
GROWTH_MIB_MAX = 32  # of a worker, from the part to the whole
PATTERN = bytes(range(128))
KAFKA, BROKER, FILES = "from Kafka", "through the broker", "from its files"


@dataclass
class Taken:
    """What the queries of one kind took, each with seconds and processor seconds."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def rate(self, rows: int) -> float:
        """Rows a second, without the queries that warmed up."""
        return rows / statistics.median(self.seconds[WARM_UPS:])

    def micros(self, rows: int) -> float:
        """Microseconds of processor time a row."""
        return statistics.median(self.processor[WARM_UPS:]) / rows * 1e6


class Place:
    """Where rows are read from: `load` gives the table of a size and a number of tasks."""

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
        spent = sum(map(processor_seconds, descendants(os.getpid())))
        return spent + processor_seconds(self.broker_pid)


def source(folder: Path, rounds: int, scale: float, say: Say) -> list[Held]:
    """A row for each size, place and number of tasks; JavaMissing without Spark or Kafka."""
    if find_spec("pyspark") is None:
        raise JavaMissing('pyspark is not installed; run pip install ".[fast,spark]"')
    from ..spark import register
    from ..spark.session import session

    sizes = [(size, int(count * scale)) for size, count in SIZES]
    filled = [*sizes, (FIXED_SIZE, 1)]
    kafka, cluster = kafka_side.KafkaBroker(folder / "kafka"), AerobeeCluster(folder / "ours")
    jars = ",".join(map(str, sorted(kafka_side.jars("source").glob("*.jar"))))
    try:
        kafka.start()
        cluster.start()
        for size, count in filled:
            loadgen.create_topic(cluster.broker, _topic(size), queues=1)
            asyncio.run(_fill(cluster.namesrv, _topic(size), size, count))
        with (
            _submitted("--jars", jars),
            session("aerobee bench", f"local[{CORES}]") as spark,
        ):
            register(spark)
            for size, count in filled:
                _fill_kafka(spark, kafka.address, size, count)
            # First, while the workers have read nothing else.
            memory = [_memory(spark, cluster, each, say) for each in sizes]
            places = _places(spark, kafka, cluster)
            rows = [row for size, count in sizes for row in _rows(places, size, count, rounds, say)]
            return rows + _fixed(places, say) + memory
    finally:
        cluster.stop()
        kafka.stop()


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


def _rows(places: list[Place], size: int, count: int, rounds: int, say: Say) -> list[Held]:
    found: list[Held] = []
    rates: dict[str, list[float]] = {place.name: [] for place in places}
    for tasks in TASKS:
        taken = {place.name: Taken() for place in places}
        for _ in range(rounds + WARM_UPS):
            for place in places:
                place.query(size, tasks, taken[place.name])
        kafka = taken[KAFKA]
        for name, each in taken.items():
            rate = each.rate(count)
            rates[name].append(rate)
            note = f"{rate * size / 1e6:,.0f} MB/s of bodies, {each.micros(count):.2f} us a row"
            if name != KAFKA:
                note = f"{rate / kafka.rate(count):.2f} times Kafka's, {note}"
            say(f"{size} B {name}, {tasks} tasks: {rate:,.0f} rows/s, {note}")
            is_held = name == BROKER
            found.append(
                Held(
                    f"{size} B {name}, {tasks} {'task' if tasks == 1 else 'tasks'}, rows a second",
                    f"{rate:,.0f}",
                    ">= Kafka's" if is_held else "",
                    rate >= kafka.rate(count) if is_held else True,
                    note,
                )
            )
    if size == SIZES[0][0]:
        best = max(rates[BROKER])
        found.append(
            Held(
                f"{size} B {BROKER}, the best of these",
                f"{best:,.0f}",
                f">= {ROWS_MIN:,}",
                best >= ROWS_MIN,
            )
        )
    return found


def _fixed(places: list[Place], say: Say) -> list[Held]:
    """What a warm query costs however few rows it reads: it reads one."""
    taken = {place.name: Taken() for place in places}
    for _ in range(FIXED_QUERIES + WARM_UPS):
        for place in places:
            place.query(FIXED_SIZE, CORES, taken[place.name])
    found = []
    for name, each in taken.items():
        seconds = statistics.median(each.seconds[WARM_UPS:])
        processor = statistics.median(each.processor[WARM_UPS:])
        note = f"{processor:.2f} s of processor time"
        say(f"one row {name}: {seconds:.2f} s, {note}")
        is_held = name == BROKER
        found.append(
            Held(
                f"a query that reads one row {name}, seconds",
                f"{seconds:.2f}",
                f"<= {FIXED_SECONDS_MAX}" if is_held else "",
                seconds <= FIXED_SECONDS_MAX if is_held else True,
                note,
            )
        )
    return found


def _memory(spark: Any, cluster: AerobeeCluster, size: tuple[int, int], say: Say) -> Held:
    """The memory of a Python worker that has read a part of a topic, and then all of it."""
    topic, count = _topic(size[0]), size[1]
    peaks = []
    for rows in (count // PART, count):
        ending = json.dumps({topic: {f"{BROKER_NAME}:0": rows}})
        reader = spark.read.format("rocketmq").option("nameServer", cluster.namesrv)
        reader = reader.option("subscribe", topic).option("endingOffsets", ending)
        reader.load().write.format("noop").mode("overwrite").save()
        workers = [pid for pid in descendants(os.getpid()) if _is_worker(pid)]
        peaks.append(max(map(_peak_mib, workers)))
        say(f"worker after {rows:,} rows: {peaks[-1]:,.0f} MiB at most")
    part, whole = peaks
    return Held(
        f"a Python worker's memory at most, after {count // PART:,} rows of {size[0]} B and after"
        f" {count:,}, MiB",
        f"{part:,.0f}, {whole:,.0f}",
        f"< {GROWTH_MIB_MAX} more",
        whole - part < GROWTH_MIB_MAX,
    )


def descendants(pid: int) -> list[int]:
    """The processes below this one, however deep."""
    parents: dict[int, list[int]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal() and (fields := _stat(int(each.name))):
            parents.setdefault(int(fields[1]), []).append(int(each.name))
    found, left = [], [pid]
    while left:
        below = parents.get(left.pop(), [])
        found += below
        left += below
    return found


def processor_seconds(pid: int) -> float:
    """What a process and those it has waited for have used; 0 when it is gone."""
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _stat(pid: int) -> list[str]:
    """The fields of a process from its state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _is_worker(pid: int) -> bool:
    try:
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _peak_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


@contextmanager
def _submitted(*words: str) -> Iterator[None]:
    """Spark starts with these words while the block runs."""
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join((*words, "pyspark-shell"))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYSPARK_SUBMIT_ARGS"]
        else:
            os.environ["PYSPARK_SUBMIT_ARGS"] = before


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
