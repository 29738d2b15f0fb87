"""The daemons of a profile of docker-compose.yml, as processes on loopback instead of containers.

The compose file says what there is: commands, settings and which daemon knows which. Here each
listens on a free port of 127.0.0.1, and has a folder of its own in the place of its volume.
"""

import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

import yaml
from aerobee.harness.child import Child
from aerobee.harness.etcd_side import EtcdProcess
from aerobee.harness.java_side import free_broker_port

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"
PROFILES = ("2m", "2m-2s-async", "2m-2s-sync", "controller", "controller-etcd")
ALWAYS = "namesrv"  # of the services without a profile; the broker there is left out
PORTS = {"namesrv": 9876, "broker": 10911, "controller": 9878}  # unless a setting says another
ETCD, ETCD_PORT = "etcd", 2379
READY_SECONDS = 120
VARIABLE = re.compile(r"\$\{\w+(?::-([^}]*))?\}")
SMALL = {
    "AEROBEE_MAPPED_FILE_SIZE_COMMIT_LOG": str(16 << 20),
    "AEROBEE_MAPPED_FILE_SIZE_TIMER_LOG": str(1 << 20),
    "AEROBEE_MAX_HASH_SLOT_NUM": "5000",
    "AEROBEE_MAX_INDEX_NUM": "20000",
}


class Service(NamedTuple):
    """One service: its command, its settings as variables, and the port where it listens."""

    name: str
    command: list[str]
    environment: dict[str, str]
    port: int
    published: list[str]

    @property
    def role(self) -> str:
        """namesrv, broker, controller or etcd."""
        return ETCD if self.name == ETCD else self.command[0]


def services_of(profile: str) -> list[Service]:
    """The services of a profile in the order of the file; ValueError for an unknown profile."""
    if profile not in PROFILES:
        raise ValueError(f"there is no profile {profile!r}; there are {', '.join(PROFILES)}")
    found = []
    for name, one in yaml.safe_load(COMPOSE.read_text())["services"].items():
        if name != ALWAYS and profile not in one.get("profiles", ()):
            continue
        variables = one.get("environment", {})
        environment = {key: VARIABLE.sub(r"\1", str(variables[key])) for key in variables}
        command = [str(word) for word in one["command"]]
        default = ETCD_PORT if name == ETCD else PORTS[command[0]]
        port = int(environment.get("AEROBEE_LISTEN_PORT", default))
        found.append(Service(name, command, environment, port, one.get("ports", [])))
    return found


class Daemon:
    """One service as a process. It keeps its port and its folder from start to start."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service = service
        self.name, self.role = service.name, service.role
        self.folder = folder / service.name
        self.folder.mkdir()
        self._etcd = EtcdProcess(self.folder) if self.role == ETCD else None
        port = self._etcd.url.rpartition(":")[2] if self._etcd else free_broker_port()
        self.address = f"127.0.0.1:{port}"
        self.environment: dict[str, str] = {}
        self._child: Child | None = None

    def configure(self, addresses: dict[str, str]) -> None:
        """Set the variables; `addresses` are those in the file with ours."""
        environment = {key: "" for key in os.environ if key.startswith("AEROBEE_")}
        environment |= {
            key: _moved(text, addresses) for key, text in self.service.environment.items()
        }
        environment |= {
            "AEROBEE_BIND_ADDRESS": "127.0.0.1",
            "AEROBEE_HTTP_PORT": "-1",
            "AEROBEE_LISTEN_PORT": self.address.rpartition(":")[2],
        }
        if self.role == "broker":
            environment |= SMALL | {"AEROBEE_STORE_PATH_ROOT_DIR": str(self.folder / "store")}
        elif self.role == "namesrv":
            environment["AEROBEE_KV_CONFIG_PATH"] = str(self.folder / "kvConfig.json")
        else:
            environment["AEROBEE_CONTROLLER_STORE_PATH"] = str(self.folder / "state")
        self.environment = environment

    def start(self) -> None:
        """Start it, and return once it is ready. ChildFailed."""
        if self._etcd is not None:
            self._etcd.start()
            return
        argv = [sys.executable, "-m", "aerobee.scripts.cli", *self.service.command]
        stderr = self.folder / "stderr"
        self._child = Child(argv, stderr, cwd=self.folder, env=self.environment)
        self._child.wait_line(lambda line: "ready" in line, READY_SECONDS)

    def stop(self) -> None:
        """End it by SIGTERM."""
        if self._etcd is not None:
            self._etcd.stop()
        elif self._child is not None:
            self._child.stop(READY_SECONDS)

    @property
    def errors(self) -> str:
        """The daemon's standard error."""
        path = self.folder / "stderr"
        return path.read_text(errors="replace") if path.exists() else ""


class Daemons:
    """All daemons of a profile. Use it in a `with` statement."""

    def __init__(self, profile: str, folder: Path) -> None:
        self.profile = profile
        self.all = [Daemon(service, folder) for service in services_of(profile)]
        addresses = {f"{one.name}:{one.service.port}": one.address for one in self.all}
        for one in self.all:
            one.configure(addresses)

    def of(self, role: str) -> list[Daemon]:
        """The daemons of a role."""
        return [one for one in self.all if one.role == role]

    @property
    def namesrv(self) -> str:
        """The name server's address."""
        return self.of("namesrv")[0].address

    @property
    def controllers(self) -> list[str]:
        """The addresses of the controllers."""
        return [one.address for one in self.of("controller")]

    @property
    def broker_names(self) -> list[str]:
        """The names of the brokers, each once."""
        names = [one.environment["AEROBEE_BROKER_NAME"] for one in self.of("broker")]
        return list(dict.fromkeys(names))

    def __enter__(self) -> "Daemons":
        try:
            for one in self.all:
                one.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for one in reversed(self.all):
            one.stop()


def _moved(text: str, addresses: dict[str, str]) -> str:
    for old in sorted(addresses, key=len, reverse=True):
        text = text.replace(old, addresses[old])
    return text
