"""Signed sends, and sends over TLS, as fast as a broker answers them: what `loadgen` can't send.

Each connection has one send in flight, or several that leave in one write. All frames are made and
signed before the clock starts, so that broker and load can share a small machine; the fields are
those of `loadgen`. Prints one JSON line when all sends are answered.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import ssl
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
    """The frame of one send, signed unless `user` is empty."""
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
    if user:
        fields = signed(fields, body, user, secret)
    text = json.dumps(fields, separators=(",", ":"))
    return frame(f'{{"code":{SEND_MESSAGE_V2},"extFields":{text}', number, body)


def start(
    address: str, topic: str, user: str, secret: str, load: Load, *, tls: bool = False
) -> dict[str, float]:
    """Runs a load in a process of its own; its line. LoadFailed when a request was refused."""
    words = ["--user", user, "--conns", str(load.conns), "--count", str(load.count)]
    words += ["--size", str(load.size), "--inflight", str(load.inflight)] + ["--tls"] * tls
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
    most = options.inflight
    left = iter([frames[at : at + most] for at in range(0, len(frames), most)])
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        connections = [
            stack.enter_context(_connected(address, tls=options.tls)) for _ in range(options.conns)
        ]
        sent_at = dict.fromkeys(connections, 0.0)
        unanswered = dict.fromkeys(connections, 0)

        def send(connection: socket.socket, now: float) -> None:
            sent = next(left, [])
            sent_at[connection], unanswered[connection] = now, len(sent)
            if sent:
                connection.sendall(b"".join(sent))

        begin = time.perf_counter()
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
            send(connection, time.perf_counter())
        while len(waits) < options.count:
            for key, _ in selector.select(timeout=60):
                connection = key.data
                answered = _answered(connection.recv(READ_BYTES))
                now = time.perf_counter()
                waits += [(now - sent_at[connection]) * 1e6] * answered
                unanswered[connection] -= answered
                if not unanswered[connection]:
                    send(connection, now)
        seconds = time.perf_counter() - begin
    return report(options.count, 0, seconds, waits)


def _connected(address: tuple[str, int], *, tls: bool) -> socket.socket:
    """A connection, by TLS without a look at the server's certificate."""
    connection = socket.create_connection(address, timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not tls:
        return connection
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connection)


def _answered(data: bytes) -> int:
    """How many sends were taken. A broker writes whole responses; LoadFailed for anything else."""
    at = found = 0
    while at < len(data) or not found:
        length, header_bytes = (
            FRAME.unpack_from(data, at) if len(data) - at >= FRAME.size else (0, 0)
        )
        header = data[at + FRAME.size : at + FRAME.size + (header_bytes & 0xFFFFFF)]
        at += 4 + length
        if at > len(data) or not header.startswith(TAKEN):
            raise LoadFailed(f"a send was not taken, or answered in parts: {data[:500]!r}")
        found += 1
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one load; the user's secret comes from standard input."""
    parser = argparse.ArgumentParser(description="Sends messages, signed or over TLS.")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("topic")
    parser.add_argument("--user", required=True, help="empty: the sends are not signed")
    parser.add_argument("--tls", action="store_true", help="speak TLS")
    parser.add_argument("--conns", type=int, default=64)
    parser.add_argument("--inflight", type=int, default=1, help="sends in one write")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=128, help="bytes of a body")
    print(json.dumps(run(parser.parse_args(argv), sys.stdin.read())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
