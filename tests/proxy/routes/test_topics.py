"""Routes and queues of topics."""

from pathlib import Path

import pytest
from aerobee.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from aerobee.proxy.messages.status import Code, StatusError
from aerobee.proxy.routes.topics import consistent_hash, route_of
from aerobee.proxy.server import Proxy
from aerobee.proxy.settings.config import ProxyConfig
from aerobee.testing import LocalCluster

from ...broker.static_cluster import static_cluster
from ..support import setup


def test_queues_are_readable_where_anyone_serves_and_writable_at_masters() -> None:
    data = TopicRouteData(
        queue_datas=[QueueData("b", 2, 1, 6), QueueData("a", 1, 2, 6), QueueData("c", 1, 1, 4)],
        broker_datas=[
            BrokerData("c", "a", {0: "x"}),
            BrokerData("c", "b", {1: "y"}),
            BrokerData("c", "c", {0: "z"}),
        ],
    )
    route = route_of("T", data)
    assert route.readable == (("a", 1), ("b", 2), ("c", 1))
    assert route.writable == (("a", 0), ("a", 1))


@pytest.mark.parametrize(
    ("seed", "buckets", "wanted"),
    # com.google.common.hash.Hashing.consistentHash
    [(0, 1, 0), (0, 8, 0), (97, 8, 0), (110182, 8, 4), (-1, 16, 10), (2_147_483_647, 1_000, 231)],
)
def test_a_group_has_the_queue_that_rocketmq_s_proxy_gives_it(
    seed: int, buckets: int, wanted: int
) -> None:
    assert consistent_hash(seed, buckets) == wanted


async def test_the_settings_of_a_group_come_from_a_broker() -> None:
    with LocalCluster() as cluster:
        async with setup(cluster) as proxied:
            await proxied.create_group("known", retry_max_times=3)
            topics = proxied.proxy.service.topics
            assert (await topics.group("known")).retry_max_times == 3
            assert (await topics.group("unknown")).retry_max_times == 16


async def test_a_static_topic_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with static_cluster(tmp_path, "a", "b") as cluster:
        await cluster.create("Moving", ["a", "b"])
        config = ProxyConfig(namesrv_addr=f"127.0.0.1:{cluster.names.port}", grpc_server_port=0)
        proxy = Proxy(config)
        await proxy.start()
        try:
            with pytest.raises(StatusError, match="topic Moving is static") as refused:
                await proxy.service.topics.route("Moving")
            assert refused.value.code == Code.UNSUPPORTED
        finally:
            await proxy.stop()
