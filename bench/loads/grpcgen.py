"""Load for proxies of gRPC: h2load for calls that are all the same, our own for calls that differ.

h2load is in Debian's package nghttp2-client. It sends one body over and over, so acknowledgements,
each of which names another message, go through `exchange`.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from ...proxy.http2 import library
from ...proxy.http2.call import PREFIX
from ...proxy.messages import definitions
from .loadgen import LoadFailed

SECONDS = 900.0  # for one load
READ_BYTES = 256 << 10
WINDOW_BYTES = 16 << 20
METADATA = {
    "te": "trailers",
    "content-type": "application/grpc",
    "grpc-timeout": "30S",  # RocketMQ's proxy serves no receive without a deadline
    "x-mq-client-id": "bench",
    "x-mq-language": "JAVA",
    "x-mq-client-version": "5.0.8",
    "x-mq-protocol": "v2",
}
HEARTBEAT_SECONDS = 10.0  # of an idle client, as Java's
OPENED_AT_ONCE = 50
_SERVICE = f"/{definitions.SERVICE}"
_RATE = re.compile(r"finished in .*, ([\d.]+) req/s")
_DONE = re.compile(r"requests: .* (\d+) succeeded, (\d+) failed")
_DATA = re.compile(r"traffic: .*\((\d+)\) data")
_MEAN = re.compile(r"time for request: +\S+ +\S+ +([\d.]+)(us|ms|s)")
_IN_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


def framed(request: bytes) -> bytes:
    """A request as gRPC sends it."""
    return PREFIX.pack(0, len(request)) + request


def h2load(
    port: int,
    path: str,
    request: bytes,
    count: int,
    connections: int,
    streams: int,
    per_s: float = 0.0,
) -> dict[str, float]:
    """Calls with this request: `calls_per_s`, `mean_us` (the mean time of a call) and `bytes`,
    those of all answers. `per_s` limits the calls of each connection in a second.

    LoadFailed without h2load, and when calls fail.
    """
    program = shutil.which("h2load")
    if program is None:
        raise LoadFailed("h2load is not installed; apt-get install nghttp2-client")
    with tempfile.NamedTemporaryFile() as body:
        Path(body.name).write_bytes(framed(request))
        words = [program, "-n", str(count), "-c", str(connections), "-m", str(streams)]
        words += ["-t", "1", "-d", body.name]
        if per_s:
            words += ["--rps", str(math.ceil(per_s))]
        for name, value in METADATA.items():
            words += ["-H", f"{name}: {value}"]
        words.append(f"http://127.0.0.1:{port}{path}")
        done = subprocess.run(  # noqa: S603 - our own argument list, no shell
            words, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    patterns = (_RATE, _DONE, _DATA, _MEAN)
    rate, ended, data, mean = (each.search(done.stdout) for each in patterns)
    if not (rate and ended and data and mean) or int(ended[1]) != count:
        raise LoadFailed(f"h2load on {path}: {done.stderr[-500:]} {done.stdout[-1_000:]}")
    return {
        "calls_per_s": float(rate[1]),
        "mean_us": float(mean[1]) * _IN_US[mean[2]],
        "bytes": float(data[1]),
    }


async def exchange(
    port: int, path: str, requests: list[bytes], connections: int = 64
) -> list[list[bytes]]:
    """The answers to each request, in any order; one call at a time on each connection."""
    found: list[list[bytes]] = []
    left = iter(requests)
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
        for _ in range(min(connections, len(requests))):
            group.create_task(_one_connection(port, path, left, found))
    return found


async def _one_connection(
    port: int, path: str, requests: Iterator[bytes], found: list[list[bytes]]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    machine = library.new_client()
    machine.initiate_connection()
    machine.increment_flow_control_window(WINDOW_BYTES)
    headers = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "bench"}
    pairs = [(name.encode(), value.encode()) for name, value in (headers | METADATA).items()]
    for request in requests:
        stream = machine.get_next_available_stream_id()
        machine.send_headers(stream, pairs)
        machine.send_data(stream, framed(request), end_stream=True)
        writer.write(machine.data_to_send())
        body, is_open = bytearray(), True
        while is_open:
            data = await reader.read(READ_BYTES)
            if not data:
                raise LoadFailed(f"the proxy at port {port} closed a connection during {path}")
            for event in machine.receive_data(data):
                if isinstance(event, library.events.DataReceived):
                    body += event.data
                    machine.acknowledge_received_data(event.flow_controlled_length, stream)
                is_open &= not isinstance(
                    event, (library.events.StreamEnded, library.events.StreamReset)
                )
            writer.write(machine.data_to_send())
        found.append(list(_messages(bytes(body))))
    writer.close()


class _IdleClient:
    """A connection with a telemetry stream, and a heartbeat now and then."""

    def __init__(self, port: int, client_id: str) -> None:
        self._port = port
        self._client_id = client_id
        self._machine = library.new_client()
        self._writer: asyncio.StreamWriter | None = None
        self._answers = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connect, tell the settings, and wait for the proxy's."""
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._machine.initiate_connection()
        command = definitions.message("TelemetryCommand")()
        command.settings.client_type = definitions.enum("ClientType")["SIMPLE_CONSUMER"]
        command.settings.subscription.group.name = "idle"
        command.settings.subscription.subscriptions.add(topic={"name": "Grpc"})
        self._call("Telemetry", command, end=False)
        self.tasks = [asyncio.create_task(self._read(reader)), asyncio.create_task(self._beat())]
        await self._answers.wait()

    def close(self) -> None:
        """Close the connection."""
        for task in self.tasks:
            task.cancel()
        if self._writer is not None:
            self._writer.close()

    def _call(self, rpc: str, request: object, *, end: bool) -> None:
        assert self._writer is not None
        stream = self._machine.get_next_available_stream_id()
        headers = {":method": "POST", ":scheme": "http", ":path": f"{_SERVICE}/{rpc}"}
        headers |= {":authority": "idle", **METADATA, "x-mq-client-id": self._client_id}
        if not end:
            del headers["grpc-timeout"]
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._machine.send_headers(stream, pairs)
        data = framed(request.SerializeToString())  # type: ignore[attr-defined]
        self._machine.send_data(stream, data, end_stream=end)
        self._writer.write(self._machine.data_to_send())

    async def _read(self, reader: asyncio.StreamReader) -> None:
        assert self._writer is not None
        while data := await reader.read(READ_BYTES):
            for event in self._machine.receive_data(data):
                if isinstance(event, library.events.DataReceived):
                    self._answers.set()
            self._writer.write(self._machine.data_to_send())

    async def _beat(self) -> None:
        request = definitions.message("HeartbeatRequest")(group={"name": "idle"})
        await asyncio.sleep(random.uniform(0, HEARTBEAT_SECONDS))  # noqa: S311
        while True:
            self._call("Heartbeat", request, end=True)
            await asyncio.sleep(HEARTBEAT_SECONDS)


@asynccontextmanager
async def idle(port: int, count: int) -> AsyncIterator[None]:
    """This many clients, each with a connection and telemetry, that only send heartbeats."""
    clients = [_IdleClient(port, f"idle-{number}") for number in range(count)]
    try:
        async with asyncio.timeout(SECONDS):
            for at in range(0, count, OPENED_AT_ONCE):
                await asyncio.gather(*(one.start() for one in clients[at : at + OPENED_AT_ONCE]))
        yield
    finally:
        for one in clients:
            one.close()
        done = [task for one in clients for task in one.tasks]
        await asyncio.gather(*done, return_exceptions=True)


def _messages(body: bytes) -> Iterator[bytes]:
    at = 0
    while at + PREFIX.size <= len(body):
        _, size = PREFIX.unpack_from(body, at)
        at += PREFIX.size + size
        yield body[at - size : at]
