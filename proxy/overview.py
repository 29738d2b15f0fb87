"""What a proxy tells of itself, and its metrics."""

import socket
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from ..conf.version import own_version
from .messages.status import Code
from .server import Proxy

Overview = dict[str, Any]
Histogram = tuple[Sequence[float], Sequence[int], float]
# Name, "counter", "gauge" or "histogram", description, names of the labels, values by labels.
Family = tuple[str, str, str, Sequence[str], Iterable[tuple[Sequence[str], float | Histogram]]]

CLIENTS_SHOWN_MAX = 1_000
TOPICS_SHOWN_MAX = 5  # of a client
NODE = ("cluster", "node_type", "node_id")
_LONG_POLLING = {"ReceiveMessage", "PullMessage"}


def overview(proxy: Proxy, *, with_system: bool = False) -> Generator[None, None, Overview]:
    """The steps of reading the proxy's present state; clients may be many."""
    service, config = proxy.service, proxy.config
    clients: list[Overview] = []
    for client in service.clients:
        if len(clients) == CLIENTS_SHOWN_MAX:
            break
        yield
        clients.append(
            {
                "client": client.client_id,
                "language": client.language,
                "version": client.version,
                "group": client.group,
                "topics": client.topics[:TOPICS_SHOWN_MAX],
                "address": client.address,
                "is_connected": bool(client.streams),
            }
        )
    return {
        "daemon": "proxy",
        "address": proxy.address,
        "name_servers": config.namesrv_addr or "127.0.0.1:9876",
        "tls": config.tls_server_mode,
        "clients_connected": len(service.clients),
        "connections": len(proxy.shared.connections),
        "calls_under_way": proxy.calls_under_way,
        "messages_in_work": len(service.keeper),
        "calls": [
            {
                "rpc": rpc,
                "code": _name(code),
                "calls": sum(found.counts),
                "mean_ms": round(found.sum / sum(found.counts), 1),
            }
            for (rpc, code), found in sorted(service.latencies.items())
        ],
        "brokers": {name: service.brokers.address(name) for name in service.brokers.names()},
        "clients": sorted(clients, key=itemgetter("client")),
    }


def note(proxy: Proxy) -> str | None:
    """The note for the operator about a healthy proxy: none."""
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
            (found.bounds, found.counts, found.sum),
        )
        for (rpc, code), found in sorted(service.latencies.items())
    ]
    text = "From a call's arrival to its last answer, ms"
    yield "rocketmq_rpc_latency_milliseconds", "histogram", text, labels, rpcs
    yield (
        "aerobee_proxy_calls_total",
        "counter",
        "Calls that ended, by the status of gRPC",
        (*NODE, "method", "grpc_status"),
        [
            ((*node, method.decode(errors="replace"), str(status)), count)
            for (method, status), count in sorted(proxy.shared.ended.items())
        ],
    )
    languages = Counter(client.language.lower() for client in service.clients)
    yield (
        "aerobee_proxy_clients",
        "gauge",
        "Clients by language",
        (*NODE, "language"),
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
