"""What `scripts/bench --only grpc` measures: our proxy beside RocketMQ's in its two modes.

Each side is a proxy before a broker of its own kind. h2load makes the calls, after calls that warm
each side up. Processor time is that of proxy and broker together. A measure that fails becomes a
row that says why; the others go on.
"""

from __future__ import annotations

import asyncio
import math
import re
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..client import Admin
from ..harness import java_side
from ..harness.child import Child
from ..harness.clusters import (
    CLUSTER_NAME,
    READY_SECONDS,
    AerobeeCluster,
    JavaCluster,
)
from ..proxy.http2.one_call import CallError, one_call
from ..proxy.messages import definitions
from .grpc_cost_measures import Measured, costs
from .loads import grpcgen
from .loads.loadgen import LoadFailed
from .measures import Compared, Say, cpu_seconds, resident_mib
from .store_measures import Held

TOPIC, GROUP, QUEUES = "Grpc", "grpc", 8
BODY = bytes(128)
WORKERS = 2
WARM, CALLS = 200_000, 60_000  # sends: to warm each side up, and of each case
BATCH = 32
INVISIBLE_SECONDS = 3_600
GREETINGS_MAX = 20
OK = 20_000  # the code of a status
NOTE_CHARS_MAX = 200
SETTLE_SECONDS = 2.0
SERVICE = f"/{definitions.SERVICE}"
CLUSTER, LOCAL, OURS = "cluster mode", "local mode", "aerobee"


@dataclass(frozen=True, slots=True)
class Case:
    """Calls, and the ratios to Java's figures that they have to reach, in cluster and local mode.

    `per` is how many messages a call has: the processor time is that of one."""

    name: str
    rpc: str
    connections: int
    streams: int
    cpu_max: tuple[float, float]
    rate_min: tuple[float, float] | None
    per: int = 1


CASES = (
    Case("SEND 64 x 1", "SendMessage", 64, 1, (0.75, 1.3), (1.2, 0.75)),
    Case("SEND 4 x 16", "SendMessage", 4, 16, (0.75, 1.3), (1.2, 0.75)),
    Case("RECEIVE 32, 4 x 1", "ReceiveMessage", 4, 1, (0.5, 0.9), None, BATCH),
)
ACK = Case("ACK one a call, 64 x 1", "AckMessage", 64, 1, (0.75, 1.3), None)


class Side:
    """A proxy before a broker of its own."""

    def __init__(self, kind: str, folder: Path, flags: tuple[str, ...], held: ExitStack) -> None:
        self.kind = kind
        self.port = java_side.free_ports(1)[0]
        self._folder, self._flags, self._held = folder, flags, held
        self._pids: list[Callable[[], list[int]]] = []
        self.namesrv = self.broker = ""
        self.seconds = 0.0  # from the start of the proxy to its first answer

    def start(self) -> None:
        """Start all, make the topic, and note when the proxy gave its first answer."""
        ours = AerobeeCluster(self._folder) if self.kind == OURS else None
        java = JavaCluster(self._folder, flags=self._flags) if ours is None else None
        if ours is not None:
            self._held.callback(ours.stop)
            ours.start()
            self._pids.append(lambda: [ours.broker_pid()])
        elif self.kind == CLUSTER:
            assert java is not None
            self._held.callback(java.stop)
            java.start()
            self._pids.append(lambda: [java.broker_pid()])
        cluster = ours or java
        assert cluster is not None
        self.namesrv, self.broker = cluster.namesrv, cluster.broker
        if ours is not None:
            self._start_ours()
        else:
            assert java is not None
            self._start_java(java)
        asyncio.run(self._make_topic())

    def pids(self) -> list[int]:
        """The processes of proxy and broker."""
        return [pid for each in self._pids for pid in each()]

    def proxy_pids(self) -> list[int]:
        """The processes of the proxy."""
        return self._pids[-1]()

    def _start_ours(self) -> None:
        words = ["-m", "aerobee.scripts.cli", "proxy", "-n", self.namesrv]
        # Workers can't share a port that `free_ports` reserves.
        words += ["--listen-port", "0", "--set", f"grpcWorkers={WORKERS}"]
        began = time.monotonic()
        child = Child(
            [sys.executable, *words, "--set", "httpPort=-1"],
            self._folder / "proxy.stderr",
            cwd=self._folder,
        )
        self._held.callback(child.stop)
        ready = re.search(r":(\d+)", child.wait_line(lambda line: "ready" in line, READY_SECONDS))
        if ready is None:
            raise LoadFailed(f"the proxy names no port: {child.lines}")
        self.port = int(ready[1])
        self._answered(began)

        def with_workers() -> list[int]:
            children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text()
            return [child.pid, *map(int, children.split())]

        self._pids.append(with_workers)

    def _start_java(self, cluster: JavaCluster) -> None:
        orders = ["--namesrv", self.namesrv, "--cluster", CLUSTER_NAME, "--port", str(self.port)]
        if self.kind == LOCAL:
            names = java_side.start(
                *("Cluster", "--namesrv", str(cluster.namesrv_file)),
                home=self._folder / "namesrv-home",
            )
            self._held.callback(names.kill)
            names.wait_event("ready", READY_SECONDS)
            orders += ["--broker", str(cluster.broker_file)]
        began = time.monotonic()
        proxy = java_side.start(
            *("Proxy", *orders),
            home=self._folder / "proxy-home",
            flags=self._flags,
            version=java_side.PROXY,
        )
        self._held.callback(proxy.kill)
        self._answered(began)
        self._pids.append(lambda: [proxy.pid])

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
            *(("127.0.0.1", self.port), f"{SERVICE}/{rpc}", request.SerializeToString()),
            {name: text for name, text in grpcgen.METADATA.items() if name.startswith("x-")},
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
    """What a simple consumer says of itself. RocketMQ's proxy refuses receives without it."""
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


def proxies(
    folder: Path, program: Path, rounds: int, scale: float, flags: tuple[str, ...], say: Say
) -> tuple[list[Compared], list[Held]]:
    """The table: processor time, rates, latency, memory, start; and what our proxy costs beside.

    `program` is the load generator for remoting.
    """
    with ExitStack() as held:
        sides = [
            Side(kind, folder / kind.replace(" ", "-"), flags, held)
            for kind in (CLUSTER, LOCAL, OURS)
        ]
        for side in sides:
            side.start()
            say(f"{side.kind}: first answer after {side.seconds:.2f} s")
            _receive_first(side)
            _load(side, CASES[0], int(WARM * scale))
            _load(side, CASES[1], int(WARM * scale))
        count = int(CALLS * scale)
        single = Case("SEND 1 x 1", "SendMessage", 1, 1, (1.0, 1.0), None)

        def sends_and_receives(case: Case) -> list[Compared]:
            return _rows(case, _rounds(sides, rounds, say, case, count // case.per))

        def alone() -> list[Compared]:
            found = _rounds(sides, rounds, say, single, count // 10)
            return [_against(found, CLUSTER, "SEND 1 x 1, mean time", "us", "mean_us", 1.0)]

        def memory() -> list[Compared]:
            time.sleep(SETTLE_SECONDS)
            return _memory(sides)

        parts: list[tuple[str, Callable[[], list[Compared]]]] = [
            *((case.name, partial(sends_and_receives, case)) for case in CASES),
            (ACK.name, lambda: _rows(ACK, _acks(sides, rounds, count // 4, say))),
            (single.name, alone),
            ("Resident after it", memory),
            ("Start", lambda: _starts(sides)),
        ]
        compared = [row for name, measure in parts for row in tried(name, measure, say)]
        ours = sides[-1]
        measured = Measured(
            *(ours.port, ours.proxy_pids, ours.broker, f"{SERVICE}/SendMessage"),
            send_request().SerializeToString(),
        )
        return compared, costs(measured, program, scale, say)


def tried(name: str, measure: Callable[[], list[Compared]], say: Say) -> list[Compared]:
    """The rows of a measure, or one row that says why there are none."""
    try:
        return measure()
    except Exception as failure:
        wrong: BaseException = failure
        while isinstance(wrong, ExceptionGroup):
            wrong = wrong.exceptions[0]
        why = " ".join(f"{type(wrong).__name__}: {wrong}".split())[:NOTE_CHARS_MAX]
        say(f"{name} failed: {why}")
        return [Compared(name, "", math.nan, math.nan, "a value", False, why.replace("|", "/"))]


def _receive_first(side: Side) -> None:
    """The group begins: what is sent from now on is for it."""
    _greet(side)
    request = receive_request(0).SerializeToString()
    asyncio.run(grpcgen.exchange(side.port, f"{SERVICE}/ReceiveMessage", [request]))


def _greet(side: Side) -> None:
    """Be known as a simple consumer. RocketMQ's proxy forgets one without a sign for 120 s."""
    raw = telemetry_request().SerializeToString()
    asyncio.run(grpcgen.exchange(side.port, f"{SERVICE}/Telemetry", [raw]))
    request = definitions.message("HeartbeatRequest")(group={"name": GROUP})
    request.client_type = definitions.enum("ClientType")["SIMPLE_CONSUMER"]
    for _ in range(GREETINGS_MAX):  # RocketMQ's proxy may take the settings after the stream's end
        if asyncio.run(side.call("Heartbeat", request)).status.code == OK:
            return
        time.sleep(0.2)  # in the end the receives say what is wrong


def _load(side: Side, case: Case, count: int) -> dict[str, float]:
    if case.rpc == "ReceiveMessage":
        _greet(side)
    request = REQUESTS[case.rpc]().SerializeToString()
    before = sum(map(cpu_seconds, side.pids()))
    found = grpcgen.h2load(
        *(side.port, f"{SERVICE}/{case.rpc}", request, count, case.connections, case.streams)
    )
    spent = sum(map(cpu_seconds, side.pids())) - before
    if case.rpc == "ReceiveMessage" and found["bytes"] < count * case.per * len(BODY):
        raise LoadFailed(
            f"{side.kind} gave {found['bytes']:,.0f} bytes to {count} receives, {case.per} messages"
            f" of {len(BODY)} bytes were wanted by each"
        )
    return found | {"cpu_us": spent / (count * case.per) * 1e6}


Found = dict[str, list[dict[str, float]]]


def _rounds(sides: list[Side], rounds: int, say: Say, case: Case, count: int) -> Found:
    found: Found = {side.kind: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            one = _load(side, case, max(count, case.connections * case.streams))
            found[side.kind].append(one)
            say(f"{case.name}: {side.kind} {one['cpu_us']:.0f} us, {one['calls_per_s']:,.0f}/s")
    return found


def _acks(sides: list[Side], rounds: int, count: int, say: Say) -> Found:
    found: Found = {side.kind: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            _greet(side)
            requests = asyncio.run(_ack_requests(side, count))
            before = sum(map(cpu_seconds, side.pids()))
            answers = asyncio.run(grpcgen.exchange(side.port, f"{SERVICE}/AckMessage", requests))
            spent = sum(map(cpu_seconds, side.pids())) - before
            _check_acks(side, answers)
            found[side.kind].append({"cpu_us": spent / len(requests) * 1e6})
            say(f"{ACK.name}: {side.kind} {found[side.kind][-1]['cpu_us']:.0f} us")
    return found


async def _ack_requests(side: Side, count: int) -> list[bytes]:
    """Acknowledgements of this many received messages, each alone."""
    receives = [receive_request().SerializeToString()] * max(1, count // BATCH)
    answers = await grpcgen.exchange(side.port, f"{SERVICE}/ReceiveMessage", receives, 4)
    answer_class = definitions.message("ReceiveMessageResponse")
    request_class = definitions.message("AckMessageRequest")
    found = []
    for raw in (each for answer in answers for each in answer):
        answer = answer_class.FromString(raw)
        if answer.WhichOneof("content") != "message":
            continue
        system = answer.message.system_properties
        request = request_class(group={"name": GROUP}, topic={"name": TOPIC})
        request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        found.append(request.SerializeToString())
    if not found:
        said = (
            answer_class.FromString(answers[0][0]).status if answers and answers[0] else "nothing"
        )
        raise LoadFailed(f"{side.kind} gave no messages to acknowledge; it said: {said}")
    return found


def _check_acks(side: Side, answers: list[list[bytes]]) -> None:
    """LoadFailed unless each was accepted: a refusal costs less than an acknowledgement."""
    answer_class = definitions.message("AckMessageResponse")
    for each in answers:
        status = answer_class.FromString(each[0] if each else b"").status
        if status.code != OK:
            raise LoadFailed(f"{side.kind} refuses an acknowledgement: {status}")


def _rows(case: Case, found: Found) -> list[Compared]:
    rows = []
    for at, mode in enumerate((CLUSTER, LOCAL)):
        unit = "us of processor a message" if case.per > 1 else "us of processor a call"
        rows.append(_against(found, mode, case.name, unit, "cpu_us", case.cpu_max[at]))
        if case.rate_min is not None:
            least = case.rate_min[at]
            row = _against(found, mode, case.name, "calls/s", "calls_per_s", least)
            rows.append(replace(row, wanted=f">= {least:g}", holds=row.ratio >= least))
    return rows


def _against(found: Found, mode: str, name: str, unit: str, field: str, most: float) -> Compared:
    java, ours = (statistics.median(one[field] for one in found[kind]) for kind in (mode, OURS))
    return Compared(f"{name}, {mode}", unit, java, ours, f"<= {most:g}", ours <= most * java)


def _memory(sides: list[Side]) -> list[Compared]:
    used = {
        side.kind: [{"mib": sum(resident_mib(pid)["VmRSS"] for pid in side.pids())}]
        for side in sides
    }
    name = "Resident after it, broker included"
    return [
        _against(used, mode, name, "MiB", "mib", most)
        for mode, most in ((CLUSTER, 0.2), (LOCAL, 0.25))
    ]


def _starts(sides: list[Side]) -> list[Compared]:
    seconds = {side.kind: [{"s": side.seconds}] for side in sides}
    return [
        _against(seconds, mode, "Start to the first answer", "s", "s", 0.2)
        for mode in (CLUSTER, LOCAL)
    ]
