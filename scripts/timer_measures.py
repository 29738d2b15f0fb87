"""What a broker does with very many timer messages that are all due in one second, as Markdown.

`python -m aerobee.scripts.timer_measures --messages 1000000 --write` measures and writes it into
docs/performance.md. Only ours is measured: what counts is memory, and how sends fare meanwhile.
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

from . import loadgen, measures
from .clusters import AerobeeCluster
from .loadgen import Load

REPORT = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- timers: begin -->", "<!-- timers: end -->"
SENDS = Load("SEND 64 x 1", "send", 40_000, conns=64)
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
        quiet = [loadgen.run(plain, cluster.broker, "Plain", SENDS) for _ in range(ROUNDS)]
        resident.append(measures.resident_mib(cluster.broker_pid())["VmRSS"])
        if time.time() > due_s:
            sys.exit("the messages were due before all were sent; name a lower --fill-rate")
        time.sleep(due_s - time.time() + 1.5)
        begin = time.monotonic()
        drained, loud = 0, []
        while drained < messages:
            loud.append(loadgen.run(plain, cluster.broker, "Plain", SENDS))
            resident.append(measures.resident_mib(cluster.broker_pid())["VmRSS"])
            drained = stored(cluster.broker, "Due")
        seconds = time.monotonic() - begin
        busy.append(os.getloadavg()[0])
    finally:
        cluster.stop()
    rows = [
        ("sent", f"{rate:,.0f} messages/s"),
        ("resident memory with all of them waiting", f"{max(resident[:2]):,.0f} MiB"),
        ("the most while they were delivered", f"{max(resident):,.0f} MiB"),
        ("delivered, with 64 senders at work", f"{messages / seconds:,.0f} messages/s"),
        *(
            (
                f"SEND 64 x 1 {when}",
                f"{measures.median(runs, 'msgs_per_s'):,.0f}/s,"
                f" p50 {measures.median(runs, 'p50_us'):,.0f} us,"
                f" p99 {measures.median(runs, 'p99_us'):,.0f} us",
            )
            for when, runs in (("before", quiet), ("meanwhile", loud))
        ),
    ]
    lines = [
        BEGIN,
        "## Timer messages",
        "",
        f"{messages:,} timer messages of 128 bytes, all due in one second; measured on"
        f" {time.strftime('%Y-%m-%d')} by `python -m aerobee.scripts.timer_measures"
        f" --messages {messages}`, while other work kept the machine's {os.cpu_count()} cores at a"
        f" load of {statistics.mean(busy):.0f}. Medians of the runs of {SENDS.count:,} sends.",
        "",
        "| what | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in rows),
        "",
        END,
    ]
    return "\n".join(lines) + "\n"


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
