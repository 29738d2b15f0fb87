"""The console's metrics: what a broker tells, and nothing for what is not known."""

from collections.abc import Iterator

import pytest
from aerobee.console.clusters.clusters import Clusters
from aerobee.console.clusters.metrics import families
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.stats import (
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from aerobee.protocol.command import Response
from aerobee.protocol.names import DLQ_PREFIX

from ...client.fakes import until
from ..fake_cluster import Shop

Figures = dict[tuple[str, tuple[str, ...]], float]


def figures(clusters: Clusters) -> Figures:
    """Values by metric, without its prefix, and labels after `watched`."""

    def rows() -> Iterator[tuple[tuple[str, tuple[str, ...]], float]]:
        for name, _, _, _, samples in families(clusters):
            for sample in samples:
                if sample is not None:
                    labels, value = sample
                    assert labels[0] == "main"
                    assert isinstance(value, float | int)
                    yield (name.removeprefix("aerobee_console_"), tuple(labels[1:])), value

    return dict(rows())


async def watched(shop: Shop, *, singly: bool) -> Figures:
    """The figures once the group's are known."""
    await shop.start()
    clusters = Clusters({"main": shop.address})
    await clusters.start()
    collector = clusters.by_name["main"].collector
    try:
        collector.want("shop")
        await collector.sampled.wait()
        await until(lambda: collector.groups()["shop"].at_ms is not None)
        await until(lambda: collector.topics()[DLQ_PREFIX + "shop"].at_ms is not None)
        assert all(one.asks_singly == singly for one in collector.brokers.values())
        return figures(clusters)
    finally:
        await clusters.stop()
        await shop.stop()


async def test_groups_and_brokers_of_ours() -> None:
    found = await watched(Shop("shop"), singly=False)
    assert found["group_lag_messages", ("shop", "shop", "false")] == 3
    assert found["group_lag_milliseconds", ("shop", "shop", "false")] == 5_000
    assert found["group_members", ("shop",)] == 1
    assert found["group_dead_letters", ("shop",)] == 2
    assert found["group_subscriptions_differ", ("shop",)] == 1
    up = [value for (name, _), value in found.items() if name == "broker_up"]
    assert up == [1]
    assert not any(name == "broker_disk_ratio" for name, _ in found)  # it did not tell


@pytest.mark.parametrize("tells", [True, False])
async def test_a_group_of_a_java_broker_has_the_age_that_the_broker_tells(tells: bool) -> None:
    shop = Shop("shop", is_java=True)
    if tells:
        spans = [QueueTimeSpan(MessageQueue("shop", "shop", 0), 1, 2, 3, 8_000)]
        body = QueryConsumeTimeSpanBody(spans).encode()
        shop.broker.answers[codes.QUERY_CONSUME_TIME_SPAN] = lambda *_: Response(body=body)
    bounds = {MessageQueue(DLQ_PREFIX + "shop", "shop", 0): TopicOffset(1, 5, 77_000)}
    stats = TopicStatsTable(bounds, 0.0).encode()
    shop.broker.answers[codes.GET_TOPIC_STATS_INFO] = lambda *_: Response(body=stats)
    found = await watched(shop, singly=True)
    assert found["group_lag_messages", ("shop", "shop", "false")] == 3
    assert found["group_dead_letters", ("shop",)] == 4
    age = found.get(("group_lag_milliseconds", ("shop", "shop", "false")))
    assert age == (8_000 if tells else None)
