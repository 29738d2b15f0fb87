"""What a broker does with very many timer messages that are all due in one second, and how
punctual delay levels are, as Markdown.

`python -m aerobee.bench.timer_measures --messages 1000000 --write` measures and writes
it into docs/performance.md. Only ours is measured: what counts is memory, and how sends fare
meanwhile.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

from ..client import Message
from ..client.blocking import Producer, Reader
from ..harness.clusters import AerobeeCluster
from ..protocol.message.record import decode_all
from . import measures
from .burst_measures import TIMES_MAX
from .loads import loadgen
from .loads.loadgen import Load

REPORT = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- timers: begin -->", "<!-- timers: end -->"
SENDS = (
    Load("SEND 1 x 1", "send", 4_000),
    Load("SEND 8 x 1", "send", 16_000, conns=8),
    Load("SEND 64 x 1", "send", 40_000, conns=64),
)
LEVELS = {1: 1_000, 2: 5_000}  # ms
PUNCTUAL = 1_000  # messages of each level
PUNCTUAL_MS = 100
LEAD_SECONDS = 30  # between the end of the fill, as fast as it was, and the time that all are due
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures timer messages of an aerobee broker.")
    parser.add_argument("--messages", type=int, default=measures.MILLION)
    parser.add_argument("--fill-rate", type=int, default=10_000, help="sends a second, at least")
    parser.add_argument("--loadgen", type=Path, default=loadgen.DEFAULT_SOURCE)
    parser.add_argument("--write", action="store_true", help=f"writes docs/{REPORT.name}")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="aerobee-timers-"))
    try:
        text = measure(folder, options.loadgen, options.messages, options.fill_rate)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(text)
    if options.write:
        before, _, rest = REPORT.read_text().partition(BEGIN)
        REPORT.write_text(before.rstrip("\n") + "\n\n" + text + rest.partition(END)[2])


def measure(folder: Path, source: Path, messages: int, fill_rate: int) -> str:
    """Fills a broker, looks at its memory, sends plain messages before all is due and meanwhile."""
    plain = loadgen.build(source, folder)
    due_s = int(time.time()) + messages // fill_rate + LEAD_SECONDS
    timed = loadgen.build(source, folder, ("TIMER_DELIVER_MS", str(due_s * 1_000)))
    cluster = AerobeeCluster(folder / "ours")
    busy = [os.getloadavg()[0]]
    try:
        cluster.start()
        for topic in ("Due", "Plain"):
            loadgen.create_topic(cluster.broker, topic)
        fill = Load("timer messages", "send", messages, conns=4, inflight=64)
        rate = loadgen.run(timed, cluster.broker, "Due", fill)["msgs_per_s"]
        resident = [measures.resident_mib(cluster.broker_pid())["VmRSS"]]
        late = {level: lateness(cluster, level) for level in LEVELS}
        quiet: dict[Load, list[dict[str, float]]] = {load: [] for load in SENDS}
        loud: dict[Load, list[dict[str, float]]] = {load: [] for load in SENDS}
        for load in SENDS * ROUNDS:
            quiet[load].append(loadgen.run(plain, cluster.broker, "Plain", load))
        resident.append(measures.resident_mib(cluster.broker_pid())["VmRSS"])
        if time.time() > due_s:
            sys.exit("the messages were due before all were sent; name a lower --fill-rate")
        time.sleep(due_s - time.time() + 1.5)
        begin = time.monotonic()
        drained = number = 0
        while drained < messages or number < len(SENDS):
            load = SENDS[number % len(SENDS)]
            found = loadgen.run(plain, cluster.broker, "Plain", load)
            drained = stored(cluster.broker, "Due")
            if drained < messages or number < len(SENDS):  # all of it meanwhile
                loud[load].append(found)
            number += 1
            resident.append(measures.resident_mib(cluster.broker_pid())["VmRSS"])
        seconds = time.monotonic() - begin
        busy.append(os.getloadavg()[0])
    finally:
        cluster.stop()
    rows = [
        ("sent", f"{rate:,.0f} messages/s"),
        ("resident memory with all of them waiting", f"{max(resident[:2]):,.0f} MiB"),
        ("the most while they were delivered", f"{max(resident):,.0f} MiB"),
        ("delivered, with senders at work", f"{messages / seconds:,.0f} messages/s"),
        *(row for load in SENDS for row in _beside(load, quiet[load], loud[load])),
        *(
            (
                f"delay level {level} ({LEVELS[level] // 1_000} s), {PUNCTUAL:,} messages, late by",
                f"{found[0]} ms at least, {statistics.median(found):.0f} ms mostly,"
                f" {found[-1]} ms at most; wanted: within {PUNCTUAL_MS} ms,"
                f" reached: {'yes' if found[0] >= 0 and found[-1] <= PUNCTUAL_MS else '**no**'}",
            )
            for level, found in late.items()
        ),
    ]
    lines = [
        BEGIN,
        "## Timer messages",
        "",
        f"{messages:,} timer messages of 128 bytes, all due in one second; measured on"
        f" {time.strftime('%Y-%m-%d')} by `python -m aerobee.bench.timer_measures"
        f" --messages {messages}`, while other work kept the machine's {os.cpu_count()} cores at a"
        f" load of {statistics.mean(busy):.0f}. Medians of {ROUNDS} runs and more.",
        "",
        "| what | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in rows),
        "",
        END,
    ]
    return "\n".join(lines) + "\n"


def _beside(
    load: Load, quiet: list[dict[str, float]], loud: list[dict[str, float]]
) -> list[tuple[str, str]]:
    """What a load had before all was due and meanwhile."""
    rows = [
        (
            f"{load.name} {when}",
            f"{measures.median(runs, 'msgs_per_s'):,.0f}/s,"
            f" p50 {measures.median(runs, 'p50_us'):,.0f} us,"
            f" p99 {measures.median(runs, 'p99_us'):,.0f} us",
        )
        for when, runs in (("before", quiet), ("meanwhile", loud))
    ]
    times = measures.median(loud, "p99_us") / measures.median(quiet, "p99_us")
    reached = "yes" if times <= TIMES_MAX else "**no**"
    return [*rows, (f"{load.name}, p99", f"{times:.1f} times; wanted: <= {TIMES_MAX:g}, {reached}")]


def lateness(cluster: AerobeeCluster, level: int) -> list[int]:
    """By how many ms messages of a delay level were stored for their readers after they were due,
    ascending: a millisecond of it and more may be their way to the broker."""
    topic = f"Level{level}"
    loadgen.create_topic(cluster.broker, topic)
    with Producer(cluster.namesrv, group="punctual") as producer:
        for _ in range(PUNCTUAL):
            producer.send(Message(topic, b"x" * 128, delay_level=level))
    time.sleep(LEVELS[level] / 1_000 + 1)
    found = []
    with Reader(cluster.namesrv, group="punctual") as reader:
        for queue in reader.queues(topic):
            offset = 0
            while body := (pulled := reader.pull(queue, offset)).body:
                offset = pulled.next_offset
                for each in decode_all(body):
                    found.append(each.store_ms - each.born_ms - LEVELS[level])
    if len(found) != PUNCTUAL:
        sys.exit(f"{len(found)} of {PUNCTUAL} messages of delay level {level} were delivered")
    return sorted(found)


def stored(address: str, topic: str) -> int:
    """How many messages the four queues of a topic have."""
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        return sum(
            int(
                loadgen.ask(
                    connection,
                    loadgen.GET_MAX_OFFSET,
                    queue,
                    {"topic": topic, "queueId": str(queue)},
                )["extFields"]["offset"]
            )
            for queue in range(4)
        )


if __name__ == "__main__":
    main()
