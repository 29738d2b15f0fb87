"""What `scripts/bench --only access tls` measures: sends with access control, and over TLS.

Both brokers check the signature and the access list of an ordinary user for each send.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

from ..client import Admin, Security
from ..harness.clusters import AerobeeCluster, Cluster, JavaCluster
from ..protocol.security import self_signed
from .loads import loadgen, signedgen
from .measures import CASES, Case, Compared, Say, alternated, median, rate_row
from .store_measures import Held

ADMIN, SHOP, SECRET, TOPIC = "admin", "shop", "12345678", "Signed"
CASE = Case(replace(CASES[0].load, name="SEND 64 x 1, 128 B, access control"), 2.5)
# Several sends in a write: else the generator, which is slower than the broker, is measured.
COST = replace(CASES[0].load, name="SEND 64 x 8, 128 B, cost of access control", inflight=8)
COST_RATE_MIN = 0.9  # of the rate without
AUTH = "org.apache.rocketmq.auth"
TLS_TOPIC = "OverTls"
TLS_CASE = Case(replace(CASES[0].load, name="SEND 64 x 1, 128 B, TLS"), 1.5)


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
    load = replace(CASE.load, count=int(CASE.load.count * scale))

    def once(side: Cluster, number: int) -> dict[str, float]:
        return signedgen.start(side.broker, TOPIC, SHOP, SECRET, load if number else CASE.load)

    for side in (java, ours):
        asyncio.run(_allowed(side))
    return [rate_row(CASE, alternated((java, ours), range(rounds + 1), load, once, say))]


def cost(folder: Path, rounds: int, scale: float, say: Say) -> Held:
    """Signed sends to a broker with access control beside plain ones to a broker without.

    Both are new, and warmed by a load each. One generator makes both, its frames before the clock
    starts.
    """
    load = replace(COST, count=int(COST.count * scale))
    checked = AerobeeCluster(folder / "checked", settings(folder))
    plain = AerobeeCluster(folder / "plain")
    checked.kind, plain.kind = "checked", "plain"

    def once(side: Cluster, number: int) -> dict[str, float]:
        user = "" if side is plain else SHOP
        return signedgen.start(side.broker, TOPIC, user, SECRET, load if number else COST)

    try:
        plain.start()
        checked.start()
        loadgen.create_topic(plain.broker, TOPIC)
        asyncio.run(_allowed(checked))
        found = alternated((checked, plain), range(rounds + 1), load, once, say)
    finally:
        plain.stop()
        checked.stop()
    (signed, before), (cpu, cpu_before) = (
        [median(found[kind], field) for kind in (checked.kind, plain.kind)]
        for field in ("msgs_per_s", "cpu_us")
    )
    return Held(
        f"{COST.name}: part of the rate without",
        f"{signed / before:.2f}",
        f">= {COST_RATE_MIN:g}",
        signed >= COST_RATE_MIN * before,
        f"{signed:,.0f} of {before:,.0f} messages/s,"
        f" CPU {cpu:.1f} and {cpu_before:.1f} us a message",
    )


async def _allowed(side: Cluster) -> None:
    """Create the topic, and the user that may send to it."""
    async with Admin(side.namesrv, security=Security(ADMIN, SECRET)) as admin:
        await admin.create_topic(TOPIC, signedgen.QUEUES)
        await admin.create_user(SHOP, SECRET)
        await admin.allow(SHOP, f"Topic:{TOPIC}", "Pub")


def tls_sends(
    folder: Path, rounds: int, scale: float, flags: tuple[str, ...], say: Say
) -> list[Compared]:
    """Messages a second over TLS, after a full load of each side to warm it up."""
    pem = folder / "server.pem"
    pem.write_bytes(self_signed.make(time.time()))
    pem.chmod(0o600)
    more = (
        "-Dtls.test.mode.enable=false",
        f"-Dtls.server.certPath={pem}",
        f"-Dtls.server.keyPath={pem}",
    )
    java = JavaCluster(folder / "java", flags=flags + more)
    ours = AerobeeCluster(
        folder / "ours", {"tlsServerCertPath": str(pem), "tlsServerKeyPath": str(pem)}
    )
    load = replace(TLS_CASE.load, count=int(TLS_CASE.load.count * scale))

    def once(side: Cluster, number: int) -> dict[str, float]:
        sent = load if number else TLS_CASE.load
        return signedgen.start(side.broker, TLS_TOPIC, "", "", sent, tls=True)

    try:
        for side in (java, ours):
            side.start()
            loadgen.create_topic(side.broker, TLS_TOPIC)
        found = alternated((java, ours), range(rounds + 1), load, once, say)
    finally:
        java.stop()
        ours.stop()
    return [rate_row(TLS_CASE, found)]
