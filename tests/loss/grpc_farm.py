"""A name server, a broker and a proxy with two workers as processes, and relays that cut.

Clients dial `client_relay`; the proxy dials the broker through `broker_relay`, since the broker
registers the relay's address. Name server and broker keep port and store across restarts.
"""

import asyncio
import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Literal

from aerobee.harness.child import Child
from aerobee.harness.java_side import free_broker_port, free_ports

from ..proxy.relay import Relay
from ..waiting import PROCESS

WORKERS = 2
BROKER = {
    "transactionCheckInterval": "5000",
    "transactionTimeOut": "3000",
    "transactionCheckMax": "1000",
    "mappedFileSizeCommitLog": str(4 << 20),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
    "diskSpaceWarningLevelRatio": "99",  # of a machine that has other work
}
PROXY = {
    "minInvisibleTimeMillsForRecv": "1000",
    "defaultInvisibleTimeMills": "10000",
    "renewAheadTimeMillis": "1000",
    "renewSchedulePeriodMillis": "200",
    "clientGraceMillis": "1000",
    "httpPort": "-1",
    "grpcServerPort": "0",  # a reserved one can't be shared by workers
    "grpcWorkers": str(WORKERS),
}
Role = Literal["namesrv", "broker", "proxy"]


class Farm:
    """The processes; `start` inside a running loop. `library` of HTTP/2 is jh2 or h2."""

    def __init__(self, folder: Path, library: str) -> None:
        self._folder = folder
        self._environment = {name: "" for name in os.environ if name.startswith("AEROBEE_")}
        if library == "h2":
            hidden = folder / "hidden"
            hidden.mkdir()
            (hidden / "jh2.py").write_text("raise ImportError('hidden by a test')")
            paths = [str(hidden), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
            self._environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        broker, (name_server, clients) = free_broker_port(), free_ports(2)
        self.name_server = f"127.0.0.1:{name_server}"
        self.broker = f"127.0.0.1:{broker}"
        self.clients_port = clients
        self.broker_relay = Relay(("127.0.0.2", broker), ("127.0.0.1", broker))
        self.client_relay = Relay(("127.0.0.1", clients), ("127.0.0.1", 0))
        self._words: dict[Role, list[str]] = {
            "namesrv": [
                "namesrv",
                "--set",
                f"listenPort={name_server}",
                "--set",
                "httpPort=-1",
                "--set",
                f"kvConfigPath={folder / 'kv.json'}",
            ],
            "broker": [
                "broker",
                "-n",
                self.name_server,
                *_settings(
                    BROKER
                    | {
                        "listenPort": str(broker),
                        "brokerIP1": "127.0.0.2",
                        "bindAddress": "127.0.0.1",
                        "httpPort": "-1",
                        "storePathRootDir": str(folder / "store"),
                    }
                ),
            ],
            "proxy": [
                "proxy",
                "-n",
                self.name_server,
                *_settings(PROXY),
            ],
        }
        self._children: dict[Role, Child] = {}

    async def start(self) -> None:
        await self.broker_relay.start()
        await self.client_relay.start()
        for role in self._words:
            await self.begin(role)

    async def stop(self) -> None:
        for child in reversed(self._children.values()):
            self.go_on(child.pid)
            await asyncio.to_thread(child.kill)
        await self.client_relay.stop()
        await self.broker_relay.stop()

    async def begin(self, role: Role) -> None:
        """Start a process, and wait until it serves."""
        words = [sys.executable, "-m", "aerobee.scripts.cli", *self._words[role]]
        child = Child(words, self._folder / f"{role}.stderr", self._environment, self._folder)
        self._children[role] = child
        line = await asyncio.to_thread(child.wait_line, lambda line: "ready" in line, PROCESS)
        if role == "proxy":
            found = re.search(r"127\.0\.0\.1:(\d+)", line)
            assert found is not None, line
            self.client_relay.there = "127.0.0.1", int(found[1])

    async def restart(self, role: Role) -> None:
        """kill -9, and a start on what is left."""
        await self.kill(role)
        await self.begin(role)

    async def kill(self, role: Role) -> None:
        """kill -9."""
        await asyncio.to_thread(self._children[role].kill)

    def pid(self, role: Role) -> int:
        return self._children[role].pid

    def workers(self) -> list[int]:
        """The process ids of the proxy's workers."""
        found = Path(f"/proc/{self.pid('proxy')}/task/{self.pid('proxy')}/children").read_text()
        return [int(word) for word in found.split()]

    @staticmethod
    def freeze(pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)

    @staticmethod
    def go_on(pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def told(self, role: Role) -> str:
        """The standard error of a process."""
        return (self._folder / f"{role}.stderr").read_text()


def _settings(settings: dict[str, str]) -> list[str]:
    return [word for pair in settings.items() for word in ("--set", "=".join(pair))]
