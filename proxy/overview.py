"""The status page and the metrics of a proxy."""

import socket
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence

from ..conf.version import own_version
from .calls.counts import BOUNDS_MS
from .messages.status import Code
from .server import Proxy

Cell = str | int | float
# A table is its title, its columns and its rows; an overview its title, its facts and its tables.
Table = tuple[str, Sequence[str], Sequence[Sequence[Cell]]]
Overview = tuple[str, Sequence[tuple[str, Cell]], Sequence[Table]]
Histogram = tuple[Sequence[float], Sequence[int], float]
# Name, "counter", "gauge" or "histogram", description, names of the labels, values by labels.
Family = tuple[str, str, str, Sequence[str], Iterable[tuple[Sequence[str], float | Histogram]]]

CLIENTS_SHOWN_MAX = 1_000
NODE = ("cluster", "node_type", "node_id")
_LONG_POLLING = {"ReceiveMessage", "PullMessage"}


def overview(proxy: Proxy, *, with_system: bool = False) -> Generator[None, None, Overview]:
    """The steps of looking at the proxy as it is now; clients may be many."""
    service, config = proxy.service, proxy.config
    clients: list[tuple[Cell, ...]] = []
    for client in service.clients:
        if len(clients) == CLIENTS_SHOWN_MAX:
            break
        yield
        of = client.group or ", ".join(client.topics[:5])
        state = "connected" if client.streams else "no stream"
        clients.append(
            (client.client_id, client.language, client.version, of, client.address, state)
        )
    facts: list[tuple[str, Cell]] = [
        ("Address", proxy.address),
        ("Name servers", config.namesrv_addr or "127.0.0.1:9876"),
        ("TLS", config.tls_server_mode),
        ("Clients", len(service.clients)),
        ("Connections", len(proxy.shared.connections)),
        ("Calls under way", proxy.calls_under_way),
        ("Messages in work", len(service.keeper)),
    ]
    rpcs = [
        (rpc, _name(code), found.count, round(found.total_ms / found.count, 1))
        for (rpc, code), found in sorted(service.counts.latencies.items())
    ]
    brokers = [(name, service.brokers.address(name) or "") for name in service.brokers.names()]
    tables: list[Table] = [
        ("Calls", ("RPC", "Code", "Calls", "Mean ms"), rpcs),
        ("Brokers", ("Broker", "Address"), sorted(brokers)),
        (
            "Clients",
            ("Client", "Language", "Version", "Group or topics", "Address", "Telemetry"),
            sorted(clients),
        ),
    ]
    return "aerobee proxy", facts, tables


def note(proxy: Proxy) -> str | None:
    """What an operator should know of a proxy that is well: nothing."""
    return None


def families(proxy: Proxy) -> Iterator[Family]:
    """The proxy's metrics: RocketMQ's where it has them, else ours."""
    service, config = proxy.service, proxy.config
    node = (config.proxy_cluster_name, "proxy", config.proxy_name or socket.gethostname())
    text = "The version of aerobee, as a label; the value is 1"
    yield "aerobee_build_info", "gauge", text, ("version",), [((own_version(),), 1)]
    up = (*NODE, "proxy_mode")
    yield "rocketmq_proxy_up", "gauge", "Proxy status", up, [((*node, "cluster"), 1)]
    labels = (*NODE, "protocol_type", "request_code", "response_code", "is_long_polling")
    rpcs = [
        (
            (*node, "grpc", rpc, _name(code), "true" if rpc in _LONG_POLLING else "false"),
            (BOUNDS_MS, found.counts, found.total_ms),
        )
        for (rpc, code), found in sorted(service.counts.latencies.items())
    ]
    text = "From a call's arrival to its last answer, ms"
    yield "rocketmq_rpc_latency_milliseconds", "histogram", text, labels, rpcs
    yield (
        *("aerobee_proxy_calls_total", "counter"),
        *("Calls that ended, by the status of gRPC", (*NODE, "method", "grpc_status")),
        [
            ((*node, method.decode(errors="replace"), str(status)), count)
            for (method, status), count in sorted(proxy.shared.ended.items())
        ],
    )
    languages = Counter(client.language.lower() for client in service.clients)
    yield (
        *("aerobee_proxy_clients", "gauge", "Clients by language", (*NODE, "language")),
        [((*node, language), count) for language, count in sorted(languages.items())],
    )
    streams = sum(len(client.streams) for client in service.clients)
    for what, kind, text, value in (
        ("connections", "gauge", "Open connections of clients", len(proxy.shared.connections)),
        ("calls_under_way", "gauge", "Calls that have not ended", proxy.calls_under_way),
        ("telemetry_streams", "gauge", "Open telemetry streams", streams),
        ("messages_in_work", "gauge", "Handles that the proxy remembers", len(service.keeper)),
        ("renewals_total", "counter", "Renewals of handles", service.keeper.renewals),
        ("failed_renewals_total", "counter", "Renewals that failed", service.keeper.failures),
        (
            "checks_total",
            "counter",
            "Transaction checks sent to producers",
            service.commands.checks,
        ),
    ):
        yield f"aerobee_proxy_{what}", kind, text, NODE, [(node, value)]


def _name(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return str(code)
