"""Kafka and Spark's own Kafka source, from Maven Central, to be measured beside ours.

One broker that is its own controller (KRaft), on loopback and free ports, with its log in a folder
of the caller's. The jars are fetched once into a cache outside the project.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from . import java_side
from .child import Child, ChildFailed

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
FLAGS = ("-server", "-Xms1g", "-Xmx1g")  # as the Java broker of the other comparisons has
READY_SECONDS = 120
POLL_SECONDS = 0.1


class KafkaBroker:
    """A broker; `address` is for clients."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        port, controller = java_side.free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self._port = port
        self._process: Child | None = None
        self._settings = java_side.write_properties(
            folder / "kafka.properties",
            {
                "process.roles": "broker,controller",
                "node.id": 1,
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"PLAINTEXT://{self.address}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "log.dirs": str(folder / "log"),
                "offsets.topic.replication.factor": 1,
                "transaction.state.log.replication.factor": 1,
                "transaction.state.log.min.isr": 1,
                "group.initial.rebalance.delay.ms": 0,
            },
        )

    def start(self) -> None:
        """Return when it listens; JavaMissing when it can't be had, ChildFailed when it ends."""
        java = ["java", *FLAGS, "-cp", f"{jars('broker')}/*"]
        orders = ["format", "-t", CLUSTER_ID, "-c", str(self._settings)]
        done = subprocess.run(  # noqa: S603 - our own argument list, no shell
            [*java, "kafka.tools.StorageTool", *orders], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise ChildFailed(f"Kafka's log can't be made: {(done.stdout + done.stderr)[-1000:]}")
        argv = [*java, "kafka.Kafka", str(self._settings)]
        self._process = Child(argv, self.folder / "stderr", cwd=self.folder)
        deadline = time.monotonic() + READY_SECONDS
        while not java_side.listens(self._port):
            if self._process.process.poll() is not None or time.monotonic() > deadline:
                raise ChildFailed(f"Kafka does not listen: {self._process.tail()}")
            time.sleep(POLL_SECONDS)

    def pid(self) -> int:
        """The process id of the broker."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """Kill it: its log is not used again."""
        if self._process is not None:
            self._process.kill()


def jars(part: str) -> Path:
    """The folder with the jars of the `broker` or of Spark's `source`; JavaMissing without them."""
    return java_side.jars(java_side.INTEROP / "kafka" / f"{part}.xml")
