"""What the load generators in Python share: frames, connections, and a run in its own process.

Frames are made and read only as far as a load needs it, so that broker and load can share a small
machine.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from .loadgen import RUN_SECONDS_MAX, Load, LoadFailed

READ_BYTES = 1 << 18
FRAME = struct.Struct(">ii")
TAIL = ',"flag":0,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":479}'


def frame(fields: str, opaque: int, body: bytes = b"") -> bytes:
    """A request; `fields` is its header as JSON up to the flag."""
    header = (fields + TAIL % opaque).encode()
    return FRAME.pack(4 + len(header) + len(body), len(header)) + header + body


class Wire:
    """One connection to a broker."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""

    def headers(self) -> Iterator[bytes]:
        """Read once; the headers of the responses that are whole."""
        self._data += self.socket.recv(READ_BYTES)
        data, at = self._data, 0
        while len(data) - at >= FRAME.size:
            length, header_bytes = FRAME.unpack_from(data, at)
            end = at + 4 + length
            if len(data) < end:
                break
            yield data[at + 8 : at + 8 + (header_bytes & 0xFFFFFF)]
            at = end
        self._data = data[at:]


class Worker(Protocol):
    """One connection with its part of a load."""

    socket: socket.socket

    def read(self) -> None:
        """Take what came in, and ask for more."""


def drive(workers: Sequence[Worker], is_over: Callable[[], bool]) -> float:
    """Let all read until it is over, and close them; returns the seconds."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.socket, selectors.EVENT_READ, worker)
        begin = time.perf_counter()
        while not is_over():
            for key, _ in selector.select(timeout=60):
                key.data.read()
        seconds = time.perf_counter() - begin
    for worker in workers:
        worker.socket.close()
    return seconds


def report(messages: int, errors: int, seconds: float, took_us: Sequence[float]) -> dict[str, Any]:
    """The line that a load prints."""
    times = sorted(took_us)
    return {
        "messages": messages,
        "errors": errors,
        "seconds": seconds,
        "msgs_per_s": messages / seconds,
        "p50_us": times[len(times) // 2],
        "p99_us": times[len(times) * 99 // 100],
    }


def run_alone(
    module: str, address: str, topic: str, words: Sequence[str], load: Load, said: str = ""
) -> dict[str, Any]:
    """Run a module of this folder in a process of its own, with `said` as its standard input.

    Returns its line. LoadFailed when it has ended with an error.
    """
    host, _, port = address.partition(":")
    argv = [sys.executable, "-m", f"aerobee.bench.loads.{module}", host, port, topic, *words]
    done = subprocess.run(  # noqa: S603 - no shell
        argv, capture_output=True, input=said, text=True, timeout=RUN_SECONDS_MAX
    )
    if done.returncode != 0:
        raise LoadFailed(f"{load.name} on {topic}: {done.stderr[-1_000:]} {done.stdout}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
