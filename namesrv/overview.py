"""What a person, and a metrics collector, want to see of a name server at a glance."""

from collections.abc import Iterable, Iterator, Sequence

from ..conf.version import own_version
from ..protocol.bodies.route import MASTER_ID
from .server import NameServer

Cell = str | int | float
# A table is its title, its columns and its rows; an overview its title, its facts and its tables.
Table = tuple[str, Sequence[str], Sequence[Sequence[Cell]]]
Overview = tuple[str, Sequence[tuple[str, Cell]], Sequence[Table]]
# Name, "counter" or "gauge", what it is, names of the labels, and the values by their labels.
Family = tuple[str, str, str, Sequence[str], Iterable[tuple[Sequence[str], float]]]


def overview(server: NameServer) -> Overview:
    """The name server as it is now."""
    routes = server.routes
    facts: list[tuple[str, Cell]] = [
        ("Address", server.address),
        ("Clusters", len(routes.clusters)),
        ("Brokers", len(routes.brokers)),
        ("Topics", len(routes.topics)),
    ]
    brokers = [
        (name, broker.cluster or "", "master" if number == MASTER_ID else f"slave {number}", addr)
        for name, broker in sorted(routes.brokers.items())
        for number, addr in sorted(broker.broker_addrs.items())
    ]
    topics = [
        (
            topic,
            ", ".join(sorted(queues)),
            sum(one.write_queue_nums for one in queues.values()),
            sum(one.read_queue_nums for one in queues.values()),
        )
        for topic, queues in sorted(routes.topics.items())
    ]
    return (
        "aerobee name server",
        facts,
        [
            ("Brokers", ("Broker", "Cluster", "Role", "Address"), brokers),
            ("Topics", ("Topic", "Brokers", "Write queues", "Read queues"), topics),
        ],
    )


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
