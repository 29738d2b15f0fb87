"""A name server at a glance."""

from aerobee.namesrv.overview import families, note, overview
from aerobee.namesrv.registration import Registration
from aerobee.namesrv.server import NameServer
from aerobee.protocol.bodies.data_version import DataVersion
from aerobee.protocol.bodies.topic import TopicConfig

from ..steps import result_of


def register(
    server: NameServer,
    *names: str,
    addr: str = "10.0.0.1:10911",
    connection: str = "a connection",
) -> None:
    topics = {name: TopicConfig(name, 3, 2) for name in names or ("orders", "payments")}
    said = Registration("c-1", "b-1", 0, addr, topics, DataVersion())
    server.routes.register(said, 0, connection)


async def test_brokers_and_topics_are_listed(namesrv: NameServer) -> None:
    register(namesrv)
    found = result_of(overview(namesrv))
    assert found["daemon"] == "name server"
    assert found["address"] == namesrv.address
    assert [tuple(row.values()) for row in found["brokers"]] == [
        ("b-1", "c-1", 0, "10.0.0.1:10911")
    ]
    assert [tuple(row.values()) for row in found["topics"]] == [
        ("orders", ["b-1"], 2, 3),
        ("payments", ["b-1"], 2, 3),
    ]
    assert found["several_masters"] == []


async def test_topics_of_the_system_are_shown_when_they_are_wanted(namesrv: NameServer) -> None:
    names = ("orders", "%RETRY%g", "RMQ_SYS_TRACE_TOPIC", "BenchmarkTest", "c-1", "c-1_REPLY_TOPIC")
    register(namesrv, *names, "%DLQ%g")
    found = result_of(overview(namesrv))
    assert [row["topic"] for row in found["topics"]] == ["%DLQ%g", "orders"]
    found = result_of(overview(namesrv, with_system=True))
    assert {row["topic"] for row in found["topics"]} == {*names, "%DLQ%g"}


async def test_two_masters_of_a_name_are_shown_as_long_as_both_are_there(
    namesrv: NameServer,
) -> None:
    register(namesrv)
    assert note(namesrv) is None
    register(namesrv, addr="10.0.0.2:10911", connection="another connection")
    assert result_of(overview(namesrv))["several_masters"] == [
        {"broker": "b-1", "cluster": "c-1", "masters": ["10.0.0.1:10911", "10.0.0.2:10911"]}
    ]
    assert note(namesrv) == "more than one master is registered of b-1"
    assert numbers(namesrv)["aerobee_namesrv_masters"] == [2]
    namesrv.routes.lost("a connection")
    assert note(namesrv) is None
    assert numbers(namesrv)["aerobee_namesrv_masters"] == [1]


def numbers(server: NameServer) -> dict[str, list[float]]:
    return {name: [value for _, value in values] for name, _, _, _, values in families(server)}


async def test_its_metrics_count_clusters_brokers_and_topics(namesrv: NameServer) -> None:
    register(namesrv)
    assert numbers(namesrv) == {
        "aerobee_build_info": [1],
        "aerobee_namesrv_clusters": [1],
        "aerobee_namesrv_brokers": [1],
        "aerobee_namesrv_topics": [2],
        "aerobee_namesrv_masters": [1],
        "aerobee_namesrv_master_changes_total": [0],
    }
