"""Measures the cost of replication: sends to a master with a slave, sync and async.

Master and slave share the machine, each in its own process; aerobee replicates to aerobee, RocketMQ
to RocketMQ. The pair that is not being measured is idle. Two more parts measure copies: `mirror` of
a cluster, `backup` of a store.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from ..harness.clusters import AerobeeCluster, Cluster, JavaCluster
from ..protocol import codes
from ..protocol.aio.peers import Peers
from ..protocol.bodies.ha import HARuntimeInfo
from .loads import loadgen
from .loads.loadgen import RUN_SECONDS_MAX, Load
from .measures import BATCH, CASES, SETTLE_SECONDS, Compared, Say, cpu_seconds, fill, median
from .store_measures import GIB, RECORD_BYTES, Held

JOIN_SECONDS = 60
ROLES: dict[str, dict[str, str | int]] = {
    "slave not waited for": {"brokerRole": "ASYNC_MASTER"},
    "slave waited for": {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2},
}
RATIOS_MIN = {"SEND 64 x 1, 128 B, slave waited for": 2.0}
# A real slave says nothing before that has passed.
QUICK: dict[str, str | int] = {"haSendHeartbeatInterval": 500}


def replication(
    folder: Path, program: Path, rounds: int, scale: float, flags: tuple[str, ...], say: Say
) -> list[Compared]:
    """Messages per second and their latencies, for both kinds, after a warm-up round."""
    rows = []
    for number, (name, role) in enumerate(ROLES.items()):
        with ExitStack() as stack:
            sides = [
                pair(stack, folder / f"{kind}{number}", kind, role | QUICK, flags)
                for kind in ("java", "ours")
            ]
            for case in (CASES[0], CASES[3]):
                load = replace(case.load, count=int(case.load.count * scale))
                found: dict[str, list[dict[str, float]]] = {"java": [], "aerobee": []}
                for repeat in range(rounds + 1):
                    for side in sides:
                        result = loadgen.run(program, side.broker, f"Copied{load.conns}", load)
                        if repeat:
                            found[side.kind].append(result)
                        say(f"{load.name}, {name}: {side.kind} {result['msgs_per_s']:,.0f}/s")
                rows.append(_row(f"{load.name}, {name}", found))
    return rows


def pair(
    stack: ExitStack,
    folder: Path,
    kind: str,
    settings: dict[str, str | int],
    flags: tuple[str, ...],
) -> Cluster:
    """A master whose slave has joined it."""

    def made(part: str, more: dict[str, str | int]) -> JavaCluster | AerobeeCluster:
        if kind == "java":
            one: JavaCluster | AerobeeCluster = JavaCluster(
                folder / part, settings | more, apart=True, flags=flags
            )
        else:
            one = AerobeeCluster(folder / part, settings | more)
        stack.callback(one.stop)
        return one

    master = made("master", {})
    master.start()
    slave: dict[str, str | int] = {
        "brokerRole": "SLAVE",
        "brokerId": 1,
        "namesrvAddr": master.namesrv,
    }
    made("slave", slave).start_broker()
    asyncio.run(_joined(master.broker))
    for conns in (CASES[0].load.conns, CASES[3].load.conns):
        loadgen.create_topic(master.broker, f"Copied{conns}")
    return master


async def _joined(broker: str) -> None:
    """Wait until a slave has everything that its master has."""
    peers = Peers(upgrade=False)
    try:
        async with asyncio.timeout(JOIN_SECONDS):
            while True:
                answer = await peers.request(broker, codes.GET_BROKER_HA_STATUS, None, b"", 10)
                status = HARuntimeInfo.decode(answer.body)
                if any(slave.diff == 0 for slave in status.ha_connection_info):
                    return
                await asyncio.sleep(0.1)
    finally:
        await peers.close()


def _row(name: str, found: dict[str, list[dict[str, float]]]) -> Compared:
    texts = []
    for what in ("p50_us", "p99_us"):
        java, ours = (median(found[kind], what) for kind in ("java", "aerobee"))
        texts.append(f"{what.removesuffix('_us')} {java:,.0f} / {ours:,.0f} us")
    before, now = (median(found[kind], "msgs_per_s") for kind in ("java", "aerobee"))
    ratio_min = RATIOS_MIN.get(name, 0)
    wanted = f">= {ratio_min:g}" if ratio_min else ""
    holds = now >= ratio_min * before
    return Compared(name, "messages/s", before, now, wanted, holds, ", ".join(texts))


MIRROR_MIN = 100_000  # messages a second
# In one topic each. Messages of one born time are copied together, so two ways to fill it.
MIRRORED = {
    "that were sent in batches": Load("batches", "send", 31_250, conns=4, inflight=8, per=BATCH),
    "that were sent alone": Load("alone", "send", 400_000, conns=4, inflight=64),
}
BESIDE = Load("SEND 1 x 1 beside a backup", "send", 20_000)
TOPIC = "Kept"
TIMES_MAX = 2.0
COPY_MIN = 0.9  # of the rate at which the same bytes are copied and synced
COPY_BYTES = 1 << 20
RATE = "50MiB"


def mirrors(folder: Path, program: Path, rounds: int, scale: float, say: Say) -> list[Held]:
    """Messages a second that `aerobee mirror --once` copies, its start included."""
    rows = []
    for number, (how, full) in enumerate(MIRRORED.items()):
        load = replace(full, count=int(full.count * scale))
        source = AerobeeCluster(folder / f"source-{number}")
        results: list[dict[str, float]] = []
        try:
            source.start()
            loadgen.create_topic(source.broker, TOPIC)
            loadgen.run(program, source.broker, TOPIC, load)
            for repeat in range(rounds):
                target = AerobeeCluster(folder / f"target-{number}-{repeat}")
                try:
                    target.start()
                    results.append(_mirrored(source, target, load.count * load.per, repeat))
                finally:
                    target.stop()
                say(f"mirror of messages {how}: {results[-1]['rate']:,.0f}/s")
        finally:
            source.stop()
        rate = median(results, "rate")
        rows.append(
            Held(
                f"Mirror of messages {how}, 128 B",
                f"{rate:,.0f} messages/s",
                f">= {MIRROR_MIN:,}",
                rate >= MIRROR_MIN,
                f"{load.count * load.per:,} messages; CPU {median(results, 'mirror'):.1f} us of the"
                f" mirror, {median(results, 'target'):.1f} us of the target a message",
            )
        )
    return rows


def _mirrored(
    source: AerobeeCluster, target: AerobeeCluster, messages: int, number: int
) -> dict[str, float]:
    before = cpu_seconds(target.broker_pid())
    children = os.times()
    begin = time.perf_counter()
    # A name of its own: the source keeps the progress of the one before.
    words = ["--from", source.namesrv, "--to", target.namesrv, "--name", f"source-{number}"]
    copied = _ran("mirror", *words, "--topics", TOPIC, "--once", "--json")["copied"]
    seconds = time.perf_counter() - begin
    if copied < messages:
        raise loadgen.LoadFailed(f"the mirror copied {copied:,} of {messages:,} messages")
    after = os.times()
    spent = after.children_user + after.children_system
    spent -= children.children_user + children.children_system
    return {
        "rate": messages / seconds,
        "mirror": spent / messages * 1e6,
        "target": (cpu_seconds(target.broker_pid()) - before) / messages * 1e6,
    }


def backups(
    folder: Path, program: Path, rounds: int, scale: float, gib: float, say: Say
) -> list[Held]:
    """The speed of a backup, and the p99 of sends beside backups, by the p99 without."""
    ours = AerobeeCluster(folder / "ours")
    load = replace(BESIDE, count=max(500, int(BESIDE.count * scale)))
    tails: dict[str, list[dict[str, float]]] = {"without": [], "": [], RATE: []}
    speeds: list[dict[str, float]] = []
    try:
        ours.start()
        loadgen.create_topic(ours.broker, TOPIC)
        fill(program, ours, TOPIC, int(gib * GIB / RECORD_BYTES))
        loadgen.create_topic(ours.broker, "Beside")
        loadgen.run(program, ours.broker, "Beside", load)
        for number in range(rounds):
            time.sleep(SETTLE_SECONDS)
            speeds.append(_speeds(ours.store, folder, number))
            say(f"backup: {speeds[-1]}")
            quiet = loadgen.run(program, ours.broker, "Beside", load)["p99_us"]
            tails["without"].append({"p99": quiet, "times": 1.0})
            for rate in ("", RATE):
                time.sleep(SETTLE_SECONDS)
                with _backups(ours.store, folder / f"beside-{number}-{rate}", rate):
                    tail = loadgen.run(program, ours.broker, "Beside", load)["p99_us"]
                tails[rate].append({"p99": tail, "times": tail / quiet})
                say(f"{load.name} {rate}: p99 {quiet:,.0f} us, {tail:,.0f} us beside it")
    finally:
        ours.stop()
    backup, copy = median(speeds, "backup"), median(speeds, "copy")
    rows = [
        Held(
            f"Backup of {gib:g} GiB, part of what a copy with fsync reaches",
            f"{backup / copy:.2f}",
            f">= {COPY_MIN:g}",
            backup >= COPY_MIN * copy,
            f"{backup:,.0f} of {copy:,.0f} MB/s, the files not in memory",
        )
    ]
    for rate, what in (("", "a backup"), (RATE, f"a backup with --rate {RATE}")):
        times = median(tails[rate], "times")
        p99 = f"p99 {median(tails['without'], 'p99'):,.0f} and {median(tails[rate], 'p99'):,.0f} us"
        value, wanted = f"{times:.2f} times the p99 without", f"<= {TIMES_MAX:g} times"
        rows.append(Held(f"SEND 1 x 1 beside {what}", value, wanted, times <= TIMES_MAX, p99))
    return rows


def _speeds(store: Path, folder: Path, number: int) -> dict[str, float]:
    """MB/s of a backup, and of a plain copy of as many bytes of the log."""
    _drop(store)
    begin = time.perf_counter()
    taken = _ran("backup", str(store), str(folder / f"alone-{number}"), "--json")
    backup = taken["read_bytes"] / (time.perf_counter() - begin) / 1e6
    _drop(store)
    begin = time.perf_counter()
    copied = _copy(store, folder / f"copy-{number}", taken["read_bytes"])
    return {"backup": backup, "copy": copied / (time.perf_counter() - begin) / 1e6}


def _files(store: Path) -> list[Path]:
    return [each for each in sorted(store.rglob("*")) if each.is_file()]


def _drop(store: Path) -> None:
    """Have the system forget the files' pages that are on the disk already."""
    for each in _files(store):
        with each.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _copy(store: Path, target: Path, bytes_wanted: int) -> int:
    """Copy this number of bytes of the files, log first, into one file, and sync it."""
    copied = 0
    with target.open("wb") as out:
        for each in _files(store):
            with each.open("rb") as file:
                while copied < bytes_wanted and (part := file.read(COPY_BYTES)):
                    copied += out.write(part)
        out.flush()
        os.fsync(out.fileno())
    return copied


@contextmanager
def _backups(store: Path, target: Path, rate: str) -> Iterator[None]:
    """Take one backup after the other, each into a folder of its own, until the block ends."""
    is_over, begun = threading.Event(), threading.Event()
    words = ["--rate", rate] if rate else []

    def run() -> None:
        number = 0
        while not is_over.is_set():
            argv = [*_COMMAND, "backup", str(store), f"{target}-{number}", "--json", *words]
            with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:  # noqa: S603 - no shell
                begun.set()
                while process.poll() is None and not is_over.wait(0.05):
                    pass
                process.terminate()
            number += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        begun.wait()
        time.sleep(SETTLE_SECONDS)  # until the command reads
        yield
    finally:
        is_over.set()
        thread.join()


_COMMAND = (sys.executable, "-m", "aerobee.scripts.cli")


def _ran(*words: str) -> dict[str, int]:
    """Run a command to its end; the last of its JSON lines. LoadFailed when it fails."""
    done = subprocess.run(  # noqa: S603 - no shell
        [*_COMMAND, *words], capture_output=True, text=True, timeout=RUN_SECONDS_MAX
    )
    if done.returncode != 0:
        raise loadgen.LoadFailed(f"aerobee {' '.join(words)}: {done.stderr[-1_000:]}")
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found
