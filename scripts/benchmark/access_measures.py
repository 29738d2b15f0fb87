"""What `scripts/bench --only access` measures: sends to brokers that check users and access lists.

Both brokers check the signature and the access list of an ordinary user for each send.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from ...client import Admin, Security
from ..harness.clusters import Cluster
from ..loads import signedgen
from .measures import CASES, Case, Compared, Say, cpu_seconds, rate_row

ADMIN, SHOP, SECRET, TOPIC = "admin", "shop", "12345678", "Signed"
CASE = Case(replace(CASES[0].load, name="SEND 64 x 1, 128 B, access control"), 2.5)
AUTH = "org.apache.rocketmq.auth"


def settings(folder: Path) -> dict[str, str | int]:
    """The broker's settings with all checks; `folder` keeps RocketMQ's users and lists."""
    found: dict[str, str | int] = {
        "authConfigPath": str(folder / "auth"),
        "initAuthenticationUser": f'{{"username":"{ADMIN}","password":"{SECRET}"}}',
        "innerClientAuthenticationCredentials": (f'{{"accessKey":"inner","secretKey":"{SECRET}"}}'),
    }
    for what in ("authentication", "authorization"):
        place, name = f"{AUTH}.{what}.provider", what.capitalize()
        found[f"{what}Enabled"] = "true"
        found[f"{what}Provider"] = f"{place}.Default{name}Provider"
        found[f"{what}MetadataProvider"] = f"{place}.Local{name}MetadataProvider"
    return found


def signed_sends(
    java: Cluster, ours: Cluster, rounds: int, scale: float, say: Say
) -> list[Compared]:
    """Messages a second of signed sends, after a full load of each side to warm it up."""
    for side in (java, ours):
        asyncio.run(_allowed(side))
        signedgen.start(side.broker, TOPIC, SHOP, SECRET, CASE.load)
    load = replace(CASE.load, count=int(CASE.load.count * scale))
    found: dict[str, list[dict[str, float]]] = {"java": [], "aerobee": []}
    for _ in range(rounds):
        for side in (java, ours):
            before = cpu_seconds(side.broker_pid())
            result = signedgen.start(side.broker, TOPIC, SHOP, SECRET, load)
            result["cpu_us"] = (cpu_seconds(side.broker_pid()) - before) / load.count * 1e6
            found[side.kind].append(result)
            say(f"{load.name}: {side.kind} {result['msgs_per_s']:,.0f}/s")
    return [rate_row(CASE, found)]


async def _allowed(side: Cluster) -> None:
    """Create the topic, and the user that may send to it."""
    async with Admin(side.namesrv, security=Security(ADMIN, SECRET)) as admin:
        await admin.create_topic(TOPIC, signedgen.QUEUES)
        await admin.create_user(SHOP, SECRET)
        await admin.allow(SHOP, f"Topic:{TOPIC}", "Pub")
