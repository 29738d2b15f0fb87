"""A Prometheus scrapes aerobee, a Java broker and the console, and has data for each query of the
boards and the rules. test_metrics compares the names and labels of both brokers.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from aerobee.harness import java_side
from aerobee.harness.child import Child
from aerobee.harness.clusters import (
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    JavaCluster,
)
from aerobee.protocol.aio.peers import Peers

from ..monitoring.test_rules import boards, rules
from .metrics_load import Load
from .programs import SECONDS, side_by_side, wait_until
from .support import until

PROMETHEUS = shutil.which("prometheus")
SETTINGS: dict[str, str | int] = {
    **SMALL_FILES,
    "enablePopBufferMerge": "false",
    "metricsExporterType": "PROM",
    "metricsPromExporterHost": "127.0.0.1",
}
SELECTOR = re.compile(r"\b((?:rocketmq|aerobee)_\w+)(?:\{([^}]*)\})?(\[\w+\])?")
OURS, JAVA, CONSOLE = "ours", "java", "console"
# Without a value on a lone broker that is well; tests/monitoring has them.
ELSEWHERE = {
    *("aerobee_follows", "aerobee_slave_behind_bytes", "aerobee_namesrv_masters"),
    *("aerobee_group_subscriptions_differ",),
}
REFUSALS = 'response_code=~"system_busy|flow_control"'  # of which this load has none


class Prometheus:
    """A running server, asked by HTTP."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, path: str, **query: str) -> Any:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            return json.load(answer)["data"]

    def has(self, query: str) -> bool:
        """Whether a query gives data."""
        return bool(self.ask("query", query=query)["result"])


class Scene(NamedTuple):
    """The brokers and the Prometheus. The console, whose own requests the brokers count, starts
    later by `console`."""

    ours: AerobeeCluster
    real: JavaCluster
    server: Prometheus
    console: list[str]
    folder: Path


@pytest.fixture(scope="module")
def scene(java_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    if PROMETHEUS is None:
        assert os.environ.get("CI") != "true", "CI needs prometheus: see .ci/run"
        pytest.skip("prometheus is not installed (Debian's package prometheus has it)")
    folder = tmp_path_factory.mktemp("monitoring")
    ports = dict(zip((OURS, JAVA, CONSOLE, "server"), java_side.free_ports(4), strict=True))

    def settings(job: str) -> dict[str, str | int]:
        return SETTINGS | {"metricsPromExporterPort": ports[job]}

    ours = AerobeeCluster(folder / "ours", settings(OURS))
    real = JavaCluster(folder / "real", settings(JAVA), apart=True, flags=TEST_BROKER_FLAGS)
    with (
        side_by_side(ours, real),
        Child(prometheus(folder, ports), folder / "prometheus.stderr"),
    ):
        words = [sys.executable, "-m", "aerobee.scripts.cli", "console", "--port", "0"]
        words += ["--cluster", f"ours={ours.namesrv}", "--cluster", f"java={real.namesrv}"]
        words += ["--metrics-port", str(ports[CONSOLE])]
        server = Prometheus(f"http://127.0.0.1:{ports['server']}")
        yield Scene(ours, real, server, words, folder)


def prometheus(folder: Path, ports: dict[str, int]) -> list[str]:
    """The command of a Prometheus that scrapes each job every second."""
    jobs = [
        {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{ports[job]}"]}]}
        for job in (OURS, JAVA, CONSOLE)
    ]
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
    assert PROMETHEUS is not None
    return [
        *(PROMETHEUS, f"--config.file={file}", f"--storage.tsdb.path={folder / 'series'}"),
        *(f"--web.listen-address=127.0.0.1:{ports['server']}", "--log.level=warn"),
    ]


def of_job(query: str, job: str) -> str:
    """A query of a board for one job, all values of its variables."""

    def selector(found: re.Match[str]) -> str:
        name, matchers, span = found.groups()
        return f'{name}{{{matchers + "," if matchers else ""}job="{job}"}}{span or ""}'

    query = query.replace("[$__rate_interval]", "[1m]")
    return SELECTOR.sub(selector, re.sub(r"\$\w+", ".*", query))


def asked() -> dict[str, set[str]]:
    """The queries by the job that gives data for them: of panels, and selectors of rules."""
    queries = {
        target["expr"]
        for board in boards().values()
        for panel in board["panels"]
        if panel["type"] != "row"
        for target in panel["targets"]
    }
    for rule in rules():
        for name, matchers, _ in SELECTOR.findall(rule["expr"].replace(REFUSALS, "")):
            queries.add(f"{name}{{{matchers}}}" if matchers else name)
    found: dict[str, set[str]] = {OURS: set(), JAVA: set(), CONSOLE: set()}
    for query in queries:
        names = {name for name, *_ in SELECTOR.findall(query)}
        if names & ELSEWHERE:
            continue
        if any(name.startswith("aerobee_console_") for name in names):
            found[CONSOLE].add(query)
        elif any(name.startswith("aerobee_") for name in names):
            found[OURS].add(query)
        else:
            found[OURS].add(query)
            found[JAVA].add(query)
    return found


async def test_each_query_gives_data(scene: Scene, peers: Peers) -> None:
    brokers = (scene.ours.broker, scene.real.broker)
    for broker in brokers:
        await Load(peers, broker).run()
    for broker in brokers:
        load = Load(peers, broker)
        await until(load.pop_again, "a message comes again", pause=0.2)
        await load.leave()
    with Child(scene.console, scene.folder / "console.stderr", cwd=scene.folder) as console:
        await asyncio.to_thread(console.wait_line, lambda line: "ready" in line, SECONDS)
        await asyncio.to_thread(ask_all, scene.server)


def ask_all(server: Prometheus) -> None:
    """Data for each query."""
    missing = [(job, query) for job, queries in asked().items() for query in sorted(queries)]

    def have_all_data() -> bool:
        missing[:] = [one for one in missing if not server.has(of_job(one[1], one[0]))]
        return not missing

    wait_until(have_all_data, lambda: missing, pause=1)
