"""What the load generators in Python share: frames, connections, and a run in its own process.

Frames are made and read only as far as a load needs it, so that broker and load can share a small
machine.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from multiprocessing import get_context
from typing import Any, Protocol

from .loadgen import RUN_SECONDS_MAX, Load, LoadFailed, connected, refused_max

Result = dict[str, Any]

READ_BYTES = 1 << 18
FRAME = struct.Struct(">ii")
TAIL = ',"flag":0,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":479}'


def frame(fields: str, opaque: int, body: bytes = b"") -> bytes:
    """A request; `fields` is its header as JSON up to the flag."""
    header = (fields + TAIL % opaque).encode()
    return FRAME.pack(4 + len(header) + len(body), len(header)) + header + body


class Wire:
    """One connection to a broker."""

    def __init__(self, address: str) -> None:
        self.socket = connected(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""

    def headers(self) -> Iterator[bytes]:
        """Read once; the headers of the responses that are whole."""
        received = self.socket.recv(READ_BYTES)
        if not received:
            raise LoadFailed("the broker closed the connection")
        self._data += received
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

    def begin(self) -> None:
        """Send the first requests."""

    def read(self) -> None:
        """Take what came in, and ask for more."""


def drive(workers: Sequence[Worker], is_over: Callable[[], bool]) -> float:
    """Let all read until it is over, and close them; returns the seconds."""
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for worker in workers:
            stack.enter_context(worker.socket)
            selector.register(worker.socket, selectors.EVENT_READ, worker)
        begin = time.perf_counter()
        for worker in workers:
            worker.begin()
        while not is_over():
            for key, _ in selector.select(timeout=60):
                key.data.read()
        return time.perf_counter() - begin


def report(
    messages: int, seconds: float, took_us: Sequence[float], errors: int = 0, code: str = ""
) -> Result:
    """The result of a load; `code` is that of the refused requests."""
    times = sorted(took_us)
    return {
        "messages": messages,
        "errors": errors,
        "code": code,
        "seconds": seconds,
        "msgs_per_s": messages / seconds,
        "p50_us": times[len(times) // 2],
        "p99_us": times[len(times) * 99 // 100],
    }


def run_alone(
    work: Callable[..., Result], address: str, topic: str, load: Load, *more: object
) -> Result:
    """Run `work(address, topic, load, *more)` in a process of its own, and return its result.

    LoadFailed if it fails, and if more requests were refused than a busy broker refuses.
    """
    with get_context("spawn").Pool(1) as pool:
        try:
            done = pool.apply_async(work, (address, topic, load, *more))
            found = done.get(RUN_SECONDS_MAX)
        except Exception as wrong:
            raise LoadFailed(f"{load.name} on {topic}: {type(wrong).__name__}: {wrong}") from None
    if found["errors"] > refused_max(load, found.pop("code")):
        raise LoadFailed(f"{load.name} on {topic}: {found}")
    return found
