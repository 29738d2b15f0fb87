"""The console's metrics by HTTP: for known hosts only, and nothing else on that port."""

from functools import partial

import aiohttp
import pytest
from aerobee.console.access.guard import HostList
from aerobee.console.clusters.clusters import Clusters
from aerobee.console.clusters.metrics import metrics_text
from aerobee.console.metrics_port import MetricsPort

from .fake_cluster import Shop


def port_of(clusters: Clusters, port: int, *hosts: str) -> MetricsPort:
    """The port of a console's metrics."""
    return MetricsPort(
        "127.0.0.1",
        port,
        partial(metrics_text, clusters),
        setting="--metrics-port",
        check=HostList(hosts).check,
    )


async def test_the_port_serves_metrics_to_its_hosts_alone() -> None:
    shop = Shop("shop")
    await shop.start()
    clusters = Clusters({"main": shop.address})
    port = port_of(clusters, 0, "mon.example")
    await clusters.start()
    await port.start()
    try:
        await clusters.by_name["main"].collector.sampled.wait()
        async with aiohttp.ClientSession() as session:
            for host, status in ((None, 200), ("mon.example", 200), ("evil.example", 421)):
                headers = {} if host is None else {"Host": host}
                async with session.get(port.url, headers=headers) as answer:
                    assert answer.status == status
                    text = await answer.text()
                assert ("aerobee_console_broker_up" in text) == (status == 200)
            async with session.get(port.url.replace("metrics", "overview")) as answer:
                assert answer.status == 404
        taken = port_of(clusters, port.port)
        with pytest.raises(OSError, match="correct --metrics-port"):
            await taken.start()
    finally:
        await port.stop()
        await clusters.stop()
        await shop.stop()
