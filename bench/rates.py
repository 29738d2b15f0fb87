"""Rates of both brokers under the same load, in turns, and of ours beside others of its kind.

PARTS is the table of the cases that RocketMQ's broker and ours get side by side. One runner
measures them all: it starts both, fills the topics that are read, and takes turns.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..client import Admin, Security
from ..harness import java_side
from ..harness.clusters import AerobeeCluster, Cluster, JavaCluster
from ..protocol.security import self_signed
from .loads import loadgen, popgen, signedgen, trangen
from .loads.frames import run_alone
from .loads.loadgen import BATCH, Change, Load
from .report import Compared, Growth, Held, Row, held
from .turns import (
    Result,
    Run,
    Settings,
    broker_pids,
    compared,
    in_turns,
    median,
    running,
)

MILLION = 1_000_000
SPARE = 0.03  # more messages in a topic that is read: on a loaded machine some sends are refused
RECORD_BYTES = 330  # what a filling message of 128 bytes takes in the log
ADMIN, SHOP, SECRET = "admin", "shop", "12345678"
AUTH = "org.apache.rocketmq.auth"
READY_SECONDS = 10

# Texts in the generator's source, and their replacements. Each queue has messages with four
# alternating tags, and a reader wants one of them.
TAGS = 4
ALL_TAGS_IN_EACH = ("id % 4, per > 1", f"id / queues % {TAGS}, per > 1")
EVERYTHING = r"\"subscription\":\"*\",\"subVersion\":\"0\",\"expressionType\":\"TAG\""
ONE_OF_FOUR = r"\"subscription\":\"%s\",\"subVersion\":\"0\",\"expressionType\":\"%s\""


@dataclass(frozen=True, slots=True)
class Case:
    """A load, and the mark for the ratio to Java's rate.

    `change` is one in the source of the load generator. `stored` messages are in the topic for each
    that is read, filled by the generator with the change `filler`.
    """

    load: Load
    wanted: str = ""
    change: Change | None = None
    stored: int = 0
    filler: Change | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Cases for both brokers, which run with `given(folder)`: settings, and flags of Java's.

    Both get the loads `warm` first, in full: the real broker needs some hundred thousand sends
    before its compiler is through.
    """

    cases: tuple[Case, ...]
    warm: tuple[Load, ...] = ()
    given: Callable[[Path], tuple[Settings, tuple[str, ...]]] = lambda _: ({}, ())


def _checked(folder: Path) -> tuple[Settings, tuple[str, ...]]:
    """All checks; `folder` keeps RocketMQ's users and lists."""
    found: Settings = {
        "authConfigPath": str(folder / "auth"),
        "initAuthenticationUser": f'{{"username":"{ADMIN}","password":"{SECRET}"}}',
        "innerClientAuthenticationCredentials": f'{{"accessKey":"inner","secretKey":"{SECRET}"}}',
    }
    for what in ("authentication", "authorization"):
        place, name = f"{AUTH}.{what}.provider", what.capitalize()
        found[f"{what}Enabled"] = "true"
        found[f"{what}Provider"] = f"{place}.Default{name}Provider"
        found[f"{what}MetadataProvider"] = f"{place}.Local{name}MetadataProvider"
    return found, ()


def _with_tls(folder: Path) -> tuple[Settings, tuple[str, ...]]:
    """A certificate for both."""
    pem = folder / "server.pem"
    pem.write_bytes(self_signed.make(time.time()))
    pem.chmod(0o600)
    flags = ("test.mode.enable=false", f"server.certPath={pem}", f"server.keyPath={pem}")
    settings: Settings = {"tlsServerCertPath": str(pem), "tlsServerKeyPath": str(pem)}
    return settings, tuple(f"-Dtls.{flag}" for flag in flags)


CASES = (
    Case(Load("SEND 64 x 1, 128 B", "send", 120_000, conns=64), ">= 2.5"),
    Case(Load("SEND 64 x 1, 1 KiB", "send", 80_000, conns=64, size=1024), ">= 2.5"),
    Case(Load("SEND 4 x 64, 128 B", "send", 200_000, conns=4, inflight=64), ">= 2.5"),
    Case(Load("SEND 1 x 1, 128 B", "send", 24_000), ">= 1.2"),
    Case(Load("SEND batches of 32, 4 x 8", "send", 16_000, conns=4, inflight=8, per=32), ">= 1.5"),
    Case(Load("PULL 32 from 4 queues", "pull", MILLION), ">= 2", stored=1),
)
SENDS = CASES[0].load
# The marks of the part of what one thread reaches, for CASES; None for one that is not measured.
LIMITS = (">= 0.85", None, ">= 0.5", ">= 0.6", ">= 0.4", ">= 0.5")
WARM = (CASES[2].load, SENDS)
SIGNED = replace(SENDS, name="SEND 64 x 1, 128 B, access control", mode="signed")
OVER_TLS = replace(SENDS, name="SEND 64 x 1, 128 B, TLS", mode="tls")
# Several sends in a write: else the generator, which is slower than the broker, is measured.
COST = replace(SIGNED, name="SEND 64 x 8, 128 B, cost of access control", inflight=8)
COST_MARK = ">= 0.9"  # of the rate without

PARTS = {
    "rates": Part(CASES, WARM),
    "access": Part((Case(SIGNED, ">= 2.5"),), (SIGNED,), _checked),
    "tls": Part((Case(OVER_TLS, ">= 1.5"),), (OVER_TLS,), _with_tls),
    # Sends of messages that wait, with the property that makes them do so: none is due in the run.
    "delayed": Part(
        (
            Case(
                Load("SEND 64 x 1, delay level 18", "send", 120_000, conns=64),
                ">= 2",
                loadgen.property_of("DELAY", "18"),
            ),
            Case(
                Load("SEND 64 x 1, timer in an hour", "send", 120_000, conns=64),
                ">= 2",
                loadgen.property_of("TIMER_DELAY_SEC", "3600"),
            ),
        ),
        WARM,
    ),
    "transactions": Part(
        (Case(Load("transactions, committed, 4 x 4, 128 B", "transaction", 60_000, 4, 4), ">= 2"),)
    ),
    # Pops of 32 with their acknowledgements, in messages: each alone, and all of a pop at once.
    "pops": Part(
        (
            Case(
                Load("POP 32, each acknowledged alone, 4 x 1", "pop", 200_000, conns=4),
                ">= 1.5",
                stored=1,
            ),
            Case(
                Load("POP 32, acknowledged together, 4 x 1", "pop together", 400_000, conns=4),
                ">= 1.5",
                stored=1,
            ),
        )
    ),
    "filters": Part(
        (
            Case(
                Load("PULL 32 by one tag of four", "pull", 250_000),
                ">= 2",
                (EVERYTHING, ONE_OF_FOUR % ("t1", "TAG")),
                TAGS,
                ALL_TAGS_IN_EACH,
            ),
            Case(
                Load("PULL 32 by SQL92, one of four", "pull", 100_000),
                ">= 1",
                (EVERYTHING, ONE_OF_FOUR % ("TAGS = 't1'", "SQL92")),
                TAGS,
                ALL_TAGS_IN_EACH,
            ),
        ),
        given=lambda _: ({"enablePropertyFilter": "true"}, ()),
    ),
    "sync": Part(
        (Case(Load("SYNC_FLUSH SEND 64 x 1, 128 B", "send", 60_000, conns=64), ">= 3"),),
        given=lambda _: ({"flushDiskType": "SYNC_FLUSH"}, ()),
    ),
}


def both(run: Run, name: str) -> list[Row]:
    """The rows of a part of PARTS: messages a second."""
    part = PARTS[name]
    settings, flags = part.given(run.folder)
    java, ours = run.java(settings=settings, flags=flags), run.ours(settings=settings)
    with running(java, ours):
        for load in part.warm:
            for side in (java, ours):
                make_topic(side, "Warm", load)
                sent(run.program, "Warm", load, side, 0)
        return [_both(run, number, case, java, ours) for number, case in enumerate(part.cases)]


def _both(run: Run, number: int, case: Case, java: JavaCluster, ours: AerobeeCluster) -> Compared:
    load, topic, program = run.load(case.load), f"Case{number}", run.built(case.change)
    for side in (java, ours):
        make_topic(side, topic, load)
        if case.stored:
            fill(run, side.broker, topic, case, load.count)
    sides: dict[str, Cluster] = {"java": java, "aerobee": ours}
    found = in_turns(
        run, load.name, sides, lambda *turn: sent(program, topic, load, *turn), broker_pids
    )
    more = ("p99_us", "cpu_us")
    return compared(load.name, "messages/s", found, "msgs_per_s", case.wanted, more)


def make_topic(side: Cluster, topic: str, load: Load) -> None:
    """Create a topic; for a signed load also the user that may send to it."""
    if load.mode == "signed":
        asyncio.run(_allow(side, topic))
    else:
        loadgen.create_topic(side.broker, topic)


async def _allow(side: Cluster, topic: str) -> None:
    async with Admin(side.namesrv, security=Security(ADMIN, SECRET)) as admin:
        await admin.create_topic(topic, signedgen.QUEUES)
        if not any((await admin.users(SHOP)).values()):
            await admin.create_user(SHOP, SECRET)
        await admin.allow(SHOP, f"Topic:{topic}", "Pub")


def fill(run: Run, broker: str, topic: str, case: Case, count: int) -> None:
    """Store what `count` messages of a case are read from, and some more: the last pops must find
    something, too."""
    messages = int(count * case.stored * (1 + SPARE)) + case.load.conns * BATCH * BATCH
    if case.filler is None:
        loadgen.fill(run.program, broker, topic, messages)
    else:
        loadgen.fill(run.built(case.filler), broker, topic, messages, per=1, inflight=4)


def sent(program: Path, topic: str, load: Load, side: Cluster, number: int) -> Result:
    """One run of a load against a side, by the generator that its mode needs."""
    where = (side.broker, topic, load)
    match load.mode:
        case "signed" | "unsigned":
            user = SHOP if load.mode == "signed" else ""
            return run_alone(signedgen.send, *where, user, SECRET)
        case "tls":
            return run_alone(signedgen.send, *where, "", "", True)
        case "transaction":
            return run_alone(trangen.transact, *where)
        case "pop" | "pop together":  # each round by a group of its own
            batched = load.mode == "pop together"
            return run_alone(popgen.pop, *where, f"Poppers{number}", batched)
    return loadgen.run(program, *where)


def access(run: Run) -> list[Row]:
    """Signed sends of both, and what access control costs ours."""
    return [*both(run, "access"), _cost(run)]


def _cost(run: Run) -> Held:
    """Signed sends to a broker with access control beside unsigned ones to a broker without.

    Both are new. One generator makes both loads, its frames before the clock starts.
    """
    load = run.load(COST)
    modes = {"checked": load, "unsigned": replace(load, mode="unsigned")}
    checked, unsigned = run.ours("checked", _checked(run.folder)[0]), run.ours("unsigned")
    sides = {"checked": checked, "unsigned": unsigned}

    def once(kind: str, number: int) -> Result:
        each = modes[kind] if number else replace(modes[kind], count=COST.count)
        return sent(Path(), "Cost", each, sides[kind], number)

    with running(*sides.values()):
        for kind, side in sides.items():
            make_topic(side, "Cost", modes[kind])
        kinds = {kind: kind for kind in sides}
        found = in_turns(run, load.name, kinds, once, lambda kind: broker_pids(sides[kind]))
    (signed, before), (cpu, cpu_before) = (
        [median(found[kind], field) for kind in sides] for field in ("msgs_per_s", "cpu_us")
    )
    note = f"{signed:,.0f} of {before:,.0f} messages/s, CPU {cpu:.1f} and {cpu_before:.1f} us"
    name = f"{COST.name}: part of the rate without"
    return held(name, signed / before, "{:.2f}", COST_MARK, f"{note} a message")


def limits(run: Run) -> list[Row]:
    """Our rates as parts of what one thread reaches, in turns.

    The thread is a small C program: it reads the same requests, appends all of one round of epoll
    to a file in one write, and answers. It has no topics, queues, index or checks.
    """
    ours, program = run.ours(), run.program
    rows: list[Row] = []
    with running(ours), _thread(run) as address:
        for number, (case, wanted) in enumerate(zip(CASES, LIMITS, strict=True)):
            if wanted is None:
                continue
            load, topic = run.load(case.load), f"Part{number}"
            loadgen.create_topic(ours.broker, topic)
            if case.stored:
                fill(run, ours.broker, topic, case, load.count)

            def once(broker: str, _: int, topic: str = topic, load: Load = load) -> Result:
                return loadgen.run(program, broker, topic, load)

            found = in_turns(run, load.name, {"C": address, "aerobee": ours.broker}, once)
            most, reached = (median(results, "msgs_per_s") for results in found.values())
            name = f"{load.name}, part of what one C thread reaches"
            note = f"{reached:,.0f} of {most:,.0f} messages/s"
            rows.append(held(name, reached / most, "{:.2f}", wanted, note))
    return rows


@contextmanager
def _thread(run: Run) -> Iterator[str]:
    """The address of the C program while it runs."""
    program = loadgen.build(run.options.loadgen.with_name("limit.c"), run.folder)
    port = java_side.free_ports(1)[0]
    argv = [str(program), str(port), str(run.folder / "limit.log"), str(RECORD_BYTES)]
    with subprocess.Popen(argv) as process:  # noqa: S603 - no shell
        try:
            deadline = time.monotonic() + READY_SECONDS
            while not java_side.listens(port):
                if time.monotonic() > deadline:
                    raise loadgen.LoadFailed(f"{program} does not listen on port {port}")
                time.sleep(0.01)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def growth(run: Run) -> list[Row]:
    """SEND and PULL of a broker with one topic beside one with 1,000 topics or more messages.

    Both stand side by side and are measured in turns, so that the machine's mood is shared.
    """
    small, grown = run.ours("small"), run.ours("grown")
    program, stored = run.program, run.options.stored
    pulls = CASES[-1]
    with running(small, grown):
        for side in (small, grown):
            loadgen.create_topic(side.broker, "send")
            loadgen.create_topic(side.broker, "pull")
            fill(run, side.broker, "pull", pulls, run.load(pulls.load).count)
        with loadgen.connected(grown.broker) as connection:
            loadgen.create_topics(connection, [f"One{number}" for number in range(1_000)], 4)
        for number in range(1_000):
            loadgen.run(program, grown.broker, f"One{number}", Load("one message", "send", 4))
        rows = _grown(run, "1,000 topics", small, grown)
        if stored:
            loadgen.create_topic(grown.broker, "Stored")
            loadgen.fill(program, grown.broker, "Stored", stored)
            rows += _grown(run, f"{stored:,} stored messages", small, grown)
        return rows


def _grown(run: Run, what: str, small: Cluster, grown: Cluster) -> list[Row]:
    rows: list[Row] = []
    for load in map(run.load, (SENDS, CASES[-1].load)):

        def once(side: Cluster, _: int, load: Load = load) -> Result:
            return loadgen.run(run.program, side.broker, load.mode, load)

        name = f"{load.name}, {what}"
        found = in_turns(run, name, {"small": small, "grown": grown}, once)
        speeds = (median(results, "msgs_per_s") for results in found.values())
        rows.append(Growth(name, *speeds))
    return rows
