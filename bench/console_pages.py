"""How fast the console is: pages of two brokers with 10,000 topics and groups, and what these cost;
searches in bodies and the live tail, on our broker and on RocketMQ's."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import cycle
from typing import Any
from urllib.parse import urlencode

from ..client import Admin, Message, Producer
from ..client.blocking import Consumer as BlockingConsumer
from ..client.blocking import Producer as BlockingProducer
from ..console.web.routes import PAGES
from ..harness.child import Child
from ..harness.clusters import AerobeeCluster, Cluster
from .loads import loadgen
from .loads.loadgen import Load
from .report import Held, Row, held
from .tails import QUEUES, write_tables
from .turns import (
    QUIET_SECONDS,
    Run,
    beside,
    repeating,
    resident_mib,
    running,
    say,
    seconds_row,
    tail_row,
)

BESIDE = Load("SEND 1 x 1", "send", 4_000)
TOPIC = "Beside"
LISTS = ("overview", "topics", "groups", "dead_letters", "producers", "brokers")
ONE_TOPIC, ONE_GROUP, MEMBER = "topic-00042", "group-00042", "bench"
SHARED = "topic-00000"  # each group waits for its messages
# Every page, and the ways to look at a list; `{broker}`, `{queue}` are those of a message.
VISITED = (
    *LISTS,
    "topics?q=0042",
    "topics?sort=-messages",
    "topics?kind=all&sort=-last&page=200",
    f"topic?name={ONE_TOPIC}",
    f"topic?name={SHARED}",
    "groups?q=0042",
    "groups?sort=-lag&page=200",
    f"group?name={ONE_GROUP}",
    f"member?group={ONE_GROUP}&client={MEMBER}",
    "messages",
    f"messages?topic={ONE_TOPIC}",
    f"message?topic={ONE_TOPIC}&broker={{broker}}&queue={{queue}}&offset=0",
    f"tail?topic={ONE_TOPIC}",
    "scheduled",
    "transactions",
    "lake",
    "broker?name=first",
    "access",
    "findings",
    "audit",
    "actions",
    "redrives",
    f"act/offsets-reset?group={ONE_GROUP}",
)
VISITS = 40
VISITORS = 5
THINK_SECONDS = 1.0  # between two pages of a visitor
SECONDS = 300
LIST_MARK, PAGE_MARK = "<= 150", "<= 500"  # ms, to the last byte
SEARCHED, TAILED = "Searched", "Tailed"
JSON_BODIES, JSON_BYTES, BATCH = 100_000, 1_000, 64
SEARCH = {"topic": SEARCHED, "where": "body.order.total > 5 AND body.order.id < 0"}  # finds none
SEARCHED_MARKS = {"aerobee": ">= 50,000", "java": ">= 20,000"}  # messages/s
TAIL_MESSAGES = 20


def console(run: Run) -> list[Row]:
    """A row for each mark: two large brokers, then searches and live tails of both kinds."""
    rows = _large(run)
    for cluster in (run.ours(), run.java()):
        with running(cluster):
            asyncio.run(_fill(cluster.namesrv, max(BATCH, int(JSON_BODIES * run.scale))))
            with _running(run, cluster.namesrv) as (site, _):
                rows += _searches(site, cluster.kind)
                rows.append(_tail(site, cluster.namesrv, cluster.kind))
    return rows


def _large(run: Run) -> list[Row]:
    """The rows of two brokers with many topics and groups."""
    first = run.ours("first", {"brokerName": "first"})
    second = run.ours("second", {"brokerName": "second", "namesrvAddr": first.namesrv})
    for side in (first, second):
        write_tables(side.store, SHARED)
    with running(first), ExitStack() as stack:
        second.start_broker()
        stack.callback(second.stop_broker, kill=True)
        loadgen.create_topic(first.broker, TOPIC)
        with BlockingProducer(first.namesrv) as producer:
            for _ in range(2 * QUEUES):  # each queue of both brokers
                producer.send(Message(SHARED, b"{}"))
            queue = producer.send(Message(ONE_TOPIC, b"{}", keys=["42"])).queue
        paths = [one.format(broker=queue.broker_name, queue=queue.queue_id) for one in VISITED]
        return [_idle(run), *_pages(run, first, paths), _sends(run, first)]


def _idle(run: Run) -> Held:
    """Memory of a console that watches a cluster that does not answer."""
    with _running(run, "127.0.0.1:1") as (site, _):
        site.get("overview")
        return held("Console without a cluster, memory", site.mib(), "{:.0f} MiB", "<= 64")


def _pages(run: Run, first: AerobeeCluster, paths: list[str]) -> list[Row]:
    """The time from the start to the full sample, and the times of pages then."""
    missing = {page.path for page in PAGES} - {path.partition("?")[0] for path in paths}
    assert not missing, f"no visit of {missing}"
    begin = time.monotonic()
    with _running(run, first.namesrv) as (site, ready_s):
        site.get("overview")
        cold_s = time.monotonic() - begin
        early = [site.get("topics") for _ in range(VISITS // 4)]
        site.wait_whole()
        whole_s = time.monotonic() - begin
        say(f"console: ready {ready_s:.2f} s, first page {cold_s:.2f} s, whole {whole_s:.1f} s")
        rows: list[Row] = [
            seconds_row("Console ready", ready_s, "<= 1.2"),
            seconds_row("First page of a cold console", cold_s, "<= 2"),
            Held("First full sample, two brokers", f"{whole_s:.1f} s", note="5 % of a broker"),
            _p95("Page of topics before the full sample", early, LIST_MARK),
        ]
        with BlockingConsumer(first.namesrv, group=ONE_GROUP, topics=[ONE_TOPIC], client_id=MEMBER):
            for path in paths:
                mark = LIST_MARK if path in LISTS else PAGE_MARK
                name = path.partition("&broker")[0]  # the same in each run
                rows.append(_p95(f"Page {name}", [site.get(path) for _ in range(VISITS)], mark))
        rows.append(held("Console with this cluster, memory", site.mib(), "{:.0f} MiB", "<= 160"))
    return rows


def _sends(run: Run, first: AerobeeCluster) -> Row:
    """The p99 of sends while the console samples and visitors read pages."""
    with _running(run, first.namesrv) as (site, _):
        site.wait_whole()
        process = site.process.process

        @contextmanager
        def visited() -> Iterator[None]:
            process.send_signal(signal.SIGCONT)
            with ExitStack() as stack:
                for _ in range(VISITORS):
                    own = _Site(site.process, site.address, site.cookie)
                    stack.enter_context(
                        repeating(partial(_visit, own, cycle(LISTS)), THINK_SECONDS)
                    )
                time.sleep(QUIET_SECONDS)
                yield
            process.send_signal(signal.SIGSTOP)

        def others(_: Cluster) -> Iterator[tuple[str, AbstractContextManager[None]]]:
            yield f"the console and {VISITORS} visitors", visited()

        process.send_signal(signal.SIGSTOP)
        ((name, found),) = beside(run, BESIDE, TOPIC, {"aerobee": first}, others).items()
    return tail_row(f"{BESIDE.name} beside {name}", found, "<= 1.1 times")


def _visit(site: _Site, pages: Iterator[str], _: object) -> None:
    """Read the next page of a visitor."""
    site.get(next(pages))


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


def _searches(site: _Site, kind: str) -> list[Row]:
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
    name = f"Search in bodies of {JSON_BYTES:,} bytes, {kind}"
    note = f"{scanned:,} messages"
    return [
        held(name, rate, "{:,.0f} messages/s", SEARCHED_MARKS[kind], note),
        _p95(f"Page overview during the search, {kind}", pages, LIST_MARK),
    ]


def _tail(site: _Site, namesrv: str, kind: str) -> Held:
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
    return _p95(f"Live tail, from send to event, {kind}", found, "<= 200")


class _Site:
    """Pages of a running console, by one connection; `cookie` is that of a session."""

    def __init__(self, process: Child, address: str, cookie: str = "") -> None:
        self.process = process
        self.address = address
        self.cookie = cookie
        self._connection = http.client.HTTPConnection(address, timeout=SECONDS)

    def get(self, path: str) -> float:
        """The milliseconds until the last byte of a page."""
        begin = time.monotonic()
        self._connection.request("GET", f"/{path}", headers={"Cookie": self.cookie})
        answer = self._connection.getresponse()
        text = answer.read()
        took_ms = (time.monotonic() - begin) * 1_000
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
        return resident_mib(self.process.pid)["VmRSS"]

    def wait_whole(self) -> None:
        """Wait for the first full sample."""
        deadline = time.monotonic() + SECONDS
        while self.data("overview")["topics"] is None:
            assert time.monotonic() < deadline, "the first sample is not whole"
            time.sleep(0.2)


@contextmanager
def _running(run: Run, namesrv: str) -> Iterator[tuple[_Site, float]]:
    """A console and the seconds that its start took."""
    begin = time.monotonic()
    with run.command("console", "console", "-n", namesrv, "--port", "0") as process:
        line = process.wait_line(lambda text: "log in once: http://" in text, SECONDS)
        ready_s = time.monotonic() - begin
        address, _, link = line.partition("http://")[2].partition("/")
        site = _Site(process, address)
        site.log_in(f"/{link}")
        yield site, ready_s


def _p95(name: str, values_ms: list[float], wanted: str) -> Held:
    value = sorted(values_ms)[min(len(values_ms) - 1, int(0.95 * len(values_ms)))]
    say(f"console: {name} p95 {value:.0f} ms, most {max(values_ms):.0f} ms")
    return held(f"{name}, p95", value, "{:.0f} ms", wanted)
