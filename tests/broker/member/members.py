"""Members of a broker name whose brokers are stand-ins, under a real controller."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from aerobee.broker.member.member import Make, Member
from aerobee.broker.member.membership import Membership
from aerobee.broker.replication.sync_state import SyncState
from aerobee.broker.settings.config import BrokerConfig
from aerobee.controller.config import ControllerConfig
from aerobee.controller.server import Controller
from aerobee.scripts.harness.java_side import free_broker_port

from ...clocks import Clock
from ...waiting import until

NAME = "broker-a"


class Store:
    """The ends of a log; the disk has it up to 100."""

    def __init__(self) -> None:
        self.written_end = 100
        self.is_whole = True
        self.looks = 0

    @property
    def durable_end(self) -> int:
        self.looks += 1
        return 100


class StandIn:
    """What a member needs of its broker."""

    def __init__(self, config: BrokerConfig, *, membership: Membership) -> None:
        role = membership.role
        self.config = config
        self.membership = membership
        self.sync_state = SyncState(role.members, role.set_epoch) if role.is_master else None
        self.store = Store()
        self.position = (role.epoch, 100, 100)
        self.events: list[str] = []

    async def start(self) -> None:
        self.events.append("start")

    async def stop(self) -> None:
        self.events.append("stop")

    async def leave(self, reason: str) -> None:
        self.events.append("leave")

    def release_locks(self) -> None:
        """It gave none."""

    async def settled(self) -> None:
        self.events.append("settled")

    def refuse_changes(self, reason: str) -> None:
        self.events.append("refuse")

    def take_sync_set(self, members: Iterable[int], set_epoch: int) -> None:
        assert self.sync_state is not None
        self.sync_state.members, self.sync_state.set_epoch = frozenset(members), set_epoch


class Cluster:
    """A controller, and members in folders of their own. `settings` are those of each broker."""

    def __init__(self, folder: Path, make: object = StandIn, **settings: Any) -> None:
        self.folder = folder
        self.make = cast(Make, make)
        self.settings = settings
        self.clock = Clock()
        self.members: list[Member] = []

    async def __aenter__(self) -> "Cluster":
        await self.start_controller(self.folder / "controller")
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self.members:
            await member.stop()
        await self.controller.stop()

    async def start_controller(self, store: Path, port: int = 0) -> None:
        config = ControllerConfig(listen_port=port, controller_store_path=str(store))
        self.controller = Controller(config)
        await self.controller.start()

    def member(self, number: int, port: int = 0) -> Member:
        config = BrokerConfig(
            broker_name=NAME,
            listen_port=port or free_broker_port(),  # its neighbours stay free for a restart
            enable_controller_mode=True,
            controller_addr=self.controller.address,
            sync_broker_metadata_period=10,
            broker_heartbeat_interval=10,
            store_path_root_dir=str(self.folder / f"broker-{number}"),
            **self.settings,
        )
        return Member(config, self.make, self.clock)

    async def start(self, count: int) -> list[Member]:
        for number in range(1, count + 1):
            member = self.member(number)
            await member.start()
            self.members.append(member)
        return self.members

    async def whole_set(self) -> None:
        """Have the master propose all members as the sync state set."""
        master = self.master()
        ids = frozenset(one.role.own_id for one in self.members)
        await until(lambda: sum(1 for _ in self.controller.live.alive()) == len(ids))
        broker = broker_of(master)
        await broker.membership.alter(ids)
        assert self.controller.groups[NAME].sync_set == sorted(ids)

    def master(self) -> Member:
        (found,) = [one for one in self.members if one.role.is_master]
        return found


def broker_of(member: Member) -> StandIn:
    found = cast(object, member.broker)
    assert isinstance(found, StandIn)
    return found
