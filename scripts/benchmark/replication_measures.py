"""Measures the cost of replication: sends to a master with a slave, sync and async.

Master and slave share the machine, each in its own process; aerobee replicates to aerobee, RocketMQ
to RocketMQ. The pair that is not being measured is idle.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.bodies.ha import HARuntimeInfo
from ..harness.clusters import AerobeeCluster, Cluster, JavaCluster
from ..loads import loadgen
from .measures import CASES, Compared, Say, median

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
