"""How the two brokers use the disk: the start on a log after kill -9, a lookup by key in a large
store, and how far the key index is behind a producer at full speed. The sides alternate where both
can be measured; the side that is not being measured is idle.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

from ..harness.clusters import AerobeeCluster, Cluster
from ..store.base.settings import StoreSettings
from ..store.engine.messages import Message
from ..store.engine.store import MessageStore
from .loads import loadgen
from .loads.loadgen import Load
from .rates import RECORD_BYTES
from .report import Compared, Held, Row, held
from .turns import Run, cpu_seconds, disk_waits, running, say, seconds_row

GIB = 1 << 30
RECOVERY_SECONDS_MAX = 600
RESTARTS = 6
MORE = Load("more messages", "send", 400, conns=4, inflight=8, size=1024, per=32)
QUERIES = 2_000
FEW_MESSAGES = 10_000
QUERY_MESSAGE = 12
INDEX_SECONDS = 0.2  # between a broker's rounds for the index
TICK_MESSAGES = 64  # in one loop iteration of a busy broker
KEYED = "Keyed"
BODY = bytes(128)


def recovery(run: Run) -> list[Row]:
    """Seconds from the start to serving, on a log of `run.gib` GiB after kill -9.

    First each broker on the store that it wrote itself, then aerobee on the Java broker's store.
    """
    messages = int(run.gib * GIB / RECORD_BYTES)
    sides: dict[str, Cluster] = {
        "java": run.java(apart=True),
        "ours": run.ours(),
    }
    empty: dict[str, float] = {}
    left: dict[str, Path] = {}
    times: dict[str, list[float]] = {"java": [], "ours": [], "ours on Java's": []}
    try:
        for kind, side in sides.items():
            side.start()
            side.stop_broker(kill=True)
            begin = time.monotonic()
            side.start_broker()
            empty[kind] = time.monotonic() - begin
            loadgen.create_topic(side.broker, "Recovered")
            taken = loadgen.fill(run.program, side.broker, "Recovered", messages)
            say(f"filled: {kind} took {taken:,} messages")
            side.stop_broker(kill=True)
            left[kind] = run.folder / f"left-{kind}"
            side.store.rename(left[kind])
        stores = {**left, "ours on Java's": left["java"]}
        for _ in range(run.rounds):
            for kind, store in stores.items():
                times[kind].append(_start_on(sides[kind.partition(" ")[0]], store))
                say(f"start after kill -9, {run.gib:g} GiB: {kind} {times[kind][-1]:.2f} s")
    finally:
        for side in sides.values():
            side.stop()
    java, own, theirs = map(statistics.median, times.values())
    note = f"on an empty store {empty['java']:.2f} / {empty['ours']:.2f} s"
    name = f"Start after kill -9 on {run.gib:g} GiB, {messages:,} messages"
    return [
        Compared(f"{name}, its own log", "s", java, own, "<= 0.5", note),
        Compared(f"{name}, the log that Java left", "s", java, theirs, "<= 0.5", note),
        _restarts(run, 2 * run.gib),
    ]


def _restarts(run: Run, gib: float) -> Held:
    """Seconds from the start to the first response, on a log of `gib` GiB, after each of several
    kill -9.

    Messages are sent in between. Before every second kill the log has just begun a new file, so the
    recovery must make sure that no old bytes are left in it.
    """
    side, program = run.ours("restarts"), run.program
    times = []
    with running(side):
        loadgen.create_topic(side.broker, "Restarted")
        first = replace(MORE, count=int(gib * GIB / (MORE.size + RECORD_BYTES) / MORE.per))
        loadgen.run(program, side.broker, "Restarted", first)
        for number in range(RESTARTS):
            files = len(os.listdir(side.store / "commitlog"))
            loadgen.run(program, side.broker, "Restarted", MORE)
            while number % 2 and len(os.listdir(side.store / "commitlog")) == files:
                loadgen.run(program, side.broker, "Restarted", MORE)
            side.stop_broker(kill=True)
            begin = time.monotonic()
            side.start_broker(RECOVERY_SECONDS_MAX)
            loadgen.run(program, side.broker, "Restarted", replace(MORE, count=1))
            times.append(time.monotonic() - begin)
            say(f"start after kill -9, {gib:g} GiB and more: {times[-1]:.2f} s")
    name = f"Start to the first answer after kill -9, {gib:g} GiB and more, longest of {RESTARTS}"
    note = f"shortest {min(times):.2f} s; before every second kill a new file was begun"
    return seconds_row(name, max(times), "<= 3 s", note)


def keys(run: Run) -> list[Row]:
    """The latency of QUERY_MESSAGE by key over one connection, with few messages in the store and
    with many; and how long a key waited for the index meanwhile."""
    stored = run.options.keyed // (100 if run.options.quick else 1)
    rows: list[Row] = []
    for messages in (FEW_MESSAGES, stored):
        side = run.ours(f"keys-{messages}")
        wait = fill_keyed(side.store, messages)
        with running(side):
            for which in ("first", "the same again"):
                rows.append(_lookups(side, messages, which))
    say(f"index: {wait.rate:,.0f} messages/s, a key waits {wait.seconds_max:.2f} s at most")
    name = f"Longest wait for the index, {stored:,} messages with two keys"
    note = f"at {wait.rate:,.0f} messages/s; {wait.share:.0%} of the time goes into the index"
    rows.append(seconds_row(name, wait.seconds_max, "<= 1 s", note))
    return rows


def _lookups(side: AerobeeCluster, messages: int, which: str) -> Held:
    """The row of one series of lookups. The first reads pages that the system has taken out of
    memory; the same keys again show the broker without the disk."""
    pid = side.broker_pid()
    cpu, reads = cpu_seconds([pid]), disk_waits(pid)
    times = _query_ms(side, messages)
    cpu_ms = (cpu_seconds([pid]) - cpu) / QUERIES * 1_000
    reads = disk_waits(pid) - reads
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    say(f"key query, {messages:,} messages, {which}: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    name = f"Query by key, {messages:,} messages stored, p99, {which}"
    note = (
        f"median {p50:.2f} ms, the client's part included; CPU {cpu_ms:.2f} ms each; "
        f"{reads:,} waits for the disk in {QUERIES:,} lookups"
    )
    return held(name, p99, "{:.2f} ms", "<= 2 ms", note)


@dataclass(frozen=True, slots=True)
class Wait:
    """The longest time in seconds that keys waited for the index, the messages per second, and the
    part of the time that the index took."""

    seconds_max: float
    rate: float
    share: float


def fill_keyed(root: Path, messages: int) -> Wait:
    """Fill a new store with messages of two keys each, as fast as possible.

    The queue's entry is written with the message, so only the index can be behind. Sender and
    store are one process here, which is faster than any broker takes messages.
    """
    store = MessageStore(root, StoreSettings(), bytes(8), lambda: time.time_ns() // 1_000_000)
    store.open()
    longest = spent = 0.0
    begin = last = time.monotonic()
    try:
        for number in range(messages):
            raw = b"UNIQ_KEY\x01%032X\x02KEYS\x01order-%d\x02" % (number, number)
            store.put(Message((KEYED, number & 3), 0, 0, 1, bytes(8), BODY, raw, 0))
            if number % TICK_MESSAGES:
                continue
            store.write_staged()
            now = time.monotonic()
            if now - last >= INDEX_SECONDS:
                store.index_pending()
                done = time.monotonic()
                longest = max(longest, done - last)
                spent += done - now
                last = done
        seconds = time.monotonic() - begin
    finally:
        store.close()
    return Wait(longest, messages / seconds, spent / seconds)


def _start_on(side: Cluster, left: Path) -> float:
    """Seconds until the broker serves on a copy of this store; it is killed then."""
    shutil.rmtree(side.store, ignore_errors=True)
    # Files of the log are mostly holes; a copy with the holes filled would measure the disk.
    copy = ["cp", "-a", "--sparse=always", str(left), str(side.store)]
    subprocess.run(copy, check=True)  # noqa: S603 - no shell
    os.sync()  # a log that was killed is on the disk but for its last second
    begin = time.monotonic()
    side.start_broker(RECOVERY_SECONDS_MAX)
    seconds = time.monotonic() - begin
    side.stop_broker(kill=True)
    return seconds


def _query_ms(side: Cluster, messages: int) -> list[float]:
    """Milliseconds of each lookup of a random message."""
    draw = random.Random(7)  # noqa: S311 - which messages are asked for is no secret
    times = []
    with loadgen.connected(side.broker) as connection:
        for number in range(QUERIES):
            wanted = draw.randrange(messages)
            fields = {
                "topic": KEYED,
                "key": f"order-{wanted}" if number % 2 else f"{wanted:032X}",
                "maxNum": "32",
                "beginTimestamp": "0",
                "endTimestamp": str((1 << 63) - 1),
            }
            begin = time.perf_counter()
            answer = loadgen.ask(connection, QUERY_MESSAGE, number, fields)
            times.append((time.perf_counter() - begin) * 1_000)
            if answer["code"] != 0:
                raise loadgen.LoadFailed(f"message {wanted} was not found by its key: {answer}")
    return times
