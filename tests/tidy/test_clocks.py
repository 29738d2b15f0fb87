"""Clocks, threads, process ids and chance come from places that a simulation can replace.

`tests/simulation` runs the servers and clients in virtual time, and a seed decides what happens.
That works as long as nothing asks the system on its own. A file that must is named here.
"""

import ast
from collections.abc import Iterator

from . import tree

ROOMS = ("broker", "client", "namesrv", "controller", "protocol")
# What asks the system, by module; "*" is all of it.
ASKS = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep"},
    "threading": {"*"},
    "concurrent.futures": {"ThreadPoolExecutor", "ProcessPoolExecutor"},
    "os": {"getpid", "urandom"},
    "secrets": {"*"},
    "uuid": {"uuid1", "uuid4"},
}
# The sources: a caller gives another clock or thread, or a simulation puts one there.
SOURCES = {
    "broker/server.py": "wall_clock_ms, the default of now_ms",
    "broker/runtime/threads.py": "the threads of a broker",
    "client/base/identity.py": "Machine",
    "protocol/aio/audit.py": "the default of clock",
    "protocol/aio/clocks.py": "monotonic_ms and wall_ms, the defaults of clocks",
    "protocol/aio/slices.py": "work_clock",
    "protocol/message/message_id.py": "the default of pid",
}
# They measure or protect what no simulation sees.
BESIDE = {
    "broker/filters/sql92_cache.py": "a lock",
    "broker/pop/service.py": "measures for a metric",
    "broker/replication/prologue.py": "random bytes of haSecret, which no simulation sets",
    "broker/runtime/spans.py": "measures for spans",
    "broker/topics/creation_times.py": "measures for a metric",
    "client/base/loop_thread.py": "the blocking client's thread",
    "client/base/stop_signals.py": "asks whether this is the main thread",
    "client/blocking/sync_wrapper.py": "the blocking client's thread",
    "client/push/listening.py": "listeners that are no coroutines, by run_in_executor",
    "protocol/aio/connection.py": "measures for a metric",
    "protocol/aio/epoll_reader.py": "measures for a metric",
    "protocol/aio/rpc_latency.py": "measures for a metric",
    "protocol/aio/scheduler.py": "measures for a metric",
    "protocol/aio/tls.py": "a certificate, which no simulation makes",
}
# Sets of these are walked in the order of their addresses in memory; a dict keeps its order.
OBJECTS = ("Task", "TimerHandle", "Future", "Connection", "ReceivedMessage")


def _asked(file: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each use of what asks the system."""
    for node in ast.walk(file):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in ASKS:
            names = ASKS[node.module]
            for alias in node.names:
                if "*" in names or alias.name in names:
                    yield node.lineno, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = ASKS.get(node.value.id, set())
            if "*" in names or node.attr in names:
                yield node.lineno, f"{node.value.id}.{node.attr}"


def _asking() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in tree.sources():
        if path.parts[0] in ROOMS:
            for line, name in _asked(tree.parsed(path)):
                found.setdefault(str(path), []).append(f"{path}:{line}: {name}")
    return found


def test_only_the_sources_ask_the_system_for_times_threads_and_chance() -> None:
    wrong = [
        use
        for file, uses in _asking().items()
        if file not in SOURCES and file not in BESIDE
        for use in uses
    ]
    assert not wrong, "take these from a source (see tests/tidy/test_clocks.py):\n" + "\n".join(
        wrong
    )


def test_the_list_of_sources_is_no_longer_than_needed() -> None:
    assert {*SOURCES, *BESIDE} - _asking().keys() == set()


def test_no_set_of_objects_is_walked_in_an_order_of_addresses() -> None:
    wrong = []
    for path in tree.sources():
        if path.parts[0] not in ROOMS:
            continue
        for node in ast.walk(tree.parsed(path)):
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.value, ast.Name)
                and node.value.id == "set"
                and any(name in ast.unparse(node.slice) for name in OBJECTS)
            ):
                wrong.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong, "make these a dict with None as value:\n" + "\n".join(wrong)
