"""What `scripts/bench --only lake` measures: how fast, how fresh and how large a lake is.

Rates are MB of bodies a second of the copier's processor time, which other work on the machine
leaves alone: a topic of four queues is copied into a new table, all of its columns, from the
broker's files and by pulls in turns. The age of a row is the time from its send to the moment at
which a reader of the catalog sees the snapshot that has it.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..client import Message, Producer
from ..client.base.security import OPEN
from ..harness.child import Child
from ..harness.clusters import BROKER_NAME, AerobeeCluster
from ..harness.java_side import JavaMissing
from ..lake.rows.columns import row_columns
from .loads import loadgen
from .rates import SENDS
from .report import Held, Row, held
from .turns import (
    COMMAND,
    Result,
    Run,
    broker_pids,
    in_turns,
    median,
    repeating,
    resident_mib,
    running,
    say,
)

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.manifest import ManifestEntryStatus

    from ..lake.catalog import LakeCatalog, table_name
    from ..lake.materializer import Materializer
    from ..lake.opening import open_catalog, open_log
    from ..lake.service import materializer
    from ..lake.settings import LakeSettings, TableSettings, write
    from ..lake.topic_log import TopicLog
except ImportError:
    HAS_LAKE = False
else:
    HAS_LAKE = True

SIZES = {128: (400_000, ">= 100"), 1024: (100_000, ">= 200")}  # of a body: messages, MB/s wanted
FILES, PULLS = "from the broker's files", "by pulls"
IN_A_CALL = 2_000  # messages handed to the producer, which cuts them into requests
RATE = 10_000  # messages a second whose rows are to be fresh
TICK_SECONDS = 0.05
AGES = {1.0: (20, 3), 10.0: (60, 12)}  # seconds between commits: of the load, wanted at p99
LOOK_SECONDS = 0.1  # between two looks at the catalog
CAUGHT_UP_SECONDS = 120
BESIDE = 3  # times the load of the part of the rates
TOPICS, TOPICS_SECONDS, TOPICS_MIB = 100, 60, 400
READY_SECONDS = 60
BASE_NAMES = [column.name for column in row_columns()]
SCANNED = 10_000_000  # messages that Spark reads
CORES = 2  # of Spark
SPARK_QUERIES: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "the columns of Kafka's source": (">= 10", "kafka", lambda rows: rows.select(*BASE_NAMES)),
    "all columns": ("", "full", lambda rows: rows),
    "a count by tag": ("", "kafka", lambda rows: rows.groupBy("tags").count()),
}
ASKED = (10_000_000, 1_000_000)  # messages in the table, and behind it


def lake(run: Run) -> list[Row]:
    """A row for each figure; JavaMissing without pyiceberg."""
    if not HAS_LAKE:
        raise JavaMissing('pyiceberg is not installed; run pip install ".[fast,lake]"')
    rows: list[Row] = []
    ours = run.ours()
    with running(ours):
        for size, (count, wanted) in SIZES.items():
            rows += _rates(run, ours, size, int(count * run.scale), wanted)
        rows += [_age(run, ours, seconds, *given) for seconds, given in AGES.items()]
        rows.append(_sends(run, ours))
        rows.append(_memory(run, ours))
        rows += _queries(run, ours)
        rows += _spark(run, ours)
    return rows


def _rates(run: Run, ours: AerobeeCluster, size: int, count: int, wanted: str) -> list[Row]:
    """MB of bodies a second of processor time."""
    topic = f"Rows{size}"
    loadgen.create_topic(ours.broker, topic)
    asyncio.run(_fill(ours.namesrv, topic, size, count))
    catalog = open_catalog(_settings(run.folder / "rates", ours))
    sides = {
        FILES: TopicLog(ours.namesrv, stores={BROKER_NAME: ours.store}),
        PULLS: TopicLog(ours.namesrv),
    }

    def once(source: TopicLog, number: int) -> Result:
        name = f"{topic}_{number}_{id(source)}"
        catalog.create(name, topic)
        copier = Materializer(catalog, source, topic, name)
        begin, before = time.monotonic(), time.process_time()
        rows = 0
        while True:
            done = copier.copy()
            rows += done.rows
            if not done.is_behind:
                break
        processor = time.process_time() - before
        return {
            "msgs_per_s": rows / (time.monotonic() - begin),
            "mb": rows * size / processor / 1e6,
            "us": processor / rows * 1e6,
        }

    found = in_turns(run, f"{size} B into a table", sides, once)
    for each in sides.values():
        each.close()
    return [
        held(
            f"{size} B {how}, MB of bodies a second of processor time",
            median(results, "mb"),
            "{:.0f}",
            wanted if how == FILES else "",
            f"{median(results, 'us'):.2f} us a row",
        )
        for how, results in found.items()
    ]


def _age(run: Run, ours: AerobeeCluster, every: float, seconds: int, wanted: int) -> Held:
    """The age of rows when they are seen first, at a steady rate of sends."""
    topic = f"Ages{every:.0f}"
    loadgen.create_topic(ours.broker, topic)
    seconds = max(3 * int(every), int(seconds * run.scale))
    with _lake(run, ours, [topic], every) as (_, catalog):
        seen: dict[int, float] = {}

        def look(_: object) -> None:
            snapshot = catalog.load(table_name(topic), topic).metadata.current_snapshot()
            if snapshot is not None:
                seen.setdefault(snapshot.snapshot_id, time.time())

        with repeating(look, LOOK_SECONDS):
            sent = asyncio.run(_steady(ours.namesrv, topic, seconds))
            _wait_copied(catalog, topic, sent)
    ages = _ages(catalog, topic, seen)
    if len(ages) != sent:
        raise loadgen.LoadFailed(f"{len(ages)} of {sent} sent messages are in the table")
    p50, p99 = np.percentile(ages, (50, 99))
    name = f"A row is seen, commits each {every:.0f} s, {RATE:,} messages/s, p99 after its send"
    say(f"{name}: {p99:.2f} s")
    note = f"median {p50:.2f} s, {len(seen)} commits, {sent / seconds:,.0f} messages/s"
    return held(name, p99, "{:.2f} s", f"<= {wanted} s", note)


def _ages(catalog: LakeCatalog, topic: str, seen: dict[int, float]) -> list[float]:
    """For each row the seconds from its send to the first look that saw a snapshot with it."""
    table = catalog.load(table_name(topic), topic)
    ages: list[float] = []
    known = 0.0  # snapshots come in the order of their looks; one not seen counts as the next
    for snapshot in reversed(table.metadata.snapshots):
        known = seen.get(snapshot.snapshot_id, known)
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(table.io):
                if (
                    entry.snapshot_id == snapshot.snapshot_id
                    and entry.status is ManifestEntryStatus.ADDED
                ):
                    path = entry.data_file.file_path.removeprefix("file://")
                    born = pq.read_table(path, columns=["bornTimestamp"])
                    sent = born.column(0).cast(pa.int64()).to_numpy() / 1e6
                    ages += (known - sent).tolist()
    return ages


def _sends(run: Run, ours: AerobeeCluster) -> Held:
    """Sends to a topic that is copied, beside sends while no lake runs."""
    load = run.load(SENDS)
    load = replace(load, count=BESIDE * load.count)
    behind: list[float] = []
    topics = {"without": "Alone", "beside": "Copied"}
    for topic in topics.values():
        loadgen.create_topic(ours.broker, topic)

    def once(kind: str, number: int) -> Result:
        topic = topics[kind]
        if kind == "without":
            return loadgen.run(run.program, ours.broker, topic, load)
        with _lake(run, ours, [topic], 1.0) as (_, catalog):
            result = loadgen.run(run.program, ours.broker, topic, load)
            begin = time.monotonic()
            _wait_copied(catalog, topic, loadgen.stored(ours.broker, topic))
            behind.append(time.monotonic() - begin)
        return result

    kinds = {kind: kind for kind in topics}
    found = in_turns(run, load.name, kinds, once, lambda _: broker_pids(ours))
    without, beside = (median(found[kind], "msgs_per_s") for kind in topics)
    note = (
        f"{beside:,.0f} of {without:,.0f} messages/s; all were in the table "
        f"{max(behind):.1f} s after the last at most"
    )
    name = f"{load.name} beside a lake that copies them each second, part of the rate without"
    return held(name, beside / without, "{:.2f}", ">= 0.7", note)


def _memory(run: Run, ours: AerobeeCluster) -> Held:
    """The memory of a lake with many topics that all have traffic."""
    topics = [f"Many{number}" for number in range(TOPICS)]
    with loadgen.connected(ours.broker) as connection:
        loadgen.create_topics(connection, topics, 4)
    seconds = max(20, int(TOPICS_SECONDS * run.scale))
    with _lake(run, ours, topics, 10.0) as (process, catalog):
        sent = asyncio.run(_each(ours.namesrv, topics, seconds))
        for topic in topics:
            _wait_copied(catalog, topic, sent)
        memory = resident_mib(process.pid)
    name = f"Memory of a lake with {TOPICS} topics, resident at most, MiB"
    note = f"{memory['VmRSS']:,.0f} MiB at the end, {sent * TOPICS / seconds:,.0f} messages/s"
    say(f"{name}: {memory['VmHWM']:,.0f}")
    return held(name, memory["VmHWM"], "{:,.0f}", f"<= {TOPICS_MIB}", note)


def _queries(run: Run, ours: AerobeeCluster) -> list[Held]:
    """How long `aerobee sql` takes from its start to its end, for a large topic and a small one."""
    sizes = {"Asked": [int(each * run.scale) for each in ASKED], "Small": [100, 100]}
    settings = _settings(run.folder / "asked", ours, [TableSettings(topic=each) for each in sizes])
    path = run.folder / "asked" / "lake.yaml"
    write(path, settings)
    for topic, (in_table, live) in sizes.items():
        _filled_table(run, ours, settings, topic, in_table)
        loadgen.fill(run.program, ours.broker, topic, live)
    queries = {
        "Asked": 'select "queueId", count(*), max("offset") from "Asked" group by 1 order by 1',
        "Small": 'select count(*) from "Small"',
    }

    def once(topic: str, _: int) -> Result:
        words = [*COMMAND, "sql", queries[topic], "--config", str(path)]
        begin = time.monotonic()
        subprocess.run(  # noqa: S603 - our own command
            words, check=True, capture_output=True, timeout=CAUGHT_UP_SECONDS
        )
        return {"msgs_per_s": sum(sizes[topic]) / (taken := time.monotonic() - begin), "s": taken}

    found = in_turns(run, "aerobee sql", dict(zip(sizes, sizes, strict=True)), once)
    large, live = sizes["Asked"]
    return [
        held(
            f"aerobee sql, count and group of {large:,} rows and {live:,} live messages",
            median(found["Asked"], "s"),
            "{:.2f} s",
            "<= 3 s",
        ),
        held("aerobee sql, a small topic", median(found["Small"], "s"), "{:.2f} s", "<= 1 s"),
    ]


def _spark(run: Run, ours: AerobeeCluster) -> list[Row]:
    """Rows a second of Spark: out of a table, and of the source that reads the same messages."""
    if find_spec("pyspark") is None:
        raise JavaMissing('pyspark is not installed; run pip install ".[fast,lake,spark]"')
    from ..spark import read_table, register
    from ..spark.session import session

    count, topic = int(SCANNED * run.scale), "Scanned"
    settings = _settings(run.folder / "scanned", ours, [TableSettings(topic=topic)])
    path = run.folder / "scanned" / "lake.yaml"
    write(path, settings)
    _filled_table(run, ours, settings, topic, count)
    with session("aerobee bench", f"local[{CORES}]") as spark:
        register(spark)

        source = spark.read.format("rocketmq").option("nameServer", ours.namesrv)
        source = source.option("subscribe", topic)

        def sides(schema: str, query: Callable[[Any], Any]) -> dict[str, Callable[[], Any]]:
            return {
                "the table": lambda: query(read_table(spark, topic, config=path)),
                "the log": lambda: query(source.option("rowSchema", schema).load()),
            }

        return [
            _scan(run, count, what, wanted, sides(schema, query))
            for what, (wanted, schema, query) in SPARK_QUERIES.items()
        ]


def _scan(
    run: Run, count: int, what: str, wanted: str, sides: dict[str, Callable[[], Any]]
) -> Held:
    """The rate out of a table as so many times that out of the log."""

    def once(rows: Callable[[], Any], _: int) -> Result:
        begin = time.monotonic()
        rows().write.format("noop").mode("overwrite").save()
        return {"msgs_per_s": count / (time.monotonic() - begin)}

    for rows in sides.values():  # Java compiles what runs often
        once(rows, 0)
    found = in_turns(run, f"Spark, {what} of {count:,} rows of 128 B", sides, once)
    table, log = (median(found[name], "msgs_per_s") for name in sides)
    name = f"Spark, {what} of {count:,} rows of 128 B, out of a table, times the source's rate"
    note = f"{table:,.0f} and {log:,.0f} rows/s on {CORES} cores"
    return held(name, table / log, "{:.1f}", wanted, note)


def _filled_table(
    run: Run, ours: AerobeeCluster, settings: LakeSettings, topic: str, count: int
) -> None:
    """A topic with messages of 128 B that are all in its table."""
    catalog, source = open_catalog(settings), open_log(settings, OPEN)
    loadgen.create_topic(ours.broker, topic)
    loadgen.fill(run.program, ours.broker, topic, count)
    catalog.create(table_name(topic), topic)
    entry = settings.entry_of(topic)
    assert entry is not None
    copier = materializer(catalog, source, topic, entry)
    while copier.copy().is_behind:
        pass
    source.close()


@contextmanager
def _lake(
    run: Run, ours: AerobeeCluster, topics: list[str], every: float
) -> Iterator[tuple[Child, LakeCatalog]]:
    """A running `aerobee lake run` of these topics, from the broker's files, and its catalog."""
    folder = run.folder / f"lake-{topics[0]}"
    settings = _settings(
        folder, ours, [TableSettings(topic=t, commit_seconds=every) for t in topics]
    )
    catalog = open_catalog(settings)
    for topic in topics:
        catalog.create(table_name(topic), topic)
    path = folder / "lake.yaml"
    write(path, settings)
    with run.command("lake", "lake", "run", "--config", str(path)) as process:
        process.wait_line(lambda line: "is ready" in line, READY_SECONDS)
        yield process, catalog
        process.stop()


def _settings(
    folder: Path, ours: AerobeeCluster, tables: list[TableSettings] | None = None
) -> LakeSettings:
    folder.mkdir(exist_ok=True)
    return LakeSettings(
        place=str(folder / "tables"),
        namesrv_addr=ours.namesrv,
        catalog={"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}"},
        stores={BROKER_NAME: str(ours.store)},
        tables=tuple(tables or ()),
    )


def _wait_copied(catalog: LakeCatalog, topic: str, count: int) -> None:
    """Wait until the table of a topic has this number of rows; LoadFailed after a long wait."""
    deadline = time.monotonic() + CAUGHT_UP_SECONDS
    while True:
        snapshot = catalog.load(table_name(topic), topic).metadata.current_snapshot()
        rows = int(snapshot.summary["total-records"] or 0) if snapshot and snapshot.summary else 0
        if rows >= count:
            return
        if time.monotonic() > deadline:
            raise loadgen.LoadFailed(f"the table of {topic} has {rows} of {count} messages")
        time.sleep(LOOK_SECONDS)


async def _fill(name_server: str, topic: str, size: int, count: int) -> None:
    """Send messages with keys and tags, whose bodies are text that repeats itself in part."""
    async with Producer(name_server, group="bench") as producer:
        for at in range(0, count, IN_A_CALL):
            numbers = range(at, min(count, at + IN_A_CALL))
            await producer.send_batch([_message(topic, number, size) for number in numbers])


async def _steady(name_server: str, topic: str, seconds: int) -> int:
    """Send RATE messages a second; their number."""
    each = int(RATE * TICK_SECONDS)
    async with Producer(name_server, group="bench") as producer:
        begin, sent = time.monotonic(), 0
        while sent < RATE * seconds:
            await producer.send_batch([_message(topic, sent + one, 128) for one in range(each)])
            sent += each
            await asyncio.sleep(begin + sent / RATE - time.monotonic())
    return sent


async def _each(name_server: str, topics: list[str], seconds: int) -> int:
    """Send to all topics, in turns, RATE messages a second in all; the number for each topic."""
    some = RATE // len(topics)
    async with Producer(name_server, group="bench") as producer:
        begin = time.monotonic()
        for turn in range(seconds):
            for topic in topics:
                await producer.send_batch([_message(topic, one, 128) for one in range(some)])
            await asyncio.sleep(begin + turn + 1 - time.monotonic())
    return some * seconds


def _message(topic: str, number: int, size: int) -> Message:
    drawn = random.Random(number)  # noqa: S311 - bodies that differ
    order = f'{{"order":{number},"customer":{drawn.randrange(10**6)},"state":"paid","items":['
    words = (f'"{drawn.getrandbits(24):x}",' for _ in range(size))
    body = order
    while len(body) < size:
        body += next(words)
    return Message(topic, body[:size].encode(), keys=[f"order-{number}"], tags=f"t{number % 4}")
