"""How much longer sends take while the broker does something else."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from ..harness import java_side
from ..harness.clusters import Cluster
from ..protocol import codes
from .loads import loadgen
from .loads.loadgen import ASK_SECONDS_MAX, Load
from .report import Row
from .turns import Run, beside, repeating, running, tail_row

MARK = "<= 2 times"
BESIDE_BURST = Load("SEND 1 x 1 beside a burst", "send", 4_000)
BURST = Load("burst, 4 x 32", "send", 40_000, conns=4, inflight=32)
BESIDE_TABLES = Load("SEND 1 x 1", "send", 20_000)
ENTRIES = 10_000  # topics, and groups
QUEUES = 4
ASK_PAUSE_SECONDS = 0.05  # after each answer: without it the asker is the load, not its requests
METRICS = "/metrics"
# What is asked while the sends are measured: its name, its code, its header.
REQUESTS: list[tuple[str, int, dict[str, str]]] = [
    ("GET_ALL_TOPIC_CONFIG (21)", codes.GET_ALL_TOPIC_CONFIG, {}),
    ("GET_ALL_CONSUMER_OFFSET (43)", codes.GET_ALL_CONSUMER_OFFSET, {}),
    ("GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)", codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}),
    ("GET_BROKER_CONSUME_STATS (317)", codes.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
    ("GET_BROKER_RUNTIME_INFO (28)", codes.GET_BROKER_RUNTIME_INFO, {}),
]


def burst(run: Run) -> list[Row]:
    """Sends to one topic while another topic gets a burst."""
    program = run.program
    sides: dict[str, Cluster] = {"java": (java := run.java()), "aerobee": (ours := run.ours())}

    def others(side: Cluster) -> Iterator[tuple[str, AbstractContextManager[None]]]:
        yield "it", repeating(lambda _: loadgen.run(program, side.broker, "Burst", BURST))

    with running(java, ours):
        for side in sides.values():
            for topic in ("Beside", "Burst"):
                loadgen.create_topic(side.broker, topic)
                loadgen.run(program, side.broker, topic, BURST)
        (found,) = beside(run, BESIDE_BURST, "Beside", sides, others).values()
    return [tail_row(BESIDE_BURST.name, found, MARK)]


def tables(run: Run) -> list[Row]:
    """Sends to a broker with 10,000 topics and groups that is asked about all of them."""
    http_port = java_side.free_ports(1)[0]
    java, ours = run.java(), run.ours(settings={"httpPort": http_port})
    sides: dict[str, Cluster] = {"java": java, "aerobee": ours}
    for side in (java, ours):
        write_tables(side.store)
    with running(java, ours):
        for side in (java, ours):
            loadgen.create_topic(side.broker, "Tables")
        found = beside(run, BESIDE_TABLES, "Tables", sides, lambda side: _asking(side, http_port))
    return [
        tail_row(f"{BESIDE_TABLES.name} beside {name}", each, MARK) for name, each in found.items()
    ]


def write_tables(store: Path, shared: str = "") -> None:
    """Write the files of a broker that has many topics, and groups with offsets in them; with
    `shared` each group has offsets in this topic, too."""
    config = store / "config"
    config.mkdir(parents=True)
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    names = [f"{number:05d}" for number in range(ENTRIES)]
    topics = {
        f"topic-{name}": {
            "topicName": f"topic-{name}",
            "readQueueNums": QUEUES,
            "writeQueueNums": QUEUES,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
        }
        for name in names
    }
    groups = {f"group-{name}": {"groupName": f"group-{name}"} for name in names}
    offsets = {
        f"{topic}@group-{name}": {str(queue): 0 for queue in range(QUEUES)}
        for name in names
        for topic in filter(None, (f"topic-{name}", shared))
    }
    for name, table, entries in (
        ("topics", "topicConfigTable", topics),
        ("subscriptionGroup", "subscriptionGroupTable", groups),
        ("consumerOffset", "offsetTable", offsets),
    ):
        text = json.dumps({"dataVersion": version, table: entries})
        (config / f"{name}.json").write_text(text)


def _asking(side: Cluster, http_port: int) -> Iterator[tuple[str, AbstractContextManager[None]]]:
    """Each request again and again; of ours also the page of metrics."""
    for name, code, fields in REQUESTS:
        with loadgen.connected(side.broker) as connection:

            def ask(_: object, code: int = code, fields: dict[str, str] = fields) -> None:
                answer = loadgen.ask(connection, code, 1, fields)
                if answer["code"] != codes.SUCCESS:
                    raise loadgen.LoadFailed(f"request {code}: {answer.get('remark')}")

            yield name, repeating(ask, ASK_PAUSE_SECONDS)
    if side.kind == "aerobee":
        url = f"http://127.0.0.1:{http_port}{METRICS}"

        def scrape(_: object) -> None:
            with urllib.request.urlopen(url, timeout=ASK_SECONDS_MAX) as answer:
                answer.read()

        yield METRICS, repeating(scrape, ASK_PAUSE_SECONDS)
