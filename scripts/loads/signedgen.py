"""Signed sends, as fast as a broker answers them: what `loadgen` can't send.

Each connection has one send in flight. All frames are made and signed before the clock starts, so
that broker and load can share a small machine; the fields are those of `loadgen`. Prints one JSON
line when all sends are answered.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from ...protocol.security.signature import signed
from .frames import FRAME, READ_BYTES, frame, report, run_alone
from .loadgen import Load, LoadFailed

SEND_MESSAGE_V2 = 310
QUEUES = 4
TAKEN = b'{"code":0,'  # how the header of a success begins


def signed_send(number: int, topic: str, user: str, secret: str, body: bytes) -> bytes:
    """The frame of one signed send."""
    properties = f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02TAGS\x01t{number % 4}"
    fields = {
        "a": "signers",
        "b": topic,
        "c": "TBW102",
        "d": str(QUEUES),
        "e": str(number % QUEUES),
        "f": "0",
        "g": str(int(time.time()) * 1_000),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "l": "0",
        "m": "false",
    }
    text = json.dumps(signed(fields, body, user, secret), separators=(",", ":"))
    return frame(f'{{"code":{SEND_MESSAGE_V2},"extFields":{text}', number, body)


def start(address: str, topic: str, user: str, secret: str, load: Load) -> dict[str, float]:
    """Runs a load in a process of its own; its line. LoadFailed when a request was refused."""
    words = ["--user", user, "--conns", str(load.conns), "--count", str(load.count)]
    words += ["--size", str(load.size)]
    return run_alone("signedgen", address, topic, words, load, secret)


def run(options: argparse.Namespace, secret: str) -> dict[str, float]:
    """Send `options.count` messages; what it took. LoadFailed at the first refusal."""
    body = bytes(options.size)
    frames = [
        signed_send(number, options.topic, options.user, secret, body)
        for number in range(options.count)
    ]
    address = (options.host, options.port)
    waits: list[float] = []
    left = iter(frames)
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        connections = [
            stack.enter_context(socket.create_connection(address, timeout=60))
            for _ in range(options.conns)
        ]
        sent_at = dict.fromkeys(connections, 0.0)
        begin = time.perf_counter()
        for connection in connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection, selectors.EVENT_READ, connection)
            sent_at[connection] = time.perf_counter()
            connection.sendall(next(left))
        while len(waits) < options.count:
            for key, _ in selector.select(timeout=60):
                connection = key.data
                _check(connection.recv(READ_BYTES))  # a response is one small packet
                now = time.perf_counter()
                waits.append((now - sent_at[connection]) * 1e6)
                if (one := next(left, None)) is not None:
                    sent_at[connection] = now
                    connection.sendall(one)
        seconds = time.perf_counter() - begin
    return report(options.count, 0, seconds, waits)


def _check(response: bytes) -> None:
    length, header_bytes = FRAME.unpack_from(response) if len(response) >= FRAME.size else (0, 0)
    header = response[FRAME.size : FRAME.size + (header_bytes & 0xFFFFFF)]
    if len(response) != 4 + length or not header.startswith(TAKEN):
        raise LoadFailed(f"a send was not taken, or answered in parts: {response[:500]!r}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one load; the user's secret comes from standard input."""
    parser = argparse.ArgumentParser(description="Sends signed messages.")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("topic")
    parser.add_argument("--user", required=True)
    parser.add_argument("--conns", type=int, default=64)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=128, help="bytes of a body")
    print(json.dumps(run(parser.parse_args(argv), sys.stdin.read())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
