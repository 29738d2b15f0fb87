"""RocketMQ's proxy and ours, before our brokers and RocketMQ's: the clients of RocketMQ 5, which
speak gRPC, find the same with each.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aerobee.scripts.harness import java_side
from aerobee.scripts.harness.child import Child
from aerobee.scripts.harness.clusters import (
    CLUSTER_NAME,
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    Cluster,
    JavaCluster,
)

from .programs import SECONDS, Java, Mqadmin, side_by_side
from .raw_calls import raw_codes

SETTINGS: dict[str, str | int] = {
    **SMALL_FILES,
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "transactionCheckInterval": 1_000,
    "transactionTimeOut": 1_000,
    "transactionCheckMax": 100,
}
TOPICS = {"Normal": "NORMAL", "Fifo": "FIFO", "Delay": "DELAY", "Trans": "TRANSACTION"}
GROUPS = ("Simple", "Selected", "Pushed", "Ordered", "Delayed", "Paid")
PARTS = ("simple", "hidden", "selected", "pushed", "ordered", "delayed", "transactions")


# What RocketMQ's proxy answers to raw calls, and where ours differs.
CODES: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden" / "grpc_codes.json").read_text()
)
OURS: dict[str, Any] = {
    # A code that says what is wrong; RocketMQ's says that the server failed.
    "AckMessage: no handle": "INVALID_RECEIPT_HANDLE",
    "entries of no handle": ["INVALID_RECEIPT_HANDLE"],
    "EndTransaction: an unknown id": "INVALID_TRANSACTION_ID",
    # It is asked for its type first, which is UNSPECIFIED.
    "SendMessage: an unknown topic": "TOPIC_NOT_FOUND",
    "SendMessage: a property of brokers": "ILLEGAL_MESSAGE_PROPERTY_KEY",
    "entries of three": 3,
    # Served here.
    "UpdateOffset: nothing": "ILLEGAL_CONSUMER_GROUP",
    "GetOffset: nothing": "ILLEGAL_CONSUMER_GROUP",
    "QueryOffset: nothing": "ILLEGAL_TOPIC",
}


@dataclass(frozen=True)
class StartProxy:
    """Starts proxies of one kind: before this cluster, on this port."""

    kind: str
    start: Callable[[Cluster, int], None]
    speaks_tls: bool
    _ports: dict[str, int] = field(default_factory=dict)

    def port(self, cluster: Cluster) -> int:
        """The port of the one proxy before this cluster, which is started where there is none."""
        found = self._ports.get(cluster.namesrv)
        if found is None:
            (found,) = java_side.free_ports(1)  # the proxy tells it to its clients
            self._ports[cluster.namesrv] = found
            self.start(cluster, found)
        return found


@pytest.fixture(scope="module", params=["aerobee", "java"])
def start_proxy(
    request: pytest.FixtureRequest, java_is_here: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartProxy]:
    """What starts proxies of one kind."""
    folder = tmp_path_factory.mktemp("proxies")
    if request.param == "java":
        programs = Java(folder, java_side.PROXY)

        def start_java(cluster: Cluster, port: int) -> None:
            proxy = programs.start(
                "Proxy", namesrv=cluster.namesrv, cluster=CLUSTER_NAME, port=port
            )
            proxy.wait_event("started", SECONDS)

        yield StartProxy("java", start_java, speaks_tls=False)  # the harness starts it without
        programs.stop()
        return
    children: list[Child] = []

    def start_ours(cluster: Cluster, port: int) -> None:
        children.append(our_proxy(folder, cluster, port))

    yield StartProxy("aerobee", start_ours, speaks_tls=True)
    for child in children:
        assert child.stop() == 0, child.tail()


def our_proxy(folder: Path, cluster: Cluster, port: int) -> Child:
    """`aerobee proxy` before a cluster, once it serves."""
    words = ("-m", "aerobee.scripts.cli", "proxy", "-n", cluster.namesrv)
    argv = [sys.executable, *words, "--listen-port", str(port)]
    child = Child(argv, folder / f"proxy-{port}.stderr", cwd=folder)
    child.wait_line(lambda line: "ready" in line, SECONDS)
    return child


@pytest.fixture(scope="module")
def both(
    start_proxy: StartProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Cluster]]:
    ours = AerobeeCluster(tmp_path_factory.mktemp("aerobee-proxied"), SETTINGS)
    real = JavaCluster(tmp_path_factory.mktemp("java-proxied"), SETTINGS, flags=TEST_BROKER_FLAGS)
    with side_by_side(ours, real) as started:
        yield started


@pytest.fixture(scope="module")
def clients(java_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """What starts clients of proxies."""
    found = Java(tmp_path_factory.mktemp("proxied"), java_side.GRPC)
    yield found
    found.stop()


def create(cluster: Cluster, mqadmin: Mqadmin) -> None:
    """The topics with their kinds of message, and the groups: the proxy creates neither."""
    for topic, kind in TOPICS.items():
        mqadmin.create_topic(cluster, topic, 4, f"+message.type={kind}")
    for group in GROUPS:
        words = ("-n", cluster.namesrv, "-b", cluster.broker, "-g", group)
        answer = mqadmin("updateSubGroup", *words, "-o", str(group == "Ordered").lower())
        assert "success" in answer, answer


def tell(cluster: Cluster, start_proxy: StartProxy, clients: Java) -> dict[str, Any]:
    """What came of each part with a proxy before these servers; Java's over TLS where it can be."""
    port = start_proxy.port(cluster)
    tls = {"tls": True} if start_proxy.speaks_tls and cluster.kind == "java" else {}
    client = clients.start("Grpc", proxy=f"127.0.0.1:{port}", **tls)
    client.wait_event("done", 2 * SECONDS)
    return {part: client.events(part)[0] for part in PARTS}


@pytest.mark.requirement("Name server: RocketMQ's proxy before our broker, with the gRPC client 5")
def test_the_clients_of_a_proxy_get_every_kind_of_message(
    both: tuple[Cluster, Cluster], mqadmin: Mqadmin, start_proxy: StartProxy, clients: Java
) -> None:
    for cluster in both:
        create(cluster, mqadmin)
    with ThreadPoolExecutor(2) as pool:
        ours, real = pool.map(lambda cluster: tell(cluster, start_proxy, clients), both)
    assert ours == real
    found = {part: line["found"] for part, line in ours.items()}
    assert found == {
        "simple": [f"simple-{number}#1" for number in range(5)],
        "hidden": ["hidden#2"],
        "selected": ["warm#1"],
        "pushed": ["pushed-0#1", "pushed-1#1", "pushed-1#2", "pushed-2#1"],
        "ordered": [f"ordered-{number}#1" for number in range(6)],
        "delayed": ["delayed#1"],
        "transactions": ["committed#1", "open#1"],
    }
    assert ours["hidden"]["first"] == "hidden#1"
    assert not ours["delayed"]["early"]
    assert ours["transactions"]["checked"]


def test_raw_calls_are_answered_with_the_codes_of_rocketmqs_proxy(
    both: tuple[Cluster, Cluster], start_proxy: StartProxy
) -> None:
    with ThreadPoolExecutor(2) as pool:
        ports = list(pool.map(start_proxy.port, both))

    async def ask() -> list[dict[str, Any]]:
        calls = (
            raw_codes(cluster.namesrv, port) for cluster, port in zip(both, ports, strict=True)
        )
        return await asyncio.gather(*calls)

    ours, real = asyncio.run(ask())
    assert ours == real  # by the kind of broker behind the proxy
    assert ours == CODES | (OURS if start_proxy.kind == "aerobee" else {})
