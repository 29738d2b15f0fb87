"""Clusters on simulated machines: two name servers, controllers, and brokers in one of two modes.

`PairCluster` has a pair and a third broker, `SetCluster` three brokers in controller mode,
`MasterCluster` two masters and no controller. The product runs unchanged. `start` and `kill` act on
one machine.
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

from aerobee.broker.controlled.member import Member
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.controller.config import ControllerConfig
from aerobee.controller.server import Controller
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Row
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.aio.server import Server, table
from aerobee.protocol.command import OK, Response
from aerobee.protocol.headers.controller import (
    ControllerHeartbeat,
    ElectMaster,
    GetMetadataResponse,
)

from .loop import SimulatedThreads
from .machines import Machine, Machines
from .network import BoundPort

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
SET = "set"  # the name of the brokers in controller mode
CONTROLLERS = ("controller", "controller-2")
CONTROLLER_PORT = 9878
MEMBERS = ("broker-1", "broker-2", "broker-3")


class Startable(Protocol):
    """A server of any kind."""

    async def start(self) -> None: ...


Program = Callable[[Machine], Startable]


class Cluster:
    """The servers, by machine."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.servers: dict[str, Startable] = {}  # only while they serve
        self._programs: dict[str, Program] = {}
        names = [machines.add(name) for name in ("names-1", "names-2")]
        self.name_servers = ";".join(f"{machine.host.ip}:9876" for machine in names)
        for machine in names:
            self._programs[machine.name] = self._name_server
        self._add("controller", self._controller)

    @property
    def masters(self) -> list[str]:
        """The names of the brokers that take messages."""
        raise NotImplementedError

    async def start(self, name: str) -> None:
        """Start a machine's process, and return when it serves. Raises what its start raises."""
        machine = self.machines.table[name]
        machine.boot()
        await self.machines.on(machine, self._start(machine))

    def kill(self, name: str, *, power: bool) -> None:
        """End a machine's process, or its power."""
        self.servers.pop(name, None)
        self.machines.table[name].kill(power=power)

    def broker(self, name: str) -> Broker | None:
        """The master of this name while it serves."""
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

    def _name_server(self, machine: Machine) -> NameServer:
        config = NamesrvConfig(bind_address=machine.host.ip)
        return NameServer(config, clock=self._steady_ms)

    def _controller(self, machine: Machine) -> Controller:
        config = ControllerConfig(
            bind_address=machine.host.ip, controller_store_path=STORE, listen_port=CONTROLLER_PORT
        )
        return Controller(config, clock=self._steady_ms)

    def _config(self, machine: Machine, name: str, **settings: Any) -> BrokerConfig:
        return BrokerConfig(
            broker_name=name,
            broker_ip1=machine.host.ip,
            broker_ip2=machine.host.ip,
            bind_address=machine.host.ip,
            namesrv_addr=self.name_servers,
            store_path_root_dir=STORE,
            compiled_sends=False,
            transaction_check_interval=3_000,
            transaction_check_max=1_000,
            **({"flush_disk_type": "SYNC_FLUSH"} | SMALL | settings),
        )

    def _broker(self, machine: Machine, config: BrokerConfig, **more: Any) -> Broker:
        threads = SimulatedThreads(machine.loop)
        return Broker(
            config, now_ms=self.machines.now_ms, alive_ms=self._steady_ms, threads=threads, **more
        )

    def _steady_ms(self) -> int:
        return int(self.machines.world.now * 1000)


class MasterCluster(Cluster):
    """broker-a and broker-b, masters without slaves and timer messages, for tests that leave their
    disks alone."""

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        for name in self.masters:
            self._add(name, self._master)

    @property
    def masters(self) -> list[str]:
        return ["broker-a", "broker-b"]

    async def start_all(self) -> None:
        """Start the name servers and the masters."""
        for name in ("names-1", "names-2", *self.masters):
            await self.start(name)

    def _master(self, machine: Machine) -> Broker:
        settings = {"flush_disk_type": "ASYNC_FLUSH", "timer_wheel_enable": False}
        return self._broker(machine, self._config(machine, machine.name, **settings))


class PairCluster(Cluster):
    """broker-a and its slave, and broker-c on its own."""

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        self._add_pair("broker-a")
        self._add("broker-c", lambda machine: self._pair_broker(machine, machine.name))

    @property
    def masters(self) -> list[str]:
        return ["broker-a", "broker-c"]  # their machines have the same names

    async def promote(self) -> None:
        """The machine of broker-a is gone for good: its slave becomes the master, by hand."""
        slave, gone = "broker-a-slave", self.machines.table["broker-a"]
        gone.is_gone = True
        if gone.is_up:
            self.kill(gone.name, power=True)
        if self.machines.table[slave].is_up:
            self.kill(slave, power=False)
        self._programs[slave] = lambda machine: self._pair_broker(machine, "broker-a")
        await self.start(slave)

    def _add_pair(self, name: str) -> None:
        """A classic pair: each response of the master waits for its slave."""
        settings = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2}
        self._add(name, lambda machine: self._pair_broker(machine, name, **settings))
        self._add(
            f"{name}-slave",
            lambda machine: self._pair_broker(machine, name, broker_role="SLAVE", broker_id=1),
        )

    def _pair_broker(self, machine: Machine, name: str, **settings: Any) -> Broker:
        return self._broker(machine, self._config(machine, name, **settings))


class SetCluster(Cluster):
    """Three brokers of one name under a controller, and a second controller that never leads."""

    def __init__(self, machines: Machines, flush: str = "SYNC_FLUSH") -> None:
        super().__init__(machines)
        self._flush = flush
        self._add("controller-2", self._follower)
        leader, follower = (machines.table[name].host.ip for name in CONTROLLERS)
        self.leader = f"{leader}:{CONTROLLER_PORT}"
        self._controllers = f"{self.leader};{follower}:{CONTROLLER_PORT}"
        for name in MEMBERS:
            self._add(name, self._member)

    @property
    def masters(self) -> list[str]:
        return [SET]

    def members(self) -> dict[str, Member[Any]]:
        """The members that serve, by machine."""
        return {name: one for name, one in self.servers.items() if isinstance(one, Member)}

    def master(self) -> Member[Any] | None:
        """The member that leads in the newest epoch, while it serves."""
        leading = [one for one in self.members().values() if one.broker and one.election.is_master]
        return max(leading, key=lambda one: one.election.epoch, default=None)

    def broker(self, name: str) -> Broker | None:
        found = self.master() if name == SET else None
        return None if found is None else found.broker

    async def elect(self, name: str) -> None:
        """Have this machine's broker elected by hand. ConnectionError, TimeoutError."""
        own_id = self.members()[name].election.own_id
        header = ElectMaster("DefaultCluster", SET, own_id, True)
        peers = Peers()
        try:
            await peers.request(self.leader, codes.CONTROLLER_ELECT_MASTER, header)
        finally:
            await peers.close()

    def _member(self, machine: Machine) -> Member[Any]:
        config = self._config(
            machine,
            SET,
            enable_controller_mode=True,
            controller_addr=self._controllers,
            flush_disk_type=self._flush,
        )
        ports: Any = SimpleNamespace(
            clients=BoundPort(machine.host, config.listen_port),
            fast=BoundPort(machine.host, config.listen_port - 2),
            slaves=BoundPort(machine.host, config.listen_port + 1),
            port=config.listen_port,
            close=lambda: None,
        )
        make = partial(self._broker, machine)
        return Member(config, make, self._steady_ms, self.machines.now_ms, lambda config: ports)

    def _follower(self, machine: Machine) -> "Follower":
        return Follower(machine.host.ip, self.leader)


class Follower:
    """A controller that follows another one: it answers heartbeats, and names the leader."""

    def __init__(self, ip: str, leader: str) -> None:
        self._ip = ip
        self._leader = leader

    async def start(self) -> None:
        self._server = Server()
        rows = [
            Row(codes.BROKER_HEARTBEAT, ControllerHeartbeat, lambda *given: OK),
            Row(codes.CONTROLLER_GET_METADATA_INFO, None, self._metadata),
        ]
        await self._server.listen(self._ip, CONTROLLER_PORT, table(rows))

    def _metadata(self, *given: object) -> Response:
        found = GetMetadataResponse("group", "n0", self._leader, False, "")
        return Response(codes.SUCCESS, found.to_fields())
