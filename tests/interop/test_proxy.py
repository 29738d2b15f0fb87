"""RocketMQ's proxy before our broker and ours before RocketMQ's: the client of RocketMQ 5, which
speaks gRPC, finds the same. tests/proxy has our proxy before our broker.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aerobee.harness import java_side
from aerobee.harness.child import Child
from aerobee.harness.clusters import CLUSTER_NAME, Cluster

from ..proxy.clients.told import check_deliveries
from .programs import SECONDS, Java, Mqadmin
from .raw_calls import raw_codes

TOPICS = {"Normal": "NORMAL", "Fifo": "FIFO", "Delay": "DELAY", "Trans": "TRANSACTION"}
GROUPS = ("Simple", "Hidden", "Selected", "Pushed", "Ordered", "Delayed", "Paid")
FOUND = {  # bodies, each with the number of its delivery
    "simple": [f"simple-{number}#1" for number in range(5)],
    "hidden": ["hidden#2"],
    "selected": ["warm#1"],
    "pushed": ["pushed-0#1", "pushed-1#1", "pushed-1#2", "pushed-2#1"],
    "ordered": [f"ordered-{number}#1" for number in range(6)],
    "delayed": ["delayed#1"],
    "transactions": ["committed#1", "open#1"],
}

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


class Proxied(NamedTuple):
    """A proxy and what it stands before."""

    kind: str
    cluster: Cluster
    port: int


@pytest.fixture(scope="module", params=["ours before java", "java before ours"])
def proxied(
    request: pytest.FixtureRequest,
    both: tuple[Cluster, Cluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Proxied]:
    """Each kind before the brokers of the other."""
    folder = tmp_path_factory.mktemp("proxy")
    (port,) = java_side.free_ports(1)  # the proxy tells it to its clients
    ours, real = both
    if request.param.startswith("java"):
        programs = Java(folder, java_side.PROXY)
        proxy = programs.start("Proxy", namesrv=ours.namesrv, cluster=CLUSTER_NAME, port=port)
        try:
            proxy.wait_event("started", SECONDS)
            yield Proxied("java", ours, port)
        finally:
            programs.stop()
        return
    words = ("-m", "aerobee.scripts.cli", "proxy", "-n", real.namesrv, "--listen-port", str(port))
    with Child([sys.executable, *words], folder / "stderr", cwd=folder) as child:
        child.wait_line(lambda line: "ready" in line, SECONDS)
        yield Proxied("aerobee", real, port)
        assert child.stop() == 0, child.tail()


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


def test_the_client_of_a_proxy_gets_every_kind_of_message(
    proxied: Proxied, mqadmin: Mqadmin, clients: Java
) -> None:
    create(proxied.cluster, mqadmin)
    tls = {"tls": True} if proxied.kind == "aerobee" else {}  # the harness starts Java's without
    client = clients.start("Grpc", proxy=f"127.0.0.1:{proxied.port}", **tls)
    client.wait_event("done", 2 * SECONDS)
    told = {part: client.events(part)[0] for part in FOUND}
    check_deliveries({part: line["found"] for part, line in told.items()}, FOUND)
    assert told["hidden"]["first"] == "hidden#1"
    assert not told["delayed"]["early"]
    assert told["transactions"]["checked"]


async def test_raw_calls_are_answered_with_the_codes_of_rocketmqs_proxy(proxied: Proxied) -> None:
    found = await raw_codes(proxied.cluster.namesrv, proxied.port)
    assert found == CODES | (OURS if proxied.kind == "aerobee" else {})
