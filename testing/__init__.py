"""Brokers for tests, without containers and without a JVM: `LocalCluster`, and fixtures of pytest.

Installing aerobee makes the fixtures known to pytest:

    def test_orders(aerobee_cluster):                    # a name server and a broker for this test
        with Producer(aerobee_cluster.name_server) as producer:      # of aerobee.client.blocking
            producer.send(Message("orders", b"...", delay_level=18))
        aerobee_cluster.advance(hours=2)                 # two hours in a few milliseconds

    async def test_two_brokers(aerobee_clusters):
        cluster = aerobee_clusters(brokers=2, messageDelayLevel="1s 2h")   # settings of broker.conf
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cluster import Clock as Clock
    from .cluster import LocalCluster as LocalCluster

__all__ = ["Clock", "LocalCluster"]


def __getattr__(name: str) -> Any:
    # Imported on use: pytest imports this package, for its fixtures, in every run.
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no {name}; it has {', '.join(__all__)}")
    from . import cluster

    return getattr(cluster, name)
