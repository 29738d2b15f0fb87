"""Measures of copies: `mirror` of a cluster, `backup` of a store."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from ..harness.clusters import AerobeeCluster, Cluster
from .disk import GIB
from .loads import loadgen
from .loads.loadgen import BATCH, RUN_SECONDS_MAX, Load
from .rates import RECORD_BYTES
from .report import Row, held
from .turns import (
    COMMAND,
    QUIET_SECONDS,
    Result,
    Run,
    beside,
    cpu_seconds,
    median,
    repeating,
    running,
    say,
    tail_row,
)

# In one topic each. Messages of one born time are copied together, so two ways to fill it.
MIRRORED = {
    "that were sent in batches": Load("batches", "send", 31_250, conns=4, inflight=8, per=BATCH),
    "that were sent alone": Load("alone", "send", 400_000, conns=4, inflight=64),
}
BESIDE = Load("SEND 1 x 1", "send", 20_000)
TOPIC = "Kept"
COPY_BYTES = 1 << 20
BACKUPS: dict[str, tuple[str, ...]] = {
    "a backup": (),
    "a backup with --rate 50MiB": ("--rate", "50MiB"),
}


def mirrors(run: Run) -> list[Row]:
    """Messages a second that `aerobee mirror --once` copies, its start included."""
    rows: list[Row] = []
    for number, (how, full) in enumerate(MIRRORED.items()):
        load = run.load(full)
        source = run.ours(f"source-{number}")
        results: list[Result] = []
        with running(source):
            loadgen.create_topic(source.broker, TOPIC)
            loadgen.run(run.program, source.broker, TOPIC, load)
            for repeat in range(run.rounds):
                target = run.ours(f"target-{number}-{repeat}")
                with running(target):
                    results.append(_mirrored(source, target, load.count * load.per, repeat))
                say(f"mirror of messages {how}: {results[-1]['rate']:,.0f}/s")
        note = (
            f"{load.count * load.per:,} messages; CPU {median(results, 'mirror'):.1f} us of the"
            f" mirror, {median(results, 'target'):.1f} us of the target a message"
        )
        name, rate = f"Mirror of messages {how}, 128 B", median(results, "rate")
        rows.append(held(name, rate, "{:,.0f} messages/s", ">= 100,000", note))
    return rows


def _mirrored(source: AerobeeCluster, target: AerobeeCluster, messages: int, number: int) -> Result:
    before = cpu_seconds([target.broker_pid()])
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
        "target": (cpu_seconds([target.broker_pid()]) - before) / messages * 1e6,
    }


def backups(run: Run) -> list[Row]:
    """The speed of a backup, and the p99 of sends beside backups, by the p99 without."""
    ours = run.ours()
    speeds = []
    with running(ours):
        loadgen.create_topic(ours.broker, TOPIC)
        loadgen.fill(run.program, ours.broker, TOPIC, int(run.gib * GIB / RECORD_BYTES))
        loadgen.create_topic(ours.broker, "Beside")
        for number in range(run.rounds):
            time.sleep(QUIET_SECONDS)
            speeds.append(_speeds(ours.store, run.folder, number))
            say(f"backup: {speeds[-1]}")

        def others(_: Cluster) -> Iterator[tuple[str, AbstractContextManager[None]]]:
            for what, words in BACKUPS.items():
                time.sleep(QUIET_SECONDS)
                yield what, _backing_up(run.folder, ours.store, words)

        found = beside(run, BESIDE, "Beside", {"aerobee": ours}, others)
    backup, copy = median(speeds, "backup"), median(speeds, "copy")
    name = f"Backup of {run.gib:g} GiB, part of what a copy with fsync reaches"
    note = f"{backup:,.0f} of {copy:,.0f} MB/s, the files not in memory"
    rows = [
        tail_row(f"SEND 1 x 1 beside {what}", each, "<= 2 times") for what, each in found.items()
    ]
    return [held(name, backup / copy, "{:.2f}", ">= 0.9", note), *rows]


@contextmanager
def _backing_up(folder: Path, store: Path, words: tuple[str, ...]) -> Iterator[None]:
    """Take one backup after the other until the block ends."""
    with repeating(partial(_back_up, folder, store, words)):
        time.sleep(QUIET_SECONDS)  # until the command reads
        yield


def _back_up(folder: Path, store: Path, words: tuple[str, ...], is_over: threading.Event) -> None:
    """Take a backup into a folder of its own, or begin to."""
    target = folder / f"beside-{time.monotonic_ns()}"
    argv = [*COMMAND, "backup", str(store), str(target), "--json", *words]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:  # noqa: S603 - no shell
        while process.poll() is None and not is_over.wait(0.05):
            pass
        process.terminate()


def _speeds(store: Path, folder: Path, number: int) -> Result:
    """MB/s of a backup, and of a copy of as many bytes of the log."""
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


def _ran(*words: str) -> dict[str, int]:
    """Run a command to its end; the last of its JSON lines. LoadFailed when it fails."""
    done = subprocess.run(  # noqa: S603 - no shell
        [*COMMAND, *words], capture_output=True, text=True, timeout=RUN_SECONDS_MAX
    )
    if done.returncode != 0:
        raise loadgen.LoadFailed(f"aerobee {' '.join(words)}: {done.stderr[-1_000:]}")
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found
