"""RocketMQ's proxy before our brokers: the clients of RocketMQ 5, which speak gRPC, find with ours
what they find with the real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aerobee.scripts.harness import java_side
from aerobee.scripts.harness.clusters import (
    CLUSTER_NAME,
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    Cluster,
    JavaCluster,
)

from .programs import SECONDS, Java, Mqadmin, side_by_side

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


@pytest.fixture(scope="module")
def both(
    java_is_here: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Cluster]]:
    ours = AerobeeCluster(tmp_path_factory.mktemp("aerobee-proxied"), SETTINGS)
    real = JavaCluster(tmp_path_factory.mktemp("java-proxied"), SETTINGS, flags=TEST_BROKER_FLAGS)
    with side_by_side(ours, real) as started:
        yield started


@pytest.fixture(scope="module")
def programs(
    java_is_here: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Java, Java]]:
    """What starts proxies, and what starts clients of theirs."""
    found = (
        Java(tmp_path_factory.mktemp("proxied"), java_side.PROXY),
        Java(tmp_path_factory.mktemp("proxied"), java_side.GRPC),
    )
    yield found
    for each in found:
        each.stop()


def create(cluster: Cluster, mqadmin: Mqadmin) -> None:
    """The topics with their kinds of message, and the groups: the proxy creates neither."""
    for topic, kind in TOPICS.items():
        mqadmin.create_topic(cluster, topic, 4, f"+message.type={kind}")
    for group in GROUPS:
        words = ("-n", cluster.namesrv, "-b", cluster.broker, "-g", group)
        answer = mqadmin("updateSubGroup", *words, "-o", str(group == "Ordered").lower())
        assert "success" in answer, answer


def tell(cluster: Cluster, proxies: Java, clients: Java) -> dict[str, Any]:
    """What came of each part with a proxy before these servers."""
    (port,) = java_side.free_ports(1)  # the proxy tells it to its clients
    proxy = proxies.start("Proxy", namesrv=cluster.namesrv, cluster=CLUSTER_NAME, port=port)
    proxy.wait_event("started", SECONDS)
    client = clients.start("Grpc", proxy=f"127.0.0.1:{port}")
    client.wait_event("done", 2 * SECONDS)
    return {part: client.events(part)[0] for part in PARTS}


@pytest.mark.requirement("Name server: RocketMQ's proxy before our broker, with the gRPC client 5")
def test_the_clients_of_a_proxy_get_every_kind_of_message(
    both: tuple[Cluster, Cluster], mqadmin: Mqadmin, programs: tuple[Java, Java]
) -> None:
    for cluster in both:
        create(cluster, mqadmin)
    with ThreadPoolExecutor(2) as pool:
        ours, real = pool.map(lambda cluster: tell(cluster, *programs), both)
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
