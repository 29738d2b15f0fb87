"""The metrics of both brokers after the same requests: the same names with the same labels.

RocketMQ's metrics come from its exporter for Prometheus, ours from the broker's HTTP endpoint.
"""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from aerobee.harness import java_side
from aerobee.harness.clusters import (
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    JavaCluster,
)
from aerobee.protocol.aio.peers import Peers

from .metrics_load import Load
from .programs import SECONDS, side_by_side
from .support import until

SETTINGS: dict[str, str | int] = {
    **SMALL_FILES,
    "enablePopBufferMerge": "false",  # RocketMQ's default, which writes each acknowledgement
}
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)(?: \d+)?")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Metrics of the exporter itself.
INFO = {"target_info", "otel_scope_info"}
NUMBERS = ("rocketmq_messages_in_total", "rocketmq_message_size_count")

Labels = frozenset[tuple[str, str]]


class Scrape(NamedTuple):
    """Values by name and labels, and types by the name in their `# TYPE` line."""

    values: dict[tuple[str, Labels], float]
    types: dict[str, str]

    def type_of(self, name: str) -> str:
        """The type of a sample, whose name may have a suffix that Java's TYPE line leaves out."""
        fitting = [base for base in self.types if name.startswith(base)]
        return self.types[max(fitting, key=len)]


def scrape(url: str) -> Scrape:
    """The metrics that a broker serves under RocketMQ's names."""
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        text = answer.read().decode()
    values, types = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            types[name] = kind
        elif not line.startswith("#"):
            found = SAMPLE.fullmatch(line)
            assert found is not None, line
            name, labels, value = found.groups()
            if name.startswith("rocketmq_"):
                values[name, frozenset(LABEL.findall(labels or ""))] = float(value)
    return Scrape(values, {name: kind for name, kind in types.items() if name not in INFO})


class Both(NamedTuple):
    """The two brokers and where their metrics are."""

    ours: AerobeeCluster
    real: JavaCluster
    urls: tuple[str, str]


@pytest.fixture(scope="module")
def both(java_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("metrics")
    endpoint, exporter = java_side.free_ports(2)
    ours = AerobeeCluster(folder / "ours", {**SETTINGS, "httpPort": endpoint})
    export: dict[str, str | int] = {
        "metricsExporterType": "PROM",
        "metricsPromExporterHost": "127.0.0.1",
        "metricsPromExporterPort": exporter,
    }
    # Two processes: in one process the broker would count the name server's requests as its own.
    real = JavaCluster(folder / "real", SETTINGS | export, apart=True, flags=TEST_BROKER_FLAGS)
    with side_by_side(ours, real):
        urls = tuple(f"http://127.0.0.1:{port}/metrics" for port in (endpoint, exporter))
        yield Both(ours, real, urls)  # type: ignore[arg-type]


@pytest.mark.smoke
async def test_names_and_labels_are_those_of_the_real_broker(both: Both, peers: Peers) -> None:
    for cluster in (both.ours, both.real):
        load = Load(peers, cluster.broker)
        await load.run()
    for cluster in (both.ours, both.real):
        load = Load(peers, cluster.broker)
        await until(load.pop_again, "a message comes again", pause=0.2)
        await load.leave()
    ours, real = await settled(both)
    names = {name for name, _ in real.values}
    assert {name: ours.type_of(name) for name in names} == {
        name: real.type_of(name) for name in names
    }
    same = {key for key in real.values if key[0] in NUMBERS}
    assert {key: ours.values[key] for key in same} == {key: real.values[key] for key in same}


def only(one: Scrape, other: Scrape) -> list[tuple[str, list[tuple[str, str]]]]:
    """Samples that only the first broker has."""
    return sorted((name, sorted(labels)) for name, labels in set(one.values) - set(other.values))


async def settled(both: Both) -> tuple[Scrape, Scrape]:
    """The metrics of both brokers, once their background work is done."""
    found: list[Scrape] = []

    async def are_alike() -> bool:
        found[:] = [await asyncio.to_thread(scrape, url) for url in both.urls]
        return not only(*found) and not only(*found[::-1])

    await until(are_alike, lambda: (only(*found), only(*found[::-1])), pause=0.5)
    return found[0], found[1]
