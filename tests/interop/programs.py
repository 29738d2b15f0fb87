"""The Java programs of this folder as objects: producers, consumers, the real mqadmin.

Every wait has a deadline, and its failure shows the state at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from aerobee.harness import java_side
from aerobee.harness.child import Reporter
from aerobee.harness.clusters import AerobeeCluster, Cluster, JavaCluster

from ..waiting import PROCESS
from ..waiting import wait_until as wait_until

SECONDS = round(PROCESS)  # Java and Go read it, too


class Java:
    """Starts our Java programs and stops the ones that still run at the end of the module.

    They run with the classes of `version` and the flags of a JVM.
    """

    def __init__(
        self,
        folder: Path,
        version: str = java_side.ROCKETMQ_VERSION,
        flags: tuple[str, ...] = java_side.SHORT_LIVED,
    ) -> None:
        self._folder = folder
        self._version = version
        self._flags = flags
        self._running: list[Reporter] = []
        self._numbers = count()

    def start(self, main: str, **orders: object) -> Reporter:
        """Starts a program: start("Consume", namesrv=..., topic=...), True for a bare flag."""
        words: list[str] = []
        for name, value in orders.items():
            words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        home = self._folder / f"{main}-{next(self._numbers)}"
        program = java_side.start(main, *words, home=home, flags=self._flags, version=self._version)
        self._running.append(program)
        return program

    def produce(self, **orders: object) -> list[dict[str, Any]]:
        """Runs Produce to its end; returns its reports of sent messages."""
        program = self.start("Produce", **orders)
        done = program.wait_event("done", SECONDS)
        assert done["failed"] == 0, program.events("failed")
        return program.events("sent")

    def consume(self, **orders: object) -> Reporter:
        """A member of a consumer group that has started."""
        program = self.start("Consume", **orders)
        program.wait_event("started", SECONDS)
        return program

    def stop(self) -> None:
        """Stops all programs: first closes every input, then waits once for all."""
        for program in self._running:
            if program.process.poll() is None:
                program.process.terminate()
        for program in self._running:
            program.wait(10)


class Mqadmin:
    """The real mqadmin; a call runs one command and returns all that it printed."""

    def __init__(self, program: Reporter) -> None:
        self._program = program

    def __call__(self, *words: str) -> str:
        text = self._program.ask("\t".join(words), "output", SECONDS)["text"]
        assert isinstance(text, str)
        return text

    def until(self, wanted: Callable[[str], bool], *words: str) -> str:
        """Repeats a command until its output is as wanted: servers exchange state with a delay."""
        text = ""

        def is_as_wanted() -> bool:
            nonlocal text
            text = self(*words)
            return wanted(text)

        wait_until(is_as_wanted, lambda: f"{words} prints {text}")
        return text

    def create_topic(
        self, cluster: Cluster, topic: str, queues: int = 8, attributes: str = ""
    ) -> None:
        """Creates a topic and waits until the name server has its route."""
        answer = self(
            *("updateTopic", "-n", cluster.namesrv, "-b", cluster.broker, "-t", topic),
            *("-r", str(queues), "-w", str(queues)),
            *(("-a", attributes) if attributes else ()),
        )
        assert "success" in answer, answer
        self.until(
            lambda text: "readQueueNums" in text,
            *("topicRoute", "-n", cluster.namesrv, "-t", topic),
        )

    def wait_for_queued(self, cluster: Cluster, topic: str, count: int) -> None:
        """Wait until the topic's queues have this many messages: RocketMQ's broker fills them after
        it has answered the sends."""

        def has_all(text: str) -> bool:
            rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
            return sum(int(row[3]) for row in rows if len(row) > 3 and row[3].isdigit()) >= count

        self.until(has_all, "topicStatus", "-n", cluster.namesrv, "-t", topic)


Started = TypeVar("Started", bound=Cluster)


@contextmanager
def started(cluster: Started) -> Iterator[Started]:
    """A running cluster, which is stopped even if it did not start."""
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def side_by_side(
    ours: AerobeeCluster, real: JavaCluster
) -> Iterator[tuple[AerobeeCluster, JavaCluster]]:
    """Both clusters, started concurrently; both are stopped, even if one did not start."""
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda cluster: cluster.start(), (ours, real)))
        yield ours, real
    finally:
        ours.stop()
        real.stop()
