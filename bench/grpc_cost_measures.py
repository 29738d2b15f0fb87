"""What our proxy costs beside the calls themselves: memory after many calls, idle clients, and what
senders by remoting lose beside senders by gRPC. `scripts/bench --only grpc` measures them last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from .loads import grpcgen, loadgen
from .loads.loadgen import Load
from .measures import MILLION, Say, cpu_seconds, resident_mib
from .store_measures import Held

GROWTH_MIB_MAX = 8.0
FEW_CALLS = 10_000
IDLE_CLIENTS, IDLE_SECONDS = 1_000, 60.0
IDLE_MIB_MAX, IDLE_CORE_MAX = 60.0, 0.05
GRPC_SENDERS, GRPC_CALLS_PER_S = 64, 1_000
REMOTING = Load("SEND 64 x 1, 128 B", "send", 120_000, conns=64)
REMOTING_LEAST = 0.8
TOPIC = "BesideGrpc"


@dataclass(frozen=True, slots=True)
class Measured:
    """Our side: the port of the proxy, its processes, its broker, and a call that it serves."""

    port: int
    pids: Callable[[], list[int]]
    broker: str
    path: str
    request: bytes


def costs(ours: Measured, program: Path, scale: float, say: Say) -> list[Held]:
    """A row for each; `program` is the load generator for remoting."""
    found = [
        many_calls(ours, max(2 * FEW_CALLS, int(MILLION * scale))),
        asyncio.run(idle_clients(ours, IDLE_SECONDS * min(1.0, scale))),
        beside(ours, program, replace(REMOTING, count=int(REMOTING.count * scale))),
    ]
    for row in found:
        say(f"{row.name}: {row.value}")
    return found


def many_calls(ours: Measured, count: int) -> Held:
    """Memory at the end of many calls on one connection, and after its first ones."""
    first = 0.0
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        few = grpcgen.h2load(ours.port, ours.path, ours.request, FEW_CALLS, 1, 16)
        enough_s = FEW_CALLS / few["calls_per_s"]
        began = time.monotonic()
        load = pool.submit(grpcgen.h2load, ours.port, ours.path, ours.request, count, 1, 16)
        last = 0.0
        while not load.done():
            last = _mib(ours)
            if not first and time.monotonic() - began >= enough_s:
                first = last
            time.sleep(0.1)
        load.result()
    grown = last - first
    return Held(
        f"Resident after {count:,} calls on a connection, more than after {FEW_CALLS:,}",
        f"{grown:+.1f} MiB",
        f"<= {GROWTH_MIB_MAX:g} MiB",
        grown <= GROWTH_MIB_MAX,
        f"{first:.0f} MiB after {FEW_CALLS:,}",
    )


async def idle_clients(ours: Measured, seconds: float) -> Held:
    """Memory and processor time of clients with telemetry that only send heartbeats."""
    before = _mib(ours)
    async with grpcgen.idle(ours.port, IDLE_CLIENTS):
        spent, began = _cpu(ours), time.monotonic()
        await asyncio.sleep(seconds)
        share = (_cpu(ours) - spent) / (time.monotonic() - began)
        more = _mib(ours) - before
    return Held(
        f"{IDLE_CLIENTS:,} idle clients with telemetry",
        f"{more:.0f} MiB, {share:.1%} of a core",
        f"<= {IDLE_MIB_MAX:g} MiB, <= {IDLE_CORE_MAX:.0%}",
        more <= IDLE_MIB_MAX and share <= IDLE_CORE_MAX,
        f"a heartbeat each {grpcgen.HEARTBEAT_SECONDS:g} s",
    )


def beside(ours: Measured, program: Path, load: Load) -> Held:
    """The rate of senders by remoting, with and without senders by gRPC at a fixed rate."""
    loadgen.create_topic(ours.broker, TOPIC)
    loadgen.run(program, ours.broker, TOPIC, load)  # warms up
    alone = loadgen.run(program, ours.broker, TOPIC, load)["msgs_per_s"]
    seconds = load.count / alone
    calls = int(GRPC_CALLS_PER_S * seconds * 2)  # more than the other load lasts
    with ThreadPoolExecutor(1) as pool:
        senders, rate = GRPC_SENDERS, GRPC_CALLS_PER_S / GRPC_SENDERS
        grpc = pool.submit(
            lambda: grpcgen.h2load(ours.port, ours.path, ours.request, calls, senders, 1, rate)
        )
        time.sleep(min(1.0, seconds / 4))
        together = loadgen.run(program, ours.broker, TOPIC, load)["msgs_per_s"]
        grpc.result()
    share = together / alone
    return Held(
        f"Remoting SEND 64 x 1 beside {GRPC_SENDERS} gRPC senders, {GRPC_CALLS_PER_S:,} calls/s",
        f"{share:.2f} of its rate",
        f">= {REMOTING_LEAST:g}",
        share >= REMOTING_LEAST,
        f"{alone:,.0f}/s alone",
    )


def _mib(ours: Measured) -> float:
    return sum(resident_mib(pid)["VmRSS"] for pid in ours.pids())


def _cpu(ours: Measured) -> float:
    return sum(map(cpu_seconds, ours.pids()))
