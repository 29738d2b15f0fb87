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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULT_SOURCE = Path(__file__).resolve().parents[3] / "shared" / "bench" / "loadgen.c"
RUN_SECONDS_MAX = 600
UPDATE_AND_CREATE_TOPIC = 17
GET_MAX_OFFSET = 30
SYSTEM_BUSY = "2"
EXTRA_AT = r"WAIT\\u0001true"  # in the generator's source, as it writes the properties of a send
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


def look_for(source: Path) -> None:
    """LoadFailed, with what to do, when the source of the generator is not there."""
    if not source.is_file():
        raise LoadFailed(
            f"{source} does not exist: name the load generator with --loadgen PATH; "
            "limit.c is beside it"
        )


def build(source: Path, folder: Path, extra: tuple[str, str] | None = None) -> Path:
    """Compiles the generator, or another C program, into a folder; the path of the program.

    `extra` is one more property, name and value, that each message of a single send has.
    """
    look_for(source)
    name = source.stem
    if extra is not None:
        name = f"{name}-{extra[0]}"
        text = source.read_text()
        if text.count(EXTRA_AT) != 1:
            raise LoadFailed(f"{source} has no {EXTRA_AT} to put {extra[0]} behind")
        source = folder / f"{name}.c"
        source.write_text(
            text.replace(EXTRA_AT, f"{EXTRA_AT}\\\\u0002{extra[0]}\\\\u0001{extra[1]}")
        )
    program = folder / name
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
    """How many requests may fail: on a loaded machine the real broker refuses a few as too busy."""
    return load.count * REFUSED_SHARE_MAX if code == SYSTEM_BUSY else 0


def create_topic(address: str, topic: str, queues: int = 4) -> None:
    """Creates a topic on a broker, as mqadmin does."""
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
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


def wait_stored(address: str, topic: str, messages: int, queues: int = 4) -> None:
    """Waits until that many messages can be read: Java's broker builds its queues later."""
    host, _, port = address.partition(":")
    deadline = time.monotonic() + RUN_SECONDS_MAX
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        while True:
            found = 0
            for queue in range(queues):
                fields = {"topic": topic, "queueId": str(queue)}
                answer = ask(connection, GET_MAX_OFFSET, queue, fields)
                found += int(answer["extFields"]["offset"])
            if found >= messages:
                return
            if time.monotonic() > deadline:
                raise LoadFailed(f"{topic} has {found} of {messages} messages after a long wait")
            time.sleep(0.1)


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
