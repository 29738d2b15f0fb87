"""The measures of `scripts/bench --only sync recovery keys`: how the two brokers use the disk.

They are: sends that wait for the disk, the start on a log after kill -9, a look-up by key in a
large store, and how far the key index is behind a producer at full speed. The sides alternate where
both can be measured; the side that is not being measured is idle.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import statistics
import subprocess
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..harness.clusters import AerobeeCluster, Cluster, JavaCluster
from ..store.base.settings import StoreSettings
from ..store.engine.messages import Message
from ..store.engine.store import MessageStore
from .loads import loadgen
from .loads.loadgen import Load
from .measures import Compared, Say, alternated, cpu_seconds, disk_waits, fill, median, sent

GIB = 1 << 30
RECORD_BYTES = 330  # what a filling message of 128 bytes takes in the log
SYNC_RATIO_MIN = 3.0
RECOVERY_RATIO_MAX = 0.5
QUERY_P99_MS_MAX = 2.0
LAG_SECONDS_MAX = 1.0
RECOVERY_SECONDS_MAX = 600
RESTARTS = 6
RESTART_SECONDS_MAX = 3.0
MORE = Load("more messages", "send", 400, conns=4, inflight=8, size=1024, per=32)
QUERIES = 2_000
FEW_MESSAGES = 10_000
QUERY_MESSAGE = 12
INDEX_SECONDS = 0.2  # between a broker's rounds for the index
TICK_MESSAGES = 64  # in one loop iteration of a busy broker
KEYED = "Keyed"
BODY = bytes(128)
SYNC = Load("SYNC_FLUSH SEND 64 x 1, 128 B", "send", 60_000, conns=64)


@dataclass(frozen=True, slots=True)
class Held:
    """A row for aerobee alone, compared with a limit."""

    name: str
    value: str
    wanted: str
    holds: bool
    note: str = ""


def sync_sends(
    folder: Path, program: Path, rounds: int, scale: float, flags: tuple[str, ...], say: Say
) -> Compared:
    """Messages per second of 64 senders; each waits until the disk has its message."""
    settings: dict[str, str | int] = {"flushDiskType": "SYNC_FLUSH"}
    load = replace(SYNC, count=int(SYNC.count * scale))
    sides: tuple[Cluster, Cluster] = (
        JavaCluster(folder / "java", settings, flags=flags),
        AerobeeCluster(folder / "ours", settings),
    )
    try:
        for side in sides:
            side.start()
            loadgen.create_topic(side.broker, "Sync")
            loadgen.run(program, side.broker, "Sync", load)
        once = partial(sent, program, "Sync", load)
        found = alternated(sides, range(1, rounds + 1), load, once, say)
    finally:
        for side in sides:
            side.stop()
    speeds, tails, costs = (
        {kind: median(results, field) for kind, results in found.items()}
        for field in ("msgs_per_s", "p99_us", "cpu_us")
    )
    return Compared(
        load.name,
        "messages/s",
        speeds["java"],
        speeds["aerobee"],
        f">= {SYNC_RATIO_MIN:g}",
        speeds["aerobee"] >= SYNC_RATIO_MIN * speeds["java"],
        f"p99 {tails['java']:,.0f} / {tails['aerobee']:,.0f} us,"
        f" CPU {costs['java']:.1f} / {costs['aerobee']:.1f} us a message",
    )


def recovery(
    folder: Path, program: Path, rounds: int, gib: float, flags: tuple[str, ...], say: Say
) -> list[Compared]:
    """Seconds from the start to serving, on a log of `gib` GiB after kill -9.

    First each broker on the store that it wrote itself, then aerobee on the Java broker's store.
    """
    messages = int(gib * GIB / RECORD_BYTES)
    sides: dict[str, JavaCluster | AerobeeCluster] = {
        "java": JavaCluster(folder / "java", apart=True, flags=flags),
        "ours": AerobeeCluster(folder / "ours"),
    }
    empty: dict[str, float] = {}
    left: dict[str, Path] = {}
    try:
        for kind, side in sides.items():
            begin = time.monotonic()
            side.start()
            side.stop_broker(kill=True)
            begin = time.monotonic()
            side.start_broker()
            empty[kind] = time.monotonic() - begin
            loadgen.create_topic(side.broker, "Recovered")
            taken = fill(program, side, "Recovered", messages)
            say(f"filled: {kind} took {taken:,} messages")
            side.stop_broker(kill=True)
            left[kind] = folder / f"left-{kind}"
            side.store.rename(left[kind])
        own: dict[str, list[float]] = {kind: [] for kind in sides}
        theirs: list[float] = []
        for _ in range(rounds):
            for kind, side in sides.items():
                own[kind].append(_start_on(side, left[kind]))
                say(f"start after kill -9, {gib:g} GiB: {kind} {own[kind][-1]:.2f} s")
            theirs.append(_start_on(sides["ours"], left["java"]))
            say(f"start after kill -9, {gib:g} GiB: ours on Java's {theirs[-1]:.2f} s")
    finally:
        for side in sides.values():
            side.stop()
    java = statistics.median(own["java"])
    note = f"on an empty store {empty['java']:.2f} / {empty['ours']:.2f} s"
    rows = []
    for what, times in (("its own log", own["ours"]), ("the log that Java left", theirs)):
        ours = statistics.median(times)
        rows.append(
            Compared(
                f"Start after kill -9 on {gib:g} GiB, {messages:,} messages, {what}",
                "s",
                java,
                ours,
                f"<= {RECOVERY_RATIO_MAX:g}",
                ours <= RECOVERY_RATIO_MAX * java,
                note,
            )
        )
    return rows


def restarts(folder: Path, program: Path, gib: float, say: Say) -> Held:
    """Seconds from the start to the first response, on a log of `gib` GiB, after each of several
    kill -9.

    Messages are sent in between. Before every second kill the log has just begun a new file, so the
    recovery must make sure that no old bytes are left in it.
    """
    side = AerobeeCluster(folder / "restarts")
    times = []
    try:
        side.start()
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
    finally:
        side.stop()
    return Held(
        f"Start to the first answer after kill -9, {gib:g} GiB and more, longest of {RESTARTS}",
        f"{max(times):.2f} s",
        f"<= {RESTART_SECONDS_MAX:g} s",
        max(times) <= RESTART_SECONDS_MAX,
        f"shortest {min(times):.2f} s; before every second kill a new file was begun",
    )


def keys(folder: Path, stored: int, say: Say) -> list[Held]:
    """The latency of QUERY_MESSAGE by key over one connection, with few messages in the store and
    with `stored` messages; and how long a key waited for the index meanwhile."""
    rows = []
    for messages in (FEW_MESSAGES, stored):
        side = AerobeeCluster(folder / f"keys-{messages}")
        wait = fill_keyed(side.store, messages)
        try:
            side.start()
            for which in ("first", "the same again"):
                rows.append(_looked_up(side, messages, which, say))
        finally:
            side.stop()
    say(f"index: {wait.rate:,.0f} messages/s, a key waits {wait.seconds_max:.2f} s at most")
    rows.append(
        Held(
            f"Longest wait for the index, {stored:,} messages with two keys",
            f"{wait.seconds_max:.2f} s",
            f"<= {LAG_SECONDS_MAX:g} s",
            wait.seconds_max <= LAG_SECONDS_MAX,
            f"at {wait.rate:,.0f} messages/s; {wait.share:.0%} of the time goes into the index",
        )
    )
    return rows


def _looked_up(side: AerobeeCluster, messages: int, which: str, say: Say) -> Held:
    """The row of one series of look-ups. The first reads pages that the system has taken out of
    memory; the same keys again show the broker without the disk."""
    pid = side.broker_pid()
    cpu, reads = cpu_seconds(pid), disk_waits(pid)
    times = _query_ms(side, messages)
    cpu_ms = (cpu_seconds(pid) - cpu) / QUERIES * 1_000
    reads = disk_waits(pid) - reads
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    say(f"key query, {messages:,} messages, {which}: p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    return Held(
        f"Query by key, {messages:,} messages stored, p99, {which}",
        f"{p99:.2f} ms",
        f"<= {QUERY_P99_MS_MAX:g} ms",
        p99 <= QUERY_P99_MS_MAX,
        f"median {p50:.2f} ms, the client's part included; CPU {cpu_ms:.2f} ms each; "
        f"{reads:,} waits for the disk in {QUERIES:,} look-ups",
    )


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


def _start_on(side: JavaCluster | AerobeeCluster, left: Path) -> float:
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
    """Milliseconds of each look-up of a random message."""
    draw = random.Random(7)  # noqa: S311 - which messages are asked for is no secret
    host, _, port = side.broker.partition(":")
    times = []
    with socket.create_connection((host, int(port)), timeout=30) as connection:
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
