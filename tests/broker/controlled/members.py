"""Members of a broker name whose brokers are stand-ins, under a real controller."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self, cast

from aerobee.broker import server
from aerobee.broker.controlled.member import Member, Membership
from aerobee.broker.replication.log_position import LogPosition
from aerobee.broker.replication.sync_state import SyncState
from aerobee.broker.settings.config import BrokerConfig
from aerobee.controller.config import ControllerConfig
from aerobee.controller.server import Controller
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.headers.controller import ElectMaster

from ...waiting import LONG, until
from ..virtual_time import free_port, monotonic_ms, open_ports

NAME = "broker-a"
ROOT = Path("/")  # of the machine's disk
PERIOD_MS = 100  # of heartbeats and questions for the role
Make = Callable[..., Any]  # of a member's broker


class Store:
    """The ends of a log; the disk has it up to 100."""

    def __init__(self) -> None:
        self.written_end = 100
        self.is_whole = True
        self.polls = 0

    @property
    def durable_end(self) -> int:
        self.polls += 1
        return 100


class StandIn:
    """The parts of a broker that a member needs."""

    def __init__(self, config: BrokerConfig, *, membership: Membership) -> None:
        election = membership.election
        self.config = config
        self.membership = membership
        self.sync_state = (
            SyncState(election.members, election.set_epoch) if election.is_master else None
        )
        self.store = Store()
        self.log_position = LogPosition(election.epoch, 100, 100)
        self.events: list[str] = []

    async def start(self) -> None:
        self.events.append("start")

    async def stop(self) -> None:
        self.events.append("stop")

    async def leave(self, reason: str) -> None:
        self.events.append("leave")

    @property
    def role(self) -> "StandIn":
        return self

    @property
    def syncer(self) -> "StandIn":
        return self

    def release_locks(self) -> None:
        """Return None: this broker gave no locks."""

    async def drain(self, seconds: float) -> None:
        self.events.append("drained")

    def refuse_changes(self, reason: str) -> None:
        self.events.append("refuse")

    def take_sync_set(self, members: Iterable[int], set_epoch: int) -> None:
        assert self.sync_state is not None
        self.sync_state.members, self.sync_state.set_epoch = frozenset(members), set_epoch


class Cluster:
    """A controller, and members in folders of their own. `settings` are those of each broker."""

    def __init__(
        self, folder: Path = ROOT, make: Callable[..., Any] = StandIn, **settings: Any
    ) -> None:
        self.make = make
        self.folder = folder
        self.settings = settings
        self.members: list[Member[Any]] = []

    async def __aenter__(self) -> Self:
        await self.start_controller(self.folder / "controller")
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self.members:
            await member.stop()
        await self.controller.stop()

    async def start_controller(self, store: Path, port: int = 0) -> None:
        config = ControllerConfig(listen_port=port or free_port(), controller_store_path=str(store))
        self.controller = Controller(config, monotonic_ms)
        await self.controller.start()

    def member(self, number: int, port: int = 0) -> Member[Any]:
        config = BrokerConfig(
            broker_name=NAME,
            listen_port=port,
            enable_controller_mode=True,
            controller_addr=self.controller.address,
            sync_broker_metadata_period=PERIOD_MS,
            broker_heartbeat_interval=PERIOD_MS,
            store_path_root_dir=str(self.folder / f"broker-{number}"),
            **self.settings,
        )
        return Member(config, self.make, monotonic_ms, server.wall_clock_ms, open_ports)

    async def start(self, count: int) -> list[Member[Any]]:
        for number in range(1, count + 1):
            await self.add(self.member(number))
        return self.members

    async def add(self, member: Member[Any]) -> Member[Any]:
        await member.start()
        self.members.append(member)
        return member

    async def crash(self, member: Member[Any]) -> None:
        """End it without a word to the others."""
        self.members.remove(member)
        await member.stop(hand_over=False)

    async def all_alive(self) -> None:
        """The controller has heard of each member."""
        await until(lambda: sum(1 for _ in self.controller.live.alive()) == len(self.members))

    async def whole_set(self) -> None:
        """Have the master propose all members as the sync state set."""
        master = self.master()
        ids = frozenset(one.election.own_id for one in self.members)
        await self.all_alive()
        broker = broker_of(master)
        await broker.membership.alter(ids)
        assert self.controller.groups[NAME].sync_set == sorted(ids)

    def master(self) -> Member[Any]:
        (found,) = [one for one in self.members if one.election.is_master]
        return found

    async def elect(self, broker_id: int) -> None:
        """Elect a master as mqadmin's electMaster does."""
        peers = Peers()
        header = ElectMaster("DefaultCluster", NAME, broker_id, True)
        code = codes.CONTROLLER_ELECT_MASTER
        answer = await peers.request(self.controller.address, code, header, timeout_s=LONG)
        await peers.close()
        assert answer.code == codes.SUCCESS, answer.remark


def broker_of(member: Member[Any]) -> StandIn:
    found = cast(object, member.broker)
    assert isinstance(found, StandIn)
    return found
