"""A name server at a glance."""

from aerobee.namesrv.overview import families, overview
from aerobee.namesrv.registration import Registration
from aerobee.namesrv.server import NameServer
from aerobee.protocol.bodies.data_version import DataVersion
from aerobee.protocol.bodies.topic import TopicConfig


def register(server: NameServer) -> None:
    topics = {name: TopicConfig(name, 3, 2) for name in ("orders", "payments")}
    said = Registration("c-1", "b-1", 0, "10.0.0.1:10911", topics, DataVersion())
    server.routes.register(said, 0, "a connection")


async def test_brokers_and_topics_are_listed(namesrv: NameServer) -> None:
    register(namesrv)
    title, facts, tables = overview(namesrv)
    assert title == "aerobee name server"
    assert dict(facts)["Address"] == namesrv.address
    assert tables[0][2] == [("b-1", "c-1", "master", "10.0.0.1:10911")]
    assert tables[1][2] == [("orders", "b-1", 2, 3), ("payments", "b-1", 2, 3)]


async def test_its_metrics_count_clusters_brokers_and_topics(namesrv: NameServer) -> None:
    register(namesrv)
    found = {name: [value for _, value in values] for name, _, _, _, values in families(namesrv)}
    assert found == {
        "aerobee_build_info": [1],
        "aerobee_namesrv_clusters": [1],
        "aerobee_namesrv_brokers": [1],
        "aerobee_namesrv_topics": [2],
    }
