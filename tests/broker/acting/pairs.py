"""A name server, a master and its slave named broker-a, and another broker named broker-b.

All of them run in the loop of one simulated machine, in virtual time.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import PurePosixPath
from typing import Any, Concatenate, ParamSpec, cast

from aerobee.broker import server
from aerobee.broker.acting.acting import ActingMaster
from aerobee.broker.acting.returning import ReturningMaster
from aerobee.broker.server import Broker
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.queues import LockBatchRequestBody, LockBatchResponseBody
from aerobee.protocol.bodies.route import TopicRouteData
from aerobee.protocol.headers.namesrv import GetRoute
from aerobee.protocol.headers.topics import UpdateTopic

from ...simulation.cluster import SMALL
from ...simulation.loop import SimulatedThreads
from ...simulation.machines import Machine, Machines
from ...waiting import until
from ..conftest import Caller, Config, records

Given = ParamSpec("Given")
ROOT = PurePosixPath("/")  # of the machine's disk


class Pair:
    """`ahead_ms` moves the time of messages, `alive_ahead_ms` that of timeouts."""

    def __init__(self, config: Config, machines: Machines, **settings: Any) -> None:
        self.config = config
        self.machines = machines
        self.machine = Machine(machines, "here", machines.network.host("127.0.0.1"))
        self.settings: dict[str, Any] = {
            "enable_slave_acting_master": True,
            "enable_remote_escape": True,
            "slave_read_enable": True,
            "sync_broker_member_group_period": 20,
            "broker_heartbeat_interval": 100,
            "transaction_time_out": 1_000,
            **SMALL,
            **settings,
        }
        self.ahead_ms = self.alive_ahead_ms = 0
        self.running: list[Broker] = []
        self.callers: list[Caller] = []

    def play(self, story: Coroutine[Any, Any, None]) -> None:
        """Start all, run a story, stop all."""

        async def whole() -> None:
            await self.start()
            try:
                await story
            finally:
                await self.stop()

        self.machines.world.run(self.machine.boot(), whole())

    async def start(self) -> None:
        self.namesrv = NameServer(
            NamesrvConfig(
                listen_port=0, support_acting_master=True, notify_min_broker_id_changed=True
            ),
            clock=lambda: int(self.machines.world.now * 1000),
        )
        await self.namesrv.start()
        self.master = await self.broker("master")
        self.slave = await self.broker("slave", broker_role="SLAVE", broker_id=1)
        self.other = await self.broker("other", broker_name="broker-b")
        for broker in (self.master, self.other):
            caller = self.caller(broker)
            await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic("T", 1, 1, 6))
            await caller.heartbeat(topics={"T": "*"})
        await until(lambda: self.replica_of(self.slave).is_master_there())
        await self.copied()

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
            threads=SimulatedThreads(self.machine.loop),
        )

    def caller(self, broker: Broker) -> Caller:
        self.callers.append(Caller(broker))
        return self.callers[-1]

    def replica_of(self, slave: Broker) -> Any:
        assert slave.replica is not None
        return slave.replica

    @property
    def acting(self) -> ActingMaster:
        assert self.slave.acting is not None
        return self.slave.acting

    @property
    def returning(self) -> ReturningMaster:
        assert self.master.returning is not None
        return self.master.returning

    async def copied(self) -> None:
        """The slave has the log and the tables of its master."""
        await until(lambda: self.slave.store.whole_end == self.master.store.log_end)
        self.replica_of(self.slave).sync._asked_ms = None
        await self.replica_of(self.slave).tick()

    async def lose_master(self) -> None:
        """The master stops, and the slave acts for it."""
        await self.halt(self.master)
        await until(lambda: self.acting.is_acting)

    async def return_master(self, **settings: Any) -> None:
        """The master starts again on its ports."""
        self.master = await self.broker(
            "master", listen_port=self.master.port, ha_listen_port=self.master.ha_port, **settings
        )

    async def halt(self, broker: Broker) -> None:
        self.running.remove(broker)
        await broker.stop()

    async def bodies(self, broker: Broker, topic: str = "T") -> list[bytes]:
        """The messages of a topic's first queue on this broker."""
        answer = await self.caller(broker).pull(topic)
        return [one.body for one in records(answer)] if answer.code == codes.SUCCESS else []

    async def route(self, topic: str = "T") -> dict[str, tuple[dict[int, str], int]]:
        """By broker name the addresses by id, and the permission."""
        answer = await self.caller(self.slave).peers.request(
            self.namesrv.address, codes.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic)
        )
        found = TopicRouteData.decode(answer.body)
        perms = {queue.broker_name: queue.perm for queue in found.queue_datas}
        return {
            broker.broker_name or "": (broker.broker_addrs, perms[broker.broker_name])
            for broker in found.broker_datas
        }

    async def lock(self, broker: Broker, client: str) -> bool:
        """Whether this consumer gets the lock of queue 0 there."""
        body = LockBatchRequestBody(
            consumer_group="ordered", client_id=client, mq_set=[MessageQueue("T", "broker-a", 0)]
        )
        answer = await self.caller(broker).ask(codes.LOCK_BATCH_MQ, None, body.encode())
        if answer.code == codes.SERVICE_NOT_AVAILABLE:
            assert "this broker gives no locks" in (answer.remark or "")
            return False
        assert answer.code == codes.SUCCESS, answer.remark
        return bool(LockBatchResponseBody.decode(answer.body).lock_ok_mq_set)

    async def stop(self) -> None:
        for caller in self.callers:
            await caller.peers.close()
        for broker in reversed(list(self.running)):  # a slave's requests end before its master
            await self.halt(broker)
        await self.namesrv.stop()


def in_virtual_time(
    test: Callable[Concatenate[Pair, Given], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Pair, Given], None]:
    """A test that runs while the pair does, and takes no time but its work."""

    @wraps(test)
    def played(pair: Pair, *given: Given.args, **named: Given.kwargs) -> None:
        pair.play(test(pair, *given, **named))

    return cast(Callable[Concatenate[Pair, Given], None], played)
