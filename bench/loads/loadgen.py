"""The load generator: built once, run against a broker, its one line read back.

It is a small C program that costs little CPU, so that a broker and its load can share a small
machine. What it sends is fixed by its options; see the head of its source.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULT_SOURCE = Path(__file__).resolve().parents[3] / "shared" / "bench" / "loadgen.c"
RUN_SECONDS_MAX = 600
ASK_SECONDS_MAX = 120
UPDATE_AND_CREATE_TOPIC = 17
GET_MAX_OFFSET = 30
SYSTEM_BUSY = "2"
WAITS = r"WAIT\\u0001true"  # in the generator's source, as it writes the properties of a send
BATCH = 32  # messages of a request that fills a topic
Change = tuple[str, str]  # a text in the generator's source, and what replaces it
REFUSED_SHARE_MAX = 0.01


class LoadFailed(RuntimeError):
    """The generator could not be built, or a run had errors."""


@dataclass(frozen=True, slots=True)
class Load:
    """One way of loading a broker. `count` is in requests, `per` in messages a request."""

    name: str
    mode: str
    count: int
    conns: int = 1
    inflight: int = 1
    size: int = 128
    per: int = 1
    batch: int = 32

    def words(self) -> list[str]:
        """The options of the generator."""
        if self.mode == "pull":
            return ["--queues", "4", "--batch", str(self.batch), "--count", str(self.count)]
        named = {
            "conns": self.conns,
            "inflight": self.inflight,
            "size": self.size,
            "count": self.count,
            "queues": 4,
            "per": self.per,
        }
        return [word for name, value in named.items() for word in (f"--{name}", str(value))]


def check_source(source: Path) -> None:
    """LoadFailed, with what to do, when the source of the generator is not there."""
    if not source.is_file():
        raise LoadFailed(
            f"{source} does not exist: name the load generator with --loadgen PATH; "
            "limit.c is beside it"
        )


def property_of(name: str, value: str) -> Change:
    """The change that gives each message of a single send one more property."""
    return WAITS, f"{WAITS}\\\\u0002{name}\\\\u0001{value}"


def build(source: Path, folder: Path, change: Change | None = None) -> Path:
    """Compile the generator, or another C program, into a folder, once; the path of the program.

    `change` replaces a text that the source has once.
    """
    check_source(source)
    name = source.stem
    if change is not None:
        name = f"{name}-{zlib.crc32(repr(change).encode()):08x}"
        text = source.read_text()
        if text.count(change[0]) != 1:
            raise LoadFailed(f"{source} does not have {change[0]!r} once, which is to be changed")
        source = folder / f"{name}.c"
        source.write_text(text.replace(*change))
    program = folder / name
    if program.exists():
        return program
    argv = ["gcc", "-O2", "-o", str(program), str(source)]
    done = subprocess.run(argv, capture_output=True, text=True)  # noqa: S603 - no shell
    if done.returncode != 0:
        raise LoadFailed(f"gcc could not build {source}: {done.stderr[-2_000:]}")
    return program


def run(program: Path, address: str, topic: str, load: Load) -> dict[str, float]:
    """Runs a load to its end; msgs_per_s, p50_us, p99_us and the rest of its line."""
    host, _, port = address.partition(":")
    argv = [str(program), load.mode, host, port, topic, *load.words()]
    done = subprocess.run(  # noqa: S603 - no shell
        argv, capture_output=True, text=True, timeout=RUN_SECONDS_MAX
    )
    result = json.loads(done.stdout) if done.stdout.startswith("{") else None
    if result is None or result["errors"] > refused_max(load, result["first_error"]):
        raise LoadFailed(f"{load.name} on {topic}: {done.stderr[-1_000:]} {done.stdout[-500:]}")
    if load.mode == "pull" and result["messages"] < load.count:
        raise LoadFailed(f"{load.name} on {topic} found only {result['messages']:,} messages")
    found: dict[str, float] = result
    return found


def refused_max(load: Load, code: str) -> float:
    """The number of requests that may fail: a real broker on a loaded machine refuses a few as too
    busy."""
    return load.count * REFUSED_SHARE_MAX if code == SYSTEM_BUSY else 0


def create_topic(address: str, topic: str, queues: int = 4) -> None:
    """Creates a topic on a broker, as mqadmin does."""
    with connected(address) as connection:
        create_topics(connection, [topic], queues)


def create_topics(connection: socket.socket, topics: list[str], queues: int) -> None:
    """Creates topics one after the other on an open connection."""
    for opaque, topic in enumerate(topics):
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        answer = ask(connection, UPDATE_AND_CREATE_TOPIC, opaque, fields)
        if answer["code"] != 0:
            raise LoadFailed(f"topic {topic} was refused: {answer.get('remark')}")


def fill(
    program: Path, address: str, topic: str, messages: int, per: int = BATCH, inflight: int = 8
) -> int:
    """Fill an empty topic with messages of 128 bytes, `per` a request, over its four queues.

    Returns the number of messages stored: on a loaded machine the real broker refuses a few
    requests.
    """
    load = Load("fill", "send", -(-messages // per), conns=4, inflight=inflight, per=per)
    taken = int(run(program, address, topic, load)["messages"])
    wait_stored(address, topic, min(messages, taken))
    return taken


def stored(address: str, topic: str, queues: int = 4) -> int:
    """The number of messages that can be read from the queues of a topic."""
    with connected(address) as connection:
        return sum(
            int(ask(connection, GET_MAX_OFFSET, queue, fields)["extFields"]["offset"])
            for queue in range(queues)
            for fields in [{"topic": topic, "queueId": str(queue)}]
        )


def wait_stored(address: str, topic: str, messages: int, queues: int = 4) -> None:
    """Wait until that many messages can be read: Java's broker builds its queues later."""
    deadline = time.monotonic() + RUN_SECONDS_MAX
    while (found := stored(address, topic, queues)) < messages:
        if time.monotonic() > deadline:
            raise LoadFailed(f"{topic} has {found} of {messages} messages after a long wait")
        time.sleep(0.1)


def connected(address: str) -> socket.socket:
    """A connection to a broker."""
    host, _, port = address.partition(":")
    return socket.create_connection((host, int(port)), timeout=ASK_SECONDS_MAX)


def ask(
    connection: socket.socket, code: int, opaque: int, fields: dict[str, str]
) -> dict[str, Any]:
    """Asks one thing on an open connection; the header of the answer."""
    header = json.dumps(
        {"code": code, "language": "JAVA", "version": 479, "opaque": opaque, "flag": 0}
        | {"serializeTypeCurrentRPC": "JSON", "extFields": fields}
    ).encode()
    connection.sendall(struct.pack(">ii", 4 + len(header), len(header)) + header)
    (length,) = struct.unpack(">i", _exactly(connection, 4))
    frame = _exactly(connection, length)
    answer: dict[str, Any] = json.loads(frame[4 : 4 + (int.from_bytes(frame[1:4], "big"))])
    return answer


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        got = connection.recv(length - len(data))
        if not got:
            raise LoadFailed("the broker closed the connection")
        data += got
    return bytes(data)
