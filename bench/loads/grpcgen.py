"""Load for proxies of gRPC: h2load for calls that are all the same, grpcio for calls that differ.

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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from ...proxy.http2.call import PREFIX
from ...proxy.messages import definitions
from .loadgen import LoadFailed

SECONDS = 900.0  # for one load
CALL_SECONDS = 30  # RocketMQ's proxy serves no receive without a deadline
WINDOW = 16 << 20  # bytes
CLIENT = {
    "x-mq-client-id": "bench",
    "x-mq-language": "JAVA",
    "x-mq-client-version": "5.0.8",
    "x-mq-protocol": "v2",
}
CALL = {
    "te": "trailers",
    "content-type": "application/grpc",
    "grpc-timeout": f"{CALL_SECONDS}S",
}
HEARTBEAT_SECONDS = 10.0  # of an idle client, as Java's
OPENED_AT_ONCE = 50
SERVICE = f"/{definitions.SERVICE}"
_RATE = re.compile(r"finished in .*, ([\d.]+) req/s")
_DONE = re.compile(r"requests: .* (\d+) succeeded, (\d+) failed")
_DATA = re.compile(r"traffic: .*\((\d+)\) data")
_MEAN = re.compile(r"time for request: +\S+ +\S+ +([\d.]+)(us|ms|s)")
_IN_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


def h2load(
    port: int,
    rpc: str,
    request: bytes,
    count: int,
    connections: int,
    streams: int,
    per_s: float = 0.0,
) -> dict[str, float]:
    """Calls of `rpc` with this request: `calls_per_s`, `mean_us` (the mean time of a call), `bytes`
    (of all answers). `per_s` limits the calls of each connection in a second.

    LoadFailed without h2load, and when calls fail.
    """
    program = shutil.which("h2load")
    if program is None:
        raise LoadFailed("h2load is not installed; apt-get install nghttp2-client")
    with tempfile.NamedTemporaryFile() as body:
        Path(body.name).write_bytes(PREFIX.pack(0, len(request)) + request)
        words = [program, "-n", str(count), "-c", str(connections), "-m", str(streams)]
        words += ["-t", "1", "-d", body.name]
        if per_s:
            words += ["--rps", str(math.ceil(per_s))]
        for name, value in (CALL | CLIENT).items():
            words += ["-H", f"{name}: {value}"]
        words.append(f"http://127.0.0.1:{port}{SERVICE}/{rpc}")
        done = subprocess.run(  # noqa: S603 - our own argument list, no shell
            words, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    patterns = (_RATE, _DONE, _DATA, _MEAN)
    rate, ended, data, mean = (each.search(done.stdout) for each in patterns)
    if not (rate and ended and data and mean) or int(ended[1]) != count:
        raise LoadFailed(f"h2load on {rpc}: {done.stderr[-500:]} {done.stdout[-1_000:]}")
    return {
        "calls_per_s": float(rate[1]),
        "mean_us": float(mean[1]) * _IN_US[mean[2]],
        "bytes": float(data[1]),
    }


async def exchange(
    port: int, rpc: str, requests: list[bytes], connections: int = 64
) -> list[list[bytes]]:
    """The answers to each request, in any order; one call at a time on each connection."""
    found: list[list[bytes]] = []
    left = iter(requests)

    async def call() -> None:
        async with _channel(port) as channel:
            ask = channel.unary_stream(f"{SERVICE}/{rpc}")
            for request in left:
                found.append(
                    [
                        raw
                        async for raw in ask(
                            request, metadata=_metadata("bench"), timeout=CALL_SECONDS
                        )
                    ]
                )

    try:
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(call() for _ in range(min(connections, len(requests)))))
    except grpc.RpcError as wrong:
        raise LoadFailed(f"the proxy at port {port} fails {rpc}: {wrong}") from None
    return found


@asynccontextmanager
async def idle(port: int, count: int) -> AsyncIterator[None]:
    """Run `count` clients, each with a connection and telemetry, that only send heartbeats."""
    command = definitions.message("TelemetryCommand")()
    command.settings.client_type = definitions.enum("ClientType")["SIMPLE_CONSUMER"]
    command.settings.subscription.group.name = "idle"
    command.settings.subscription.subscriptions.add(topic={"name": "Grpc"})
    settings = command.SerializeToString()
    beat = definitions.message("HeartbeatRequest")(group={"name": "idle"}).SerializeToString()

    async def client(number: int, known: asyncio.Event) -> None:
        metadata = _metadata(f"idle-{number}")
        async with _channel(port) as channel:
            stream = channel.stream_stream(f"{SERVICE}/Telemetry")(metadata=metadata)
            await stream.write(settings)
            await stream.read()
            known.set()
            await asyncio.sleep(random.uniform(0, HEARTBEAT_SECONDS))  # noqa: S311
            while True:
                await channel.unary_unary(f"{SERVICE}/Heartbeat")(beat, metadata=metadata)
                await asyncio.sleep(HEARTBEAT_SECONDS)

    tasks: list[asyncio.Task[None]] = []
    try:
        async with asyncio.timeout(SECONDS):
            for at in range(0, count, OPENED_AT_ONCE):
                known = [asyncio.Event() for _ in range(at, min(at + OPENED_AT_ONCE, count))]
                tasks += [asyncio.create_task(client(at + n, it)) for n, it in enumerate(known)]
                await asyncio.gather(*(each.wait() for each in known))
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _channel(port: int) -> Any:
    """A connection of its own: channels to one address share one otherwise."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.initial_window_size", WINDOW)]
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options)


def _metadata(client_id: str) -> list[tuple[str, str]]:
    return list((CLIENT | {"x-mq-client-id": client_id}).items())
