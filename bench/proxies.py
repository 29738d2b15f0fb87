"""What `scripts/bench --only grpc` measures: our proxy beside RocketMQ's in its two modes.

Each side is a proxy before a broker of its own kind. h2load makes the calls, after calls that warm
each side up. Processor time is that of proxy and broker together. A measure that fails becomes a
row that says why; the others go on.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..client import Admin
from ..harness import java_side
from ..harness.clusters import CLUSTER_NAME, READY_SECONDS, JavaCluster
from ..proxy.http2.one_call import CallError, one_call
from ..proxy.messages import definitions
from .loads import grpcgen, loadgen
from .loads.grpcgen import SERVICE
from .loads.loadgen import BATCH, LoadFailed
from .rates import MILLION, SENDS
from .report import Compared, Held, Row, held
from .turns import (
    QUIET_SECONDS,
    Found,
    Result,
    Run,
    children,
    compared,
    cpu_seconds,
    in_turns,
    resident_mib,
    say,
)

TOPIC, GROUP, QUEUES = "Grpc", "grpc", 8
BODY = bytes(128)
WORKERS = 2
WARM, CALLS = 200_000, 60_000  # sends: to warm each side up, and of each case
INVISIBLE_SECONDS = 3_600
GREETINGS_MAX = 20
OK = 20_000  # the code of a status
NOTE_CHARS_MAX = 200
CLUSTER, LOCAL, OURS = "cluster mode", "local mode", "aerobee"
FEW_CALLS = 10_000
IDLE_CLIENTS, IDLE_SECONDS = 1_000, 60.0
IDLE_MIB_MAX, IDLE_CORE_MAX = 60.0, 0.05
GRPC_SENDERS, GRPC_CALLS_PER_S = 64, 1_000


@dataclass(frozen=True, slots=True)
class Case:
    """Calls, and the marks of the ratios to Java's figures, in cluster and local mode.

    `per` is how many messages a call has: the processor time is that of one."""

    name: str
    rpc: str
    connections: int
    streams: int
    cpu: tuple[str, str]
    rate: tuple[str, str] | None
    per: int = 1


CASES = (
    Case("SEND 64 x 1", "SendMessage", 64, 1, ("<= 0.75", "<= 1.3"), (">= 1.2", ">= 0.75")),
    Case("SEND 4 x 16", "SendMessage", 4, 16, ("<= 0.75", "<= 1.3"), (">= 1.2", ">= 0.75")),
    Case("RECEIVE 32, 4 x 1", "ReceiveMessage", 4, 1, ("<= 0.5", "<= 0.9"), None, BATCH),
)
ACK = Case("ACK one a call, 64 x 1", "AckMessage", 64, 1, ("<= 0.75", "<= 1.3"), None)
SINGLE = Case("SEND 1 x 1", "SendMessage", 1, 1, ("", ""), None)


class Side:
    """A proxy before a broker of its own."""

    def __init__(self, run: Run, kind: str, held: ExitStack) -> None:
        self.kind = kind
        self.port = java_side.free_ports(1)[0]
        self.proxy_pids: Callable[[], list[int]] = list
        self.seconds = 0.0  # from the start of the proxy to its first answer
        name = kind.replace(" ", "-")
        self._cluster = run.ours(name) if kind == OURS else run.java(name)
        self.namesrv, self.broker = self._cluster.namesrv, self._cluster.broker
        self._run, self._held = run, held

    def start(self) -> None:
        """Start all, make the topic, and note when the proxy gave its first answer."""
        if self.kind != LOCAL:
            self._held.callback(self._cluster.stop)
            self._cluster.start()
        if isinstance(self._cluster, JavaCluster):
            self._start_java(self._cluster)
        else:
            self._start_ours()
        asyncio.run(self._make_topic())

    def pids(self) -> list[int]:
        """The processes of proxy and broker."""
        own = [] if self.kind == LOCAL else [self._cluster.broker_pid()]
        return own + self.proxy_pids()

    def mib(self) -> float:
        """The memory of proxy and broker."""
        return sum(resident_mib(pid)["VmRSS"] for pid in self.pids())

    def _start_ours(self) -> None:
        words = ["proxy", "-n", self.namesrv, "--set", f"grpcWorkers={WORKERS}"]
        # Workers can't share a port that `free_ports` reserves.
        words += ["--listen-port", "0", "--set", "httpPort=-1"]
        began = time.monotonic()
        child = self._run.command("proxy", *words)
        self._held.callback(child.stop)
        ready = re.search(r":(\d+)", child.wait_line(lambda line: "ready" in line, READY_SECONDS))
        if ready is None:
            raise LoadFailed(f"the proxy names no port: {child.lines}")
        self.port = int(ready[1])
        self._answered(began)
        self.proxy_pids = lambda: [child.pid, *children(child.pid)]

    def _start_java(self, cluster: JavaCluster) -> None:
        folder = cluster.folder
        orders = ["--namesrv", self.namesrv, "--cluster", CLUSTER_NAME, "--port", str(self.port)]
        if self.kind == LOCAL:
            words = ["--namesrv", str(cluster.namesrv_file)]
            names = java_side.start("Cluster", *words, home=folder / "namesrv-home")
            self._held.callback(names.kill)
            names.wait_event("ready", READY_SECONDS)
            orders += ["--broker", str(cluster.broker_file)]
        began = time.monotonic()
        home, flags = folder / "proxy-home", self._run.flags
        proxy = java_side.start("Proxy", *orders, home=home, flags=flags, version=java_side.PROXY)
        self._held.callback(proxy.kill)
        self._answered(began)
        self.proxy_pids = lambda: [proxy.pid]

    def _answered(self, began: float) -> None:
        """Wait for the first answer of the proxy, whatever it is."""
        request = definitions.message("QueryRouteRequest")(topic={"name": TOPIC})
        while True:
            try:
                asyncio.run(self.call("QueryRoute", request, 1.0))
            except (OSError, CallError):
                if time.monotonic() - began > READY_SECONDS:
                    raise LoadFailed(f"the proxy of {self.kind} gave no answer") from None
                time.sleep(0.01)
            else:
                self.seconds = time.monotonic() - began
                return

    async def call(self, rpc: str, request: Any, seconds: float = 10.0) -> Any:
        """The answer to one call."""
        raw = await one_call(
            ("127.0.0.1", self.port),
            f"{SERVICE}/{rpc}",
            request.SerializeToString(),
            grpcgen.CLIENT,
            seconds=seconds,
        )
        return definitions.message(f"{rpc}Response").FromString(raw)

    async def _make_topic(self) -> None:
        async with Admin(self.namesrv) as admin:
            for _ in range(READY_SECONDS):  # in local mode the broker may register later
                if (await admin.cluster_info()).broker_addr_table:
                    break
                await asyncio.sleep(1)
            await admin.create_topic(TOPIC, QUEUES, attributes={"message.type": "NORMAL"})
        for seconds in range(READY_SECONDS):  # a proxy may remember that there was none
            answer = await self.call("SendMessage", send_request())
            if answer.status.code == OK:
                return
            await asyncio.sleep(min(1, seconds))
        raise LoadFailed(f"{self.kind} refuses a send: {answer.status}")


def send_request() -> Any:
    """A send of one message."""
    found = definitions.message("SendMessageRequest")()
    message = found.messages.add(topic={"name": TOPIC}, body=BODY)
    message.system_properties.message_id = "0156F7E71C361B21BC024CCDBE00000000"
    message.system_properties.message_type = 1
    message.system_properties.body_encoding = 1
    return found


def telemetry_request() -> Any:
    """The settings of a simple consumer. RocketMQ's proxy refuses receives without them."""
    found = definitions.message("TelemetryCommand")()
    settings = found.settings
    settings.client_type = definitions.enum("ClientType")["SIMPLE_CONSUMER"]
    settings.subscription.group.name = GROUP
    row = settings.subscription.subscriptions.add(topic={"name": TOPIC})
    row.expression.expression = "*"
    return found


def receive_request(wait_seconds: int = 5) -> Any:
    """A receive of 32 messages."""
    found = definitions.message("ReceiveMessageRequest")(
        group={"name": GROUP},
        batch_size=BATCH,
        invisible_duration={"seconds": INVISIBLE_SECONDS},
        long_polling_timeout={"seconds": wait_seconds},
        filter_expression={"expression": "*"},
    )
    found.message_queue.topic.name = TOPIC
    return found


REQUESTS: dict[str, Callable[[], Any]] = {
    "SendMessage": send_request,
    "ReceiveMessage": receive_request,
}


def proxies(run: Run) -> list[Row]:
    """Processor time, rates, latency, memory, start; and what our proxy costs beside."""
    with ExitStack() as held:
        sides = {kind: Side(run, kind, held) for kind in (CLUSTER, LOCAL, OURS)}
        for side in sides.values():
            side.start()
            say(f"{side.kind}: first answer after {side.seconds:.2f} s")
            _receive_first(side)
            for case in CASES[:2]:
                _load(side, case, int(WARM * run.scale))
        parts: list[tuple[str, Callable[[], list[Row]]]] = [
            *((case.name, partial(_measured, run, sides, case)) for case in (*CASES, ACK)),
            (SINGLE.name, partial(_alone, run, sides)),
            ("Resident after it", partial(_memory, sides)),
            ("Start", partial(_starts, sides)),
        ]
        ours = sides[OURS]
        rows = [row for name, measure in parts for row in tried(name, measure)]
        return [
            *rows,
            _many_calls(ours, max(2 * FEW_CALLS, int(MILLION * run.scale))),
            asyncio.run(_idle_clients(ours, IDLE_SECONDS * min(1.0, run.scale))),
            _beside(run, ours),
        ]


def tried(name: str, measure: Callable[[], list[Row]]) -> list[Row]:
    """The rows of a measure, or one row that says why there are none."""
    try:
        return measure()
    except Exception as failure:
        wrong: BaseException = failure
        while isinstance(wrong, ExceptionGroup):
            wrong = wrong.exceptions[0]
        why = " ".join(f"{type(wrong).__name__}: {wrong}".split())[:NOTE_CHARS_MAX]
        say(f"{name} failed: {why}")
        return [Compared(name, "", math.nan, math.nan, "a value", why.replace("|", "/"))]


def _receive_first(side: Side) -> None:
    """The group begins: what is sent from now on is for it."""
    _greet(side)
    request = receive_request(0).SerializeToString()
    asyncio.run(grpcgen.exchange(side.port, "ReceiveMessage", [request]))


def _greet(side: Side) -> None:
    """Be known as a simple consumer. RocketMQ's proxy forgets one without a sign for 120 s."""
    raw = telemetry_request().SerializeToString()
    asyncio.run(grpcgen.exchange(side.port, "Telemetry", [raw]))
    request = definitions.message("HeartbeatRequest")(group={"name": GROUP})
    request.client_type = definitions.enum("ClientType")["SIMPLE_CONSUMER"]
    for _ in range(GREETINGS_MAX):  # RocketMQ's proxy may take the settings after the stream's end
        if asyncio.run(side.call("Heartbeat", request)).status.code == OK:
            return
        time.sleep(0.2)  # in the end the receives say what is wrong


def _measured(run: Run, sides: dict[str, Side], case: Case) -> list[Row]:
    """The rows of a case beside each mode of RocketMQ's proxy."""
    count = int(CALLS * run.scale)

    def once(side: Side, _: int) -> Result:
        if case is ACK:
            return _acks(side, count // 4)
        return _load(side, case, max(count // case.per, case.connections * case.streams))

    found = in_turns(run, case.name, sides, once, Side.pids)
    unit = f"us of processor a {'call' if case.per == 1 else 'message'}"
    rows: list[Row] = []
    for at, mode in enumerate((CLUSTER, LOCAL)):
        rows.append(_against(found, mode, case.name, unit, "cpu_us", case.cpu[at]))
        if case.rate is not None:
            mark = case.rate[at]
            rows.append(_against(found, mode, case.name, "calls/s", "msgs_per_s", mark))
    return rows


def _load(side: Side, case: Case, count: int) -> Result:
    if case.rpc == "ReceiveMessage":
        _greet(side)
    request = REQUESTS[case.rpc]().SerializeToString()
    load = (count, case.connections, case.streams)
    found = grpcgen.h2load(side.port, case.rpc, request, *load)
    messages = count * case.per
    if case.rpc == "ReceiveMessage" and found["bytes"] < messages * len(BODY):
        raise LoadFailed(
            f"{side.kind} gave {found['bytes']:,.0f} bytes to {count} receives, {case.per} messages"
            f" of {len(BODY)} bytes were wanted by each"
        )
    return found | {"messages": messages, "msgs_per_s": found["calls_per_s"]}


def _alone(run: Run, sides: dict[str, Side]) -> list[Row]:
    count = int(CALLS * run.scale) // 10
    found = in_turns(run, SINGLE.name, sides, lambda side, _: _load(side, SINGLE, max(count, 1)))
    return [_against(found, CLUSTER, f"{SINGLE.name}, mean time", "us", "mean_us", "<= 1")]


def _acks(side: Side, count: int) -> Result:
    _greet(side)
    requests = asyncio.run(_ack_requests(side, count))
    began = time.monotonic()
    answers = asyncio.run(grpcgen.exchange(side.port, "AckMessage", requests))
    seconds = time.monotonic() - began
    for each in answers:  # a refusal costs less than an acknowledgement
        status = definitions.message("AckMessageResponse").FromString(each[0] if each else b"")
        if status.status.code != OK:
            raise LoadFailed(f"{side.kind} refuses an acknowledgement: {status.status}")
    return {"messages": len(requests), "msgs_per_s": len(requests) / seconds}


async def _ack_requests(side: Side, count: int) -> list[bytes]:
    """Acknowledgements of this many received messages, each alone."""
    receives = [receive_request().SerializeToString()] * max(1, count // BATCH)
    answers = await grpcgen.exchange(side.port, "ReceiveMessage", receives, 4)
    answer_class = definitions.message("ReceiveMessageResponse")
    request_class = definitions.message("AckMessageRequest")
    found, said = [], "nothing"
    for raw in (each for answer in answers for each in answer):
        answer = answer_class.FromString(raw)
        if answer.WhichOneof("content") != "message":
            said = answer.status or said
            continue
        system = answer.message.system_properties
        request = request_class(group={"name": GROUP}, topic={"name": TOPIC})
        request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        found.append(request.SerializeToString())
    if not found:
        raise LoadFailed(f"{side.kind} gave no messages to acknowledge; it said: {said}")
    return found


def _against(found: Found, mode: str, name: str, unit: str, field: str, wanted: str) -> Compared:
    return compared(f"{name}, {mode}", unit, found, field, wanted, sides=(mode, OURS))


def _memory(sides: dict[str, Side]) -> list[Row]:
    time.sleep(QUIET_SECONDS)
    used: Found = {kind: [{"mib": side.mib()}] for kind, side in sides.items()}
    name = "Resident after it, broker included"
    marks = {CLUSTER: "<= 0.2", LOCAL: "<= 0.25"}
    return [_against(used, mode, name, "MiB", "mib", mark) for mode, mark in marks.items()]


def _starts(sides: dict[str, Side]) -> list[Row]:
    seconds: Found = {kind: [{"s": side.seconds}] for kind, side in sides.items()}
    name = "Start to the first answer"
    return [_against(seconds, mode, name, "s", "s", "<= 0.2") for mode in (CLUSTER, LOCAL)]


def _many_calls(ours: Side, count: int) -> Held:
    """Memory at the end of many calls on one connection, and after its first ones."""
    request, first, last = send_request().SerializeToString(), 0.0, 0.0
    with ThreadPoolExecutor(1) as pool:
        few = grpcgen.h2load(ours.port, "SendMessage", request, FEW_CALLS, 1, 16)
        enough_s = FEW_CALLS / few["calls_per_s"]
        began = time.monotonic()
        load = pool.submit(grpcgen.h2load, ours.port, "SendMessage", request, count, 1, 16)
        while not load.done():
            last = ours.mib()
            if not first and time.monotonic() - began >= enough_s:
                first = last
            time.sleep(0.1)
        load.result()
    name = f"Resident after {count:,} calls on a connection, more than after {FEW_CALLS:,}"
    note = f"{first:.0f} MiB after {FEW_CALLS:,}"
    return held(name, last - first, "{:+.1f} MiB", "<= 8 MiB", note)


async def _idle_clients(ours: Side, seconds: float) -> Held:
    """Memory and processor time of clients with telemetry that only send heartbeats."""
    before = ours.mib()
    async with grpcgen.idle(ours.port, IDLE_CLIENTS):
        spent, began = cpu_seconds(ours.pids()), time.monotonic()
        await asyncio.sleep(seconds)
        share = (cpu_seconds(ours.pids()) - spent) / (time.monotonic() - began)
        more = ours.mib() - before
    return Held(
        f"{IDLE_CLIENTS:,} idle clients with telemetry",
        f"{more:.0f} MiB, {share:.1%} of a core",
        f"<= {IDLE_MIB_MAX:g} MiB, <= {IDLE_CORE_MAX:.0%}",
        more <= IDLE_MIB_MAX and share <= IDLE_CORE_MAX,
        f"a heartbeat each {grpcgen.HEARTBEAT_SECONDS:g} s",
    )


def _beside(run: Run, ours: Side) -> Held:
    """The rate of senders by remoting, with and without senders by gRPC at a fixed rate."""
    load, topic, program = run.load(SENDS), "BesideGrpc", run.program
    loadgen.create_topic(ours.broker, topic)
    loadgen.run(program, ours.broker, topic, load)  # warms up
    alone = loadgen.run(program, ours.broker, topic, load)["msgs_per_s"]
    seconds = load.count / alone
    calls = int(GRPC_CALLS_PER_S * seconds * 2)  # more than the other load lasts
    request, rate = send_request().SerializeToString(), GRPC_CALLS_PER_S / GRPC_SENDERS
    with ThreadPoolExecutor(1) as pool:
        senders = (max(calls, GRPC_SENDERS), GRPC_SENDERS, 1, rate)
        grpc = pool.submit(grpcgen.h2load, ours.port, "SendMessage", request, *senders)
        time.sleep(min(1.0, seconds / 4))
        together = loadgen.run(program, ours.broker, topic, load)["msgs_per_s"]
        grpc.result()
    name = f"Remoting SEND 64 x 1 beside {GRPC_SENDERS} gRPC senders, {GRPC_CALLS_PER_S:,} calls/s"
    note = f"{alone:,.0f}/s alone"
    return held(name, together / alone, "{:.2f} of its rate", ">= 0.8", note)
