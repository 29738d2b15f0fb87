"""A name server and a broker to test or measure, the real Java ones or ours, behind one face.

Both read the same properties file, on loopback and free ports, with the store in a folder of the
caller's. `start` returns when both are ready; a broker can be stopped, killed and started again
on its store and its port.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from pathlib import Path

from . import java_side
from .child import Child, Reporter

CLUSTER_NAME = "interop-cluster"
BROKER_NAME = "interop-broker"
READY_SECONDS = 180  # a real broker needs 10 s on an idle machine
# For a test: ours reserves whole files, and a log of 1 GiB for each broker fills a small disk.
SMALL_FILES: dict[str, str | int] = {
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeTimerLog": 10 << 20,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
}
# Loopback only, and any free port for our HTTP endpoint; Java's servers ignore unknown keys.
HERE: dict[str, str | int] = {"bindAddress": "127.0.0.1", "httpPort": 0}
# A real broker refuses a send that waited 0.2 s for a thread, and async clients don't try again:
# a machine that has much else to do would fail a test, or a run of the comparison.
PATIENT: dict[str, str | int] = {
    "brokerFastFailureEnable": "false",
    "osPageCacheBusyTimeOutMills": READY_SECONDS * 1_000,
}
# The default heap of the comparison; the flags of RocketMQ's own scripts ask for 8 GiB.
JAVA_BROKER_FLAGS = ("-server", "-Xms1g", "-Xmx1g")
# The broker of a test lives for a minute: the optimizing compiler costs more than it saves.
TEST_BROKER_FLAGS = ("-Xmx1g", *java_side.QUICK_SERVER)
# With its defaults an idle broker takes a third of a slow core: each second it compares the 38 MB
# of its timer wheel with the file, and until its first flush of transaction metrics it spins.
SPARING: dict[str, str | int] = {
    "timerFlushIntervalMs": 5_000,
    "transactionMetricFlushInterval": 500,
}


class Cluster(ABC):
    """A name server and a broker, with their files in a folder and free ports."""

    kind: str

    def __init__(self, folder: Path, settings: dict[str, str | int] | None = None) -> None:
        self.broker_process: Child | None = None
        self._namesrv_process: Child | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.store = folder / "store"
        port = java_side.free_broker_port()
        namesrv_port = java_side.free_ports(1)[0]
        self.namesrv = f"127.0.0.1:{namesrv_port}"
        self.broker = f"127.0.0.1:{port}"
        self.namesrv_file = java_side.write_properties(
            folder / "namesrv.conf",
            {"listenPort": namesrv_port, "kvConfigPath": str(folder / "kvConfig.json"), **HERE},
        )
        self.properties: dict[str, str | int] = {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": BROKER_NAME,
            "brokerId": 0,
            "listenPort": port,
            **HERE,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(self.store),
            "flushDiskType": "ASYNC_FLUSH",
            "autoCreateTopicEnable": "true",
            "diskMaxUsedSpaceRatio": 95,
            **(settings or {}),
        }
        self.broker_file = java_side.write_properties(folder / "broker.conf", self.properties)

    @abstractmethod
    def start(self) -> None:
        """Starts both and returns when they serve."""

    @abstractmethod
    def start_broker(self, seconds: float = READY_SECONDS) -> None:
        """Starts the broker on its store; ChildFailed when it does not serve by then."""

    @abstractmethod
    def stop_broker(self, *, kill: bool) -> None:
        """Ends the broker by SIGTERM, or by kill -9."""

    @abstractmethod
    def stop(self) -> None:
        """Ends both."""

    def broker_pid(self) -> int:
        """The process id of the broker, or of the JVM that holds it."""
        assert self.broker_process is not None
        return self.broker_process.pid


class JavaCluster(Cluster):
    """The real ones. One JVM for both, or with `apart` one each, so that the broker can end.

    With the flags of a test's broker they spare the processor (SPARING).
    """

    kind = "java"
    broker_process: Reporter | None

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str | int] | None = None,
        *,
        apart: bool = False,
        flags: tuple[str, ...] = JAVA_BROKER_FLAGS,
    ) -> None:
        sparing = SPARING if set(java_side.QUICK_SERVER) <= set(flags) else {}
        super().__init__(folder, PATIENT | sparing | (settings or {}))
        self._apart = apart
        self._flags = flags

    def start(self) -> None:
        """Starts both."""
        if self._apart:
            self._namesrv_process = self._run("namesrv", "--namesrv", str(self.namesrv_file))
            self._namesrv_process.wait_event("ready", READY_SECONDS)
        self.start_broker()

    def start_broker(self, seconds: float = READY_SECONDS) -> None:
        """Starts the broker on its store; with it the name server unless they live apart."""
        orders = ["--broker", str(self.broker_file)]
        if not self._apart:
            orders += ["--namesrv", str(self.namesrv_file)]
        self.broker_process = self._run("broker", *orders)
        self.broker_process.wait_event("ready", seconds)

    def stop_broker(self, *, kill: bool) -> None:
        """Ends the broker by SIGTERM (its own shutdown hook), or by kill -9."""
        assert self.broker_process is not None
        if kill:
            self.broker_process.kill()
        else:
            self.broker_process.stop(READY_SECONDS)

    def stop(self) -> None:
        """Ends both at once: a clean end of the real broker takes a quarter of a minute."""
        for process in (self.broker_process, self._namesrv_process):
            if process is not None:
                process.kill()

    def _run(self, role: str, *orders: str) -> Reporter:
        home = self.folder / f"{role}-home"
        return java_side.start("Cluster", *orders, home=home, flags=self._flags)


class AerobeeCluster(Cluster):
    """Ours, as `aerobee namesrv` and `aerobee broker` start them, or with `together` one `up`."""

    kind = "aerobee"

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str | int] | None = None,
        *,
        under: tuple[str, ...] = ("-m", "aerobee.scripts.cli"),
        together: bool = False,
    ) -> None:
        super().__init__(folder, settings)
        self._together = together
        self._under = under  # what Python runs the command with

    def start(self) -> None:
        """Starts both."""
        if not self._together:
            self._namesrv_process = self._run("namesrv", "-c", str(self.namesrv_file))
            self.start_broker()
            return
        words = ["--namesrv-port", self.namesrv.rpartition(":")[2]]
        for key, value in self.properties.items():
            words += ["--set", f"{key}={value}"]
        self.broker_process = self._run("up", *words)

    def start_broker(self, seconds: float = READY_SECONDS) -> None:
        """Starts the broker on its store."""
        orders = ("-c", str(self.broker_file))
        self.broker_process = self._run("broker", *orders, seconds=seconds)

    def stop_broker(self, *, kill: bool) -> None:
        """Ends the broker by SIGTERM, or by kill -9."""
        assert self.broker_process is not None
        if kill:
            self.broker_process.kill()
        else:
            code = self.broker_process.stop()
            assert code == 0, f"the broker ended with {code}; {self.broker_process.tail()}"

    def stop(self) -> None:
        """Ends both by SIGTERM."""
        for process in (self.broker_process, self._namesrv_process):
            if process is not None:
                process.stop()

    def _run(self, role: str, *orders: str, seconds: float = READY_SECONDS) -> Child:
        argv = [sys.executable, *self._under, role, *orders]
        child = Child(argv, self.folder / f"{role}.stderr", cwd=self.folder)
        child.wait_line(lambda line: "ready" in line, seconds)
        return child
