"""How long sends take while a broker with 10,000 topics and groups is asked about all of them."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from ..harness import java_side
from ..harness.clusters import AerobeeCluster, Cluster, JavaCluster
from ..protocol import codes
from .loads import loadgen
from .loads.loadgen import Load
from .measures import SETTLE_SECONDS, Compared, Say, median
from .store_measures import Held

ENTRIES = 10_000  # topics, and groups
QUEUES = 4
TOPIC = "Tables"
BESIDE = Load("SEND 1 x 1", "send", 20_000)
TIMES_MAX = 2.0
METRICS = "/metrics"
ASK_SECONDS_MAX = 120
ASK_PAUSE_SECONDS = 0.05  # after each answer: without it the asker is the load, not its requests
# What is asked while the sends are measured: its name, its code, its header.
REQUESTS: list[tuple[str, int, dict[str, str]]] = [
    ("GET_ALL_TOPIC_CONFIG (21)", codes.GET_ALL_TOPIC_CONFIG, {}),
    ("GET_ALL_CONSUMER_OFFSET (43)", codes.GET_ALL_CONSUMER_OFFSET, {}),
    ("GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)", codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}),
    ("GET_BROKER_CONSUME_STATS (317)", codes.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
    ("GET_BROKER_RUNTIME_INFO (28)", codes.GET_BROKER_RUNTIME_INFO, {}),
]

Results = dict[str, list[dict[str, float]]]  # by the kind of the side
Ask = Callable[[], None]
Asking = AbstractContextManager[Callable[[], float]]  # gives how often it was asked so far


def tables(
    folder: Path, program: Path, rounds: int, scale: float, flags: tuple[str, ...], say: Say
) -> tuple[list[Compared], list[Held]]:
    """For each request the p99 of sends while it is asked again and again, by the p99 without."""
    load = replace(BESIDE, count=max(500, int(BESIDE.count * scale)))
    http_port = java_side.free_ports(1)[0]
    java = JavaCluster(folder / "java", flags=flags)
    ours = AerobeeCluster(folder / "ours", {"httpPort": http_port})
    quiet: Results = {"java": [], "aerobee": []}
    found: dict[str, Results] = {}
    try:
        for side in (java, ours):
            fill(side.store)
            side.start()
            loadgen.create_topic(side.broker, TOPIC)
            loadgen.run(program, side.broker, TOPIC, load)
        for _ in range(rounds):
            for side in (java, ours):
                time.sleep(SETTLE_SECONDS)
                alone = loadgen.run(program, side.broker, TOPIC, load)["p99_us"]
                quiet[side.kind].append({"p99": alone})
                for name, ask in _asks(side, http_port):
                    with ask as asked:
                        tail = loadgen.run(program, side.broker, TOPIC, load)["p99_us"]
                    result = {"p99": tail, "times": tail / alone, "asked": asked()}
                    found.setdefault(name, {}).setdefault(side.kind, []).append(result)
                    say(
                        f"{load.name} beside {name}: {side.kind} p99 {alone:,.0f} us alone, "
                        f"{tail:,.0f} us beside {asked():.0f} answers"
                    )
    finally:
        java.stop()
        ours.stop()
    scraped = found.pop(METRICS)
    return [_row(name, sides, quiet) for name, sides in found.items()], [_held(scraped, quiet)]


def fill(store: Path) -> None:
    """Write the files of a broker that has many topics, and groups with offsets in them."""
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
        f"topic-{name}@group-{name}": {str(queue): 0 for queue in range(QUEUES)} for name in names
    }
    texts = {
        "topics.json": {"dataVersion": version, "topicConfigTable": topics},
        "subscriptionGroup.json": {"dataVersion": version, "subscriptionGroupTable": groups},
        "consumerOffset.json": {"dataVersion": version, "offsetTable": offsets},
    }
    for name, text in texts.items():
        (config / name).write_text(json.dumps(text))


def _asks(side: Cluster, http_port: int) -> Iterator[tuple[str, Asking]]:
    host, _, port = side.broker.partition(":")
    for name, code, fields in REQUESTS:
        connection = socket.create_connection((host, int(port)), timeout=ASK_SECONDS_MAX)

        def ask(
            connection: socket.socket = connection,
            code: int = code,
            fields: dict[str, str] = fields,
        ) -> None:
            answer = loadgen.ask(connection, code, 1, fields)
            if answer["code"] != codes.SUCCESS:
                raise loadgen.LoadFailed(f"request {code}: {answer.get('remark')}")

        with connection:
            yield name, _asking(ask)
    if side.kind == "aerobee":
        url = f"http://127.0.0.1:{http_port}{METRICS}"

        def scrape() -> None:
            with urllib.request.urlopen(url, timeout=ASK_SECONDS_MAX) as answer:
                answer.read()

        yield METRICS, _asking(scrape)


@contextmanager
def _asking(ask: Ask) -> Iterator[Callable[[], float]]:
    """Ask again and again, with a pause after each answer; give how often so far."""
    is_over = threading.Event()
    begun = threading.Event()
    count = 0
    failures: list[Exception] = []

    def run() -> None:
        nonlocal count
        try:
            while not is_over.is_set():
                begun.set()
                ask()
                count += 1
                is_over.wait(ASK_PAUSE_SECONDS)
        except Exception as wrong:
            failures.append(wrong)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        begun.wait()
        yield lambda: float(count)
    finally:
        is_over.set()
        thread.join()
    if failures:
        raise failures[0]


def _row(name: str, sides: Results, quiet: Results) -> Compared:
    times = {kind: median(results, "times") for kind, results in sides.items()}
    return Compared(
        f"{BESIDE.name} beside {name}",
        "times the p99 without",
        times["java"],
        times["aerobee"],
        f"<= {TIMES_MAX:g} times",
        times["aerobee"] <= TIMES_MAX,
        f"p99 {_tails('java', sides, quiet)} / {_tails('aerobee', sides, quiet)} us",
    )


def _held(sides: Results, quiet: Results) -> Held:
    times = median(sides["aerobee"], "times")
    return Held(
        f"{BESIDE.name} beside {METRICS}",
        f"{times:.2f} times the p99 without",
        f"<= {TIMES_MAX:g} times",
        times <= TIMES_MAX,
        f"p99 {_tails('aerobee', sides, quiet)} us",
    )


def _tails(kind: str, sides: Results, quiet: Results) -> str:
    return f"{median(quiet[kind], 'p99'):,.0f} and {median(sides[kind], 'p99'):,.0f}"
