"""A streaming query writes a table while its driver and its broker are killed at random moments.

In the end the table has each acknowledged message and each message in the broker exactly once.
`AEROBEE_SPARK_KILLS` is the number of kills, `AEROBEE_SPARK_KILLS_SEED` the seed of their order and
times.
"""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Self

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")

from aerobee.client import Message
from aerobee.client.blocking import Producer, Reader
from aerobee.client.errors import AerobeeError
from aerobee.harness import java_side
from aerobee.harness.child import Child
from aerobee.harness.clusters import SMALL_FILES
from aerobee.protocol.message.record import decode_all
from aerobee.scripts.cli import main

from .programs import SPARK_SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_is_here")]

KILLS = int(os.environ.get("AEROBEE_SPARK_KILLS", "4"))
SEED = os.environ.get("AEROBEE_SPARK_KILLS_SEED", "1")
TOPIC = "ledger"
FIRST = 500  # messages in a table before the stream begins
BATCHES = 2  # at least, between two kills
AFTER_SECONDS = 1.5  # at most, from a micro-batch to the next kill
PAUSE_SECONDS = 0.01  # between two messages
TRY_SECONDS = 3.0

Row = tuple[int, int, str]  # queue, offset, body


class Ledger:
    """Sends numbered messages from a thread during the kills; `rows` were acknowledged."""

    def __init__(self, name_server: str) -> None:
        self.rows: list[Row] = []
        self._name_server = name_server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, name="ledger")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _send(self) -> None:
        number = 0
        with Producer(self._name_server, group="ledger") as producer:
            while not self._ended.wait(PAUSE_SECONDS):
                number += 1
                body = f"{number:08d}"
                try:
                    receipt = producer.send(Message(TOPIC, body.encode()), timeout=TRY_SECONDS)
                except AerobeeError:
                    continue  # the broker is down; it may have stored the message all the same
                self.rows.append((receipt.queue.queue_id, receipt.queue_offset, body))


class Scene:
    """Runs the broker and the driver in processes of their own, and kills them.

    With `has_lake` the stream begins in a table, which a third process keeps up to date.
    """

    def __init__(self, folder: Path, *, has_lake: bool) -> None:
        self.folder = folder
        self.config = str(folder / "lake.yaml")
        self.has_lake = has_lake
        self.ports = *java_side.free_ports(1), java_side.free_broker_port()
        self.name_server = f"127.0.0.1:{self.ports[0]}"
        self.broker = self._start_broker()
        self.lake = self._start_lake() if has_lake else None
        self.driver = self._start_driver()

    def kill_broker(self) -> None:
        self.broker.kill()
        self.broker = self._start_broker()

    def kill_driver(self) -> None:
        self.end_driver()
        self.driver = self._start_driver()

    def end_driver(self) -> None:
        """Kill the driver with its JVM, so that only the next driver writes to the checkpoint."""
        if self.driver.process.poll() is None:
            with suppress(ProcessLookupError):  # the driver has not made its process group yet
                os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.kill()

    def wait_for_batches(self, count: int) -> None:
        since = len(self.driver.lines)
        for _ in range(count):
            self.driver.wait_line(lambda line: line.startswith("BATCH"), SPARK_SECONDS, since)
            since = len(self.driver.lines)

    def _start_broker(self) -> Child:
        argv = [sys.executable, "-m", "aerobee.scripts.cli", "up"]
        argv += ["--namesrv-port", str(self.ports[0]), "--listen-port", str(self.ports[1])]
        argv += ["--store", str(self.folder / "store"), "--set", "httpPort=0"]
        for key, value in SMALL_FILES.items():
            argv += ["--set", f"{key}={value}"]
        broker = Child(argv, self.folder / "broker.stderr", cwd=self.folder)
        broker.wait_line(lambda line: "ready" in line, SPARK_SECONDS)
        return broker

    def _start_lake(self) -> Child:
        """Begin a table with the first messages, and keep it up to date."""
        with Producer(self.name_server, group="ledger") as producer:
            for number in range(FIRST):
                producer.send(Message(TOPIC, f"first {number}".encode()), timeout=SPARK_SECONDS)
        settings = ["--config", self.config, "-n", self.name_server]
        place = str(self.folder / "tables")
        assert main(["lake", "add", TOPIC, "--to", place, "--commit-seconds", "1", *settings]) == 0
        assert main(["lake", "run", "--once", *settings]) == 0
        argv = [sys.executable, "-m", "aerobee.scripts.cli", "lake", "run", *settings]
        return Child(argv, self.folder / "lake.stderr", cwd=self.folder)

    def _start_driver(self) -> Child:
        program = Path(__file__).with_name("exactly_once_program.py")
        argv = [sys.executable, str(program), self.name_server, TOPIC, str(self.folder)]
        argv += [self.config] * self.has_lake
        return Child(argv, self.folder / "driver.stderr", cwd=self.folder)


@contextmanager
def running(folder: Path, *, has_lake: bool) -> Iterator[Scene]:
    scene = Scene(folder, has_lake=has_lake)
    try:
        yield scene
    finally:
        scene.end_driver()
        if scene.lake is not None:
            scene.lake.kill()
        scene.broker.kill()


def stored(name_server: str) -> list[Row]:
    """All messages in the broker, read with pulls."""
    rows = []
    with Reader(name_server, group="checker") as reader:
        for queue in reader.queues(TOPIC):
            offset, end = 0, reader.max_offset(queue)
            while offset < end:
                pulled = reader.pull(queue, offset)
                for record in decode_all(pulled.body):
                    rows.append((record.queue_id, record.queue_offset, record.body.decode()))
                assert pulled.next_offset > offset
                offset = pulled.next_offset
    return rows


@pytest.mark.parametrize(
    ("kills", "has_lake"),
    [pytest.param(1, False, marks=pytest.mark.smoke), (KILLS, False), (2, True)],
    ids=["one", "log", "table and log"],
)
def test_kills_of_driver_and_broker_lose_no_row_and_repeat_none(
    kills: int, has_lake: bool, tmp_path: Path
) -> None:
    random = Random(SEED)
    # Both are killed, in an order drawn from the seed.
    victims = [("driver", "broker")[number % 2] for number in range(kills)]
    random.shuffle(victims)
    with running(tmp_path, has_lake=has_lake) as scene:
        with Ledger(scene.name_server) as ledger:
            for victim in victims:
                scene.wait_for_batches(BATCHES)
                time.sleep(random.uniform(0, AFTER_SECONDS))  # the moment of the kill is random
                scene.kill_driver() if victim == "driver" else scene.kill_broker()
            scene.wait_for_batches(1)
        scene.driver.say("finish")
        scene.driver.wait_line(lambda line: line == "FINISHED", SPARK_SECONDS)
        held = stored(scene.name_server)
    table = [(row[0], row[1], row[2]) for row in json.loads((tmp_path / "rows.json").read_text())]
    twice = [row for row, count in Counter(table).items() if count > 1]
    assert twice == []
    assert sorted(set(ledger.rows) - set(table)) == []
    assert sorted(table) == sorted(held)
    assert len(ledger.rows) > 0
