"""A cluster on simulated machines: two name servers, a controller, a pair and a third broker.

The product runs unchanged. `Cluster.start` and `kill` act on one machine; what a machine runs is a
function of `Cluster._program`, so that another mode of brokers is one more function.
"""

from collections.abc import Callable
from typing import Any

from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.controller.config import ControllerConfig
from aerobee.controller.server import Controller
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer

from .loop import SimulatedThreads
from .machines import Machine, Machines

SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 32 << 10,
    "mapped_file_size_consume_queue": 20 * 200,
    "mapped_file_size_consume_queue_ext": 4096,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
    "max_message_size": 8 << 10,
    "mapped_file_size_timer_log": 4096,
    "timer_roll_window_slot": 900,
}
STORE = "/store"
Server = NameServer | Controller | Broker
Program = Callable[[Machine], Server]


class Cluster:
    """The servers, by machine. Brokers of the pair: broker-a and its slave; broker-c is alone."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.servers: dict[str, Server] = {}  # only while they serve
        self._programs: dict[str, Program] = {}
        names = [machines.add(name) for name in ("names-1", "names-2")]
        self.name_servers = ";".join(f"{machine.host.ip}:9876" for machine in names)
        for machine in names:
            self._programs[machine.name] = self._name_server
        self._add("controller", self._controller)
        self._add_pair("broker-a")
        self._add("broker-c", self._master_alone)

    @property
    def masters(self) -> list[str]:
        """The machines that take messages, which are named as their brokers."""
        return ["broker-a", "broker-c"]

    async def start(self, name: str) -> None:
        """Start a machine's process, and return when it serves. Raises what its start raises."""
        machine = self.machines.table[name]
        machine.boot()
        await self.machines.on(machine, self._start(machine))

    def kill(self, name: str, *, power: bool) -> None:
        """End a machine's process, or its power."""
        self.servers.pop(name, None)
        self.machines.table[name].kill(power=power)

    async def promote(self) -> None:
        """The machine of broker-a is gone for good: its slave becomes the master, by hand."""
        slave, gone = "broker-a-slave", self.machines.table["broker-a"]
        gone.is_gone = True
        if gone.is_up:
            self.kill(gone.name, power=True)
        if self.machines.table[slave].is_up:
            self.kill(slave, power=False)
        self._programs[slave] = lambda machine: self._broker(machine, "broker-a")
        await self.start(slave)

    def broker(self, name: str) -> Broker | None:
        """The broker of this machine while it serves."""
        found = self.servers.get(name)
        return found if isinstance(found, Broker) else None

    async def _start(self, machine: Machine) -> None:
        server = self._programs[machine.name](machine)
        await server.start()
        self.servers[machine.name] = server

    # ---- what machines run

    def _add(self, name: str, program: Program) -> None:
        self.machines.add(name)
        self._programs[name] = program

    def _add_pair(self, name: str) -> None:
        """A classic pair: each response of the master waits for its slave."""
        settings = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2}
        self._add(name, lambda machine: self._broker(machine, name, **settings))
        self._add(
            f"{name}-slave",
            lambda machine: self._broker(machine, name, broker_role="SLAVE", broker_id=1),
        )

    def _name_server(self, machine: Machine) -> NameServer:
        config = NamesrvConfig(bind_address=machine.host.ip)
        return NameServer(config, clock=self._steady_ms)

    def _controller(self, machine: Machine) -> Controller:
        config = ControllerConfig(
            bind_address=machine.host.ip, controller_store_path=STORE, listen_port=9878
        )
        return Controller(config, clock=self._steady_ms)

    def _master_alone(self, machine: Machine) -> Broker:
        return self._broker(machine, machine.name)

    def _broker(self, machine: Machine, name: str, **settings: Any) -> Broker:
        config = BrokerConfig(
            broker_name=name,
            broker_ip1=machine.host.ip,
            broker_ip2=machine.host.ip,
            bind_address=machine.host.ip,
            namesrv_addr=self.name_servers,
            store_path_root_dir=STORE,
            flush_disk_type="SYNC_FLUSH",
            compiled_sends=False,
            **SMALL,
            **settings,
        )
        threads = SimulatedThreads(machine.loop)
        return Broker(
            config, now_ms=self.machines.now_ms, alive_ms=self._steady_ms, threads=threads
        )

    def _steady_ms(self) -> int:
        return int(self.machines.world.now * 1000)
