"""What a broker does with very many timer messages that are all due in one second, and how
punctual delay levels are. Only ours is measured: what counts is memory, and how sends fare
meanwhile.
"""

from __future__ import annotations

import statistics
import time

from ..client import Message
from ..client.blocking import Producer, Reader
from ..harness.clusters import AerobeeCluster
from ..protocol.message.record import decode_all
from .loads import loadgen
from .loads.loadgen import Load
from .report import Held, Row, held
from .turns import Result, Run, median, resident_mib, running

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


def timers(run: Run) -> list[Row]:
    """Fill a broker, measure its memory, send ordinary messages before all is due and meanwhile."""
    messages, program = run.options.messages, run.program
    due_s = int(time.time()) + messages // run.options.fill_rate + LEAD_SECONDS
    timed = run.built(loadgen.property_of("TIMER_DELIVER_MS", str(due_s * 1_000)))
    cluster = run.ours()
    resident: list[float] = []
    quiet: dict[str, list[Result]] = {load.name: [] for load in SENDS}
    loud: dict[str, list[Result]] = {load.name: [] for load in SENDS}

    def measure() -> None:
        resident.append(resident_mib(cluster.broker_pid())["VmRSS"])

    with running(cluster):
        for topic in ("Due", "Plain"):
            loadgen.create_topic(cluster.broker, topic)
        fill = Load("timer messages", "send", messages, conns=4, inflight=64)
        rate = loadgen.run(timed, cluster.broker, "Due", fill)["msgs_per_s"]
        measure()
        late = {level: lateness(cluster, level) for level in LEVELS}
        for load in SENDS * ROUNDS:
            quiet[load.name].append(loadgen.run(program, cluster.broker, "Plain", load))
        measure()
        if time.time() > due_s:
            raise loadgen.LoadFailed("the messages were due too early; lower --fill-rate")
        time.sleep(due_s - time.time() + 1.5)
        begin = time.monotonic()
        drained = number = 0
        while drained < messages or number < len(SENDS):
            load = SENDS[number % len(SENDS)]
            found = loadgen.run(program, cluster.broker, "Plain", load)
            drained = loadgen.stored(cluster.broker, "Due")
            if drained < messages or number < len(SENDS):  # all of it meanwhile
                loud[load.name].append(found)
            number += 1
            measure()
        seconds = time.monotonic() - begin
    rows: list[Row] = [
        Held("sent", f"{rate:,.0f} messages/s"),
        Held("resident memory with all of them waiting", f"{max(resident[:2]):,.0f} MiB"),
        Held("the most while they were delivered", f"{max(resident):,.0f} MiB"),
        Held("delivered, with senders at work", f"{messages / seconds:,.0f} messages/s"),
    ]
    for name, before in quiet.items():
        for when, runs in (("before", before), ("meanwhile", loud[name])):
            note = f"p50 {median(runs, 'p50_us'):,.0f} us, p99 {median(runs, 'p99_us'):,.0f} us"
            rate = median(runs, "msgs_per_s")
            rows.append(Held(f"{name} {when}", f"{rate:,.0f}/s", note=note))
        times = median(loud[name], "p99_us") / median(before, "p99_us")
        rows.append(held(f"{name}, p99", times, "{:.1f} times", "<= 2 times"))
    for level, found_ms in late.items():
        name = f"delay level {level} ({LEVELS[level] // 1_000} s), {PUNCTUAL:,} messages, late by"
        first, usual, last = found_ms[0], statistics.median(found_ms), found_ms[-1]
        value = f"{first} ms at least, {usual:.0f} ms mostly, {last} ms at most"
        holds = first >= 0 and last <= PUNCTUAL_MS
        rows.append(Held(name, value, f"within {PUNCTUAL_MS} ms", holds))
    return rows


def lateness(cluster: AerobeeCluster, level: int) -> list[int]:
    """The ms by which messages of a delay level were late for their readers, ascending; a
    millisecond of them and more may be the way to the broker."""
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
        raise loadgen.LoadFailed(
            f"{len(found)} of {PUNCTUAL} messages of delay level {level} were delivered"
        )
    return sorted(found)
