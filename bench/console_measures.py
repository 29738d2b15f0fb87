"""How fast the console is: pages of two brokers with 10,000 topics and groups, and what these cost;
searches in bodies and the live tail, on our broker and on RocketMQ's."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ..client import Admin, Message, Producer
from ..client.blocking import Producer as BlockingProducer
from ..harness.child import Child
from ..harness.clusters import AerobeeCluster, JavaCluster
from .loads import loadgen
from .loads.loadgen import Load
from .measures import SETTLE_SECONDS, Say, median
from .store_measures import Held
from .table_measures import fill

BESIDE = Load("SEND 1 x 1", "send", 4_000)
TOPIC = "Beside"
LISTS = ("overview", "topics", "groups", "dead_letters", "producers", "brokers")
ONE_TOPIC = "topic?name=topic-00042"
VISITS = 40
VISITORS = 5
THINK_SECONDS = 1.0  # between two pages of a visitor
SECONDS = 300
LIST_MS, PAGE_MS, READY_S, COLD_S = 150.0, 50.0, 1.2, 2.0
IDLE_MIB, FULL_MIB, TIMES_MAX = 64.0, 160.0, 1.1
SEARCHED, TAILED = "Searched", "Tailed"
JSON_BODIES, JSON_BYTES, BATCH = 100_000, 1_000, 64
SEARCH = {"topic": SEARCHED, "where": "body.order.total > 5 AND body.order.id < 0"}  # finds none
SEARCHED_MIN = {"aerobee": 50_000, "java": 20_000}  # messages/s
TAIL_MESSAGES, TAIL_MS = 20, 200.0


def console(
    folder: Path, program: Path, rounds: int, scale: float, flags: tuple[str, ...], say: Say
) -> list[Held]:
    """A row for each limit. `flags` are those of RocketMQ's broker."""
    rows = _large(folder, program, rounds, scale, say)
    clusters = AerobeeCluster(folder / "ours"), JavaCluster(folder / "java", flags=flags)
    for cluster in clusters:
        try:
            cluster.start()
            asyncio.run(_fill(cluster.namesrv, max(BATCH, int(JSON_BODIES * scale))))
            with _running(cluster.namesrv, folder) as (site, _):
                rows += _searches(site, cluster.kind, say)
                rows.append(_tail(site, cluster.namesrv, cluster.kind, say))
        finally:
            cluster.stop()
    return rows


def _large(folder: Path, program: Path, rounds: int, scale: float, say: Say) -> list[Held]:
    """The rows of two brokers with many topics and groups."""
    first = AerobeeCluster(folder / "first", {"brokerName": "first"})
    second = AerobeeCluster(
        folder / "second", {"brokerName": "second", "namesrvAddr": first.namesrv}
    )
    for side in (first, second):
        fill(side.store)
    try:
        first.start()
        second.start_broker()
        loadgen.create_topic(first.broker, TOPIC)
        load = replace(BESIDE, count=max(500, int(BESIDE.count * scale)))
        loadgen.run(program, first.broker, TOPIC, load)
        rows = [_idle(folder, say), *_pages(first, folder, say)]
        rows.append(_sends(first, folder, program, load, rounds, say))
        return rows
    finally:
        if second.broker_process is not None:
            second.stop_broker(kill=True)
        first.stop()


def _idle(folder: Path, say: Say) -> Held:
    """Memory of a console that watches a cluster that does not answer."""
    with _running("127.0.0.1:1", folder) as (site, _):
        site.get("overview")
        mib = site.mib()
    say(f"console: {mib:.0f} MiB idle")
    return Held(
        "Console without a cluster, memory", f"{mib:.0f} MiB", f"<= {IDLE_MIB:g}", mib <= IDLE_MIB
    )


def _pages(first: AerobeeCluster, folder: Path, say: Say) -> list[Held]:
    """From the start to the full sample, and the times of pages then."""
    begin = time.monotonic()
    with _running(first.namesrv, folder) as (site, ready_s):
        site.get("overview")
        cold_s = time.monotonic() - begin
        early = [site.get("topics") for _ in range(VISITS // 4)]
        while site.data("overview")["topics"] is None:
            assert time.monotonic() - begin < SECONDS, "the first sample is not whole"
            time.sleep(0.2)
        whole_s = time.monotonic() - begin
        say(f"console: ready {ready_s:.2f} s, first page {cold_s:.2f} s, whole {whole_s:.1f} s")
        rows = [
            _row("Console ready", ready_s, "s", READY_S),
            _row("First page of a cold console", cold_s, "s", COLD_S),
            Held("First full sample, two brokers", f"{whole_s:.1f} s", "", True, "5 % of a broker"),
            _row("Page of topics before the full sample, p95", _p95(early), "ms", LIST_MS),
        ]
        for name in LISTS:
            found = [site.get(name) for _ in range(VISITS)]
            say(f"console: {name} p95 {_p95(found):.0f} ms, most {max(found):.0f} ms")
            rows.append(_row(f"Page {name}, p95", _p95(found), "ms", LIST_MS))
        found = [site.get(ONE_TOPIC) for _ in range(VISITS)]
        rows.append(_row("First byte of one topic's page, p95", _p95(found), "ms", PAGE_MS))
        mib = site.mib()
        rows.append(_row("Console with this cluster, memory", mib, "MiB", FULL_MIB))
    return rows


def _sends(
    first: AerobeeCluster, folder: Path, program: Path, load: Load, rounds: int, say: Say
) -> Held:
    """The p99 of sends while the console samples and visitors read pages."""
    alone: list[dict[str, float]] = []
    beside: list[dict[str, float]] = []
    with _running(first.namesrv, folder) as (site, _):
        while site.data("overview")["topics"] is None:
            time.sleep(0.2)
        process = site.process.process
        for _ in range(rounds):
            time.sleep(SETTLE_SECONDS)
            process.send_signal(signal.SIGSTOP)
            alone.append(loadgen.run(program, first.broker, TOPIC, load))
            process.send_signal(signal.SIGCONT)
            with _visitors(site):
                time.sleep(SETTLE_SECONDS)
                beside.append(loadgen.run(program, first.broker, TOPIC, load))
            say(f"{load.name}: {alone[-1]['p99_us']:,.0f} us, {beside[-1]['p99_us']:,.0f} beside")
    before, after = median(alone, "p99_us"), median(beside, "p99_us")
    return Held(
        f"{load.name} beside the console and {VISITORS} visitors",
        f"{after / before:.2f} times the p99 without",
        f"<= {TIMES_MAX:g} times",
        after <= TIMES_MAX * before,
        f"p99 {before:,.0f} and {after:,.0f} us",
    )


async def _fill(namesrv: str, count: int) -> None:
    """Messages with bodies of JSON, in one topic."""
    async with Admin(namesrv) as admin:
        for topic in (SEARCHED, TAILED):
            await admin.create_topic(topic, 4)
    async with Producer(namesrv) as producer:
        for at in range(0, count, BATCH):
            await producer.send_batch([Message(SEARCHED, _body(at + one)) for one in range(BATCH)])


def _body(number: int) -> bytes:
    order = {"id": number, "total": number % 1_000, "customer": f"customer-{number % 97}"}
    text = json.dumps({"order": order, "note": ""})
    return json.dumps({"order": order, "note": "x" * (JSON_BYTES - len(text))}).encode()


def _searches(site: _Site, kind: str, say: Say) -> list[Held]:
    """The speed of a search that finds nothing, and the time of pages meanwhile."""
    path = f"search?{urlencode(SEARCH)}"
    own = _Site(site.process, site.address, site.cookie)

    def search() -> tuple[int, float]:
        began = time.monotonic()
        return own.data(path)["progress"]["scanned"], time.monotonic() - began

    search()  # starts the process of the searches
    pages: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        searching = pool.submit(search)
        while not searching.done():
            pages.append(site.get("overview"))
            time.sleep(0.02)
        scanned, seconds = searching.result()
    rate = scanned / seconds
    say(f"console: {rate:,.0f} messages/s searched on {kind}")
    least = SEARCHED_MIN[kind]
    return [
        Held(
            f"Search in bodies of {JSON_BYTES:,} bytes, {kind}",
            f"{rate:,.0f} messages/s",
            f">= {least:,}",
            rate >= least,
            f"{scanned:,} messages",
        ),
        _row(f"Page overview during the search, {kind}, p95", _p95(pages), "ms", LIST_MS),
    ]


def _tail(site: _Site, namesrv: str, kind: str, say: Say) -> Held:
    """The time from a send to the event with its message."""
    found: list[float] = []
    connection = http.client.HTTPConnection(site.address, timeout=SECONDS)
    connection.request("GET", f"/tail/events?topic={TAILED}", headers={"Cookie": site.cookie})
    events = connection.getresponse()
    events.readline()  # from now on messages are shown
    with BlockingProducer(namesrv) as producer:
        for number in range(TAIL_MESSAGES):
            body = f"message-{number:05}".encode()
            began = time.monotonic()
            producer.send(Message(TAILED, body))
            while body not in (line := events.readline()):
                assert line, "the live tail has ended"
            found.append((time.monotonic() - began) * 1_000)
    connection.close()
    say(f"console: tail after {_p95(found):.0f} ms on {kind}")
    return _row(f"Live tail, from send to event, {kind}, p95", _p95(found), "ms", TAIL_MS)


class _Site:
    """Pages of a running console, by one connection; `cookie` is that of a session."""

    def __init__(self, process: Child, address: str, cookie: str = "") -> None:
        self.process = process
        self.address = address
        self.cookie = cookie
        self._connection = http.client.HTTPConnection(address, timeout=SECONDS)

    def get(self, path: str) -> float:
        """The milliseconds until the first byte of a page."""
        begin = time.monotonic()
        self._connection.request("GET", f"/{path}", headers={"Cookie": self.cookie})
        answer = self._connection.getresponse()
        took_ms = (time.monotonic() - begin) * 1_000
        text = answer.read()
        assert answer.status == 200, text[:500]
        return took_ms

    def data(self, path: str) -> Any:
        """A page as JSON."""
        self._connection.request("GET", f"/api/{path}", headers={"Cookie": self.cookie})
        return json.loads(self._connection.getresponse().read())

    def log_in(self, link: str) -> None:
        """Begin a session by a path that logs in once."""
        self._connection.request("GET", link)
        answer = self._connection.getresponse()
        answer.read()
        self.cookie = (answer.getheader("Set-Cookie") or "").partition(";")[0]
        assert self.cookie, f"the link gave no session: {answer.status}"

    def mib(self) -> float:
        """The memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(one for one in status.splitlines() if one.startswith("VmRSS"))
        return int(line.split()[1]) / 1_024


@contextmanager
def _running(namesrv: str, folder: Path) -> Iterator[tuple[_Site, float]]:
    """A console and the seconds that its start took."""
    words = [sys.executable, "-m", "aerobee.scripts.cli", "console", "-n", namesrv, "--port", "0"]
    begin = time.monotonic()
    with Child(words, folder / "console.stderr", cwd=folder) as process:
        line = process.wait_line(lambda text: "log in once: http://" in text, SECONDS)
        ready_s = time.monotonic() - begin
        address, _, link = line.partition("http://")[2].partition("/")
        site = _Site(process, address)
        site.log_in(f"/{link}")
        yield site, ready_s


@contextmanager
def _visitors(site: _Site) -> Iterator[None]:
    """Visitors that read one list after the other until the block ends."""
    is_over = threading.Event()

    def visit(own: _Site) -> None:
        while not is_over.is_set():
            for name in LISTS:
                own.get(name)
                if is_over.wait(THINK_SECONDS):
                    return

    own = [_Site(site.process, site.address, site.cookie) for _ in range(VISITORS)]
    threads = [threading.Thread(target=visit, args=(one,)) for one in own]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def _row(name: str, value: float, unit: str, limit: float) -> Held:
    text = f"{value:.2f} {unit}" if unit == "s" else f"{value:.0f} {unit}"
    return Held(name, text, f"<= {limit:g}", value <= limit)


def _p95(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]
