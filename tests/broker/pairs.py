"""A name server, a master and its slave named broker-a, in virtual time (`virtual_time`)."""

from pathlib import PurePosixPath
from typing import Any

from aerobee.broker import server
from aerobee.broker.replication.replica import Replica
from aerobee.broker.server import Broker
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer

from ..simulation.cluster import SMALL
from ..waiting import until
from .conftest import Caller, Config
from .virtual_time import monotonic_ms, threads

ROOT = PurePosixPath("/")  # of the machine's disk


class Pair:
    """`ahead_ms` moves the time of messages, `alive_ahead_ms` that of timeouts."""

    def __init__(self, config: Config, **settings: Any) -> None:
        self.config = config
        self.settings: dict[str, Any] = {"slave_read_enable": True, **SMALL, **settings}
        self.names = NamesrvConfig(listen_port=0)
        self.ahead_ms = self.alive_ahead_ms = 0
        self.running: list[Broker] = []
        self.callers: list[Caller] = []

    async def start(self) -> None:
        self.namesrv = NameServer(self.names, clock=monotonic_ms)
        await self.namesrv.start()
        self.master = await self.broker("master")
        self.slave = await self.broker("slave", broker_role="SLAVE", broker_id=1)
        self.ask_master, self.ask_slave = self.caller(self.master), self.caller(self.slave)
        await until(lambda: self.replica.is_master_there())

    async def broker(self, folder: str, **settings: Any) -> Broker:
        broker = self.made(folder, **settings)
        await broker.start()
        self.running.append(broker)
        return broker

    def made(self, folder: str, **settings: Any) -> Broker:
        """A broker on this folder that is not started yet."""
        config = self.config(
            store_path_root_dir=str(ROOT / folder),
            namesrv_addr=self.namesrv.address,
            **(self.settings | settings),
        )
        return Broker(
            config,
            now_ms=lambda: server.wall_clock_ms() + self.ahead_ms,
            alive_ms=lambda: server.wall_clock_ms() + self.alive_ahead_ms,
            threads=threads(),
        )

    def caller(self, broker: Broker) -> Caller:
        self.callers.append(Caller(broker))
        return self.callers[-1]

    @property
    def replica(self) -> Replica:
        """The part of the slave that follows the master."""
        assert self.slave.replica is not None
        return self.slave.replica

    async def caught_up(self) -> None:
        """The slave has the log of its master."""
        await until(lambda: self.slave.store.whole_end == self.master.store.log_end)

    async def copied(self) -> None:
        """The slave has the log and the tables of its master."""
        await self.caught_up()
        self.replica.sync._asked_ms = None
        await self.replica.tick()

    async def return_master(self, **settings: Any) -> None:
        """The master starts again on its ports."""
        self.master = await self.broker(
            "master", listen_port=self.master.port, ha_listen_port=self.master.ha_port, **settings
        )

    async def halt(self, broker: Broker) -> None:
        self.running.remove(broker)
        await broker.stop()

    async def stop(self) -> None:
        for caller in self.callers:
            await caller.peers.close()
        for broker in reversed(list(self.running)):  # a slave's requests end before its master
            await self.halt(broker)
        await self.namesrv.stop()
