"""What a name server tells of itself, and its metrics."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

from ..conf.version import own_version
from ..protocol.bodies.route import MASTER_ID
from ..protocol.names import RETRY_PREFIX, is_system_topic
from .server import NameServer

Overview = dict[str, Any]
# Name, "counter" or "gauge", description, names of the labels, and the values by their labels.
Family = tuple[str, str, str, Sequence[str], Iterable[tuple[Sequence[str], float]]]


def overview(server: NameServer, *, with_system: bool = False) -> Generator[None, None, Overview]:
    """The steps of reading the name server's present state: topics may be many, and requests are
    served between two steps. `with_system` shows the topics of the system as well."""
    routes = server.routes
    own = _own_topics(server)
    topics = []
    for topic, queues in sorted(routes.topics.items()):
        yield
        is_of_system = is_system_topic(topic) or topic in own or topic.startswith(RETRY_PREFIX)
        if with_system or not is_of_system:
            topics.append(
                {
                    "topic": topic,
                    "brokers": sorted(queues),
                    "write_queues": sum(one.write_queue_nums for one in queues.values()),
                    "read_queues": sum(one.read_queue_nums for one in queues.values()),
                }
            )
    return {
        "daemon": "name server",
        "address": server.address,
        "key_value_config": server.config.kv_config_path,
        "clusters": sorted(routes.clusters),
        "brokers": [
            {"broker": name, "cluster": broker.cluster or "", "broker_id": number, "address": addr}
            for name, broker in sorted(routes.brokers.items())
            for number, addr in sorted(broker.broker_addrs.items())
        ],
        "topics": topics,
        "several_masters": [
            {"broker": name, "cluster": cluster, "masters": masters}
            for (cluster, name), masters in _masters(server).items()
            if len(masters) > 1
        ],
    }


def note(server: NameServer) -> str | None:
    """The note for the operator about a healthy name server; None without one."""
    doubled = [name for (_, name), masters in _masters(server).items() if len(masters) > 1]
    if not doubled:
        return None
    return f"more than one master is registered of {', '.join(doubled)}"


def families(server: NameServer) -> Iterator[Family]:
    """The name server's metrics; a Java one has none, so the names are ours."""
    routes = server.routes
    numbers = [
        ("aerobee_namesrv_clusters", "Clusters with a broker", len(routes.clusters)),
        ("aerobee_namesrv_brokers", "Broker addresses that are alive", len(routes.live)),
        ("aerobee_namesrv_topics", "Topics with a route", len(routes.topics)),
    ]
    text = "The version of aerobee, as a label; the value is 1"
    yield "aerobee_build_info", "gauge", text, ("version",), [((own_version(),), 1)]
    for name, text, value in numbers:
        yield name, "gauge", text, (), [((), value)]
    yield (
        "aerobee_namesrv_masters",
        "gauge",
        "Live addresses registered as master of a broker name, 1 is right",
        ("cluster", "broker"),
        [(key, len(masters)) for key, masters in _masters(server).items()],
    )
    yield (
        "aerobee_namesrv_master_changes_total",
        "counter",
        "Changes of a broker name's master while the master before was alive",
        (),
        [((), server.master_changes.count)],
    )


def _masters(server: NameServer) -> dict[tuple[str, str], list[str]]:
    """The live addresses of masters, by cluster and broker name."""
    found: dict[tuple[str, str], list[str]] = {
        (broker.cluster or "", name): [] for name, broker in sorted(server.routes.brokers.items())
    }
    for (cluster, addr), live in server.routes.live.items():
        if live.broker_id == MASTER_ID:
            found.setdefault((cluster, live.broker_name), []).append(addr)
    return found


def _own_topics(server: NameServer) -> set[str]:
    """Topics that bear the names of clusters and brokers."""
    clusters = server.routes.clusters
    return {*clusters, *server.routes.brokers, *(f"{name}_REPLY_TOPIC" for name in clusters)}
