"""The status page and the metrics of a name server."""

from collections.abc import Generator, Iterable, Iterator, Sequence

from ..conf.version import own_version
from ..protocol.bodies.route import MASTER_ID
from ..protocol.names import RETRY_PREFIX, is_system_topic
from .server import NameServer

Cell = str | int | float
# A table is its title, its columns and its rows; an overview its title, its facts and its tables.
Table = tuple[str, Sequence[str], Sequence[Sequence[Cell]]]
Overview = tuple[str, Sequence[tuple[str, Cell]], Sequence[Table]]
# Name, "counter" or "gauge", description, names of the labels, and the values by their labels.
Family = tuple[str, str, str, Sequence[str], Iterable[tuple[Sequence[str], float]]]


def overview(server: NameServer, *, with_system: bool = False) -> Generator[None, None, Overview]:
    """The steps of looking at the name server as it is now: topics may be many, and requests are
    served between two steps. `with_system` shows the topics of the system as well."""
    routes = server.routes
    own = _own_topics(server)
    topics: list[tuple[Cell, ...]] = []
    for topic, queues in sorted(routes.topics.items()):
        yield
        is_of_system = is_system_topic(topic) or topic in own or topic.startswith(RETRY_PREFIX)
        if with_system or not is_of_system:
            write_queues = sum(one.write_queue_nums for one in queues.values())
            read_queues = sum(one.read_queue_nums for one in queues.values())
            topics.append((topic, ", ".join(sorted(queues)), write_queues, read_queues))
    facts: list[tuple[str, Cell]] = [
        ("Brokers", len(routes.brokers)),
        ("Topics", len(topics)),
        ("Clusters", len(routes.clusters)),
        ("Address", server.address),
        ("Key-value config", server.config.kv_config_path or "in memory only"),
    ]
    brokers = [
        (name, broker.cluster or "", "master" if number == MASTER_ID else f"slave {number}", addr)
        for name, broker in sorted(routes.brokers.items())
        for number, addr in sorted(broker.broker_addrs.items())
    ]
    tables: list[Table] = [
        ("Brokers", ("Broker", "Cluster", "Role", "Address"), brokers),
        ("Topics", ("Topic", "Brokers", "Write queues", "Read queues"), topics),
    ]
    doubled = [
        (name, cluster, ", ".join(masters))
        for (cluster, name), masters in _masters(server).items()
        if len(masters) > 1
    ]
    if doubled:
        columns = ("Broker", "Cluster", "Registered as master")
        tables.insert(0, ("Broker names with more than one master", columns, doubled))
    return "aerobee name server", facts, tables


def note(server: NameServer) -> str | None:
    """What an operator should know of a name server that is well; None for nothing."""
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
        *("aerobee_namesrv_masters", "gauge"),
        "Live addresses registered as master of a broker name, 1 is right",
        ("cluster", "broker"),
        [(key, len(masters)) for key, masters in _masters(server).items()],
    )
    yield (
        *("aerobee_namesrv_master_changes_total", "counter"),
        "Changes of a broker name's master while the master before was alive",
        *((), [((), server.master_changes.count)]),
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
