"""A name server, a master and its slave named broker-a, and another broker named broker-b."""

from typing import Any

from aerobee.broker.acting.acting import ActingMaster
from aerobee.broker.acting.returning import ReturningMaster
from aerobee.broker.server import Broker
from aerobee.namesrv.config import NamesrvConfig
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.queues import LockBatchRequestBody, LockBatchResponseBody
from aerobee.protocol.bodies.route import TopicRouteData
from aerobee.protocol.headers.namesrv import GetRoute
from aerobee.protocol.headers.topics import UpdateTopic

from ...waiting import until
from .. import pairs
from ..conftest import Config, records


class Pair(pairs.Pair):
    """A pair whose slave acts for the master."""

    def __init__(self, config: Config, **settings: Any) -> None:
        super().__init__(
            config,
            enable_slave_acting_master=True,
            enable_remote_escape=True,
            sync_broker_member_group_period=20,
            broker_heartbeat_interval=100,
            transaction_time_out=1_000,
            **settings,
        )
        self.names = NamesrvConfig(
            listen_port=0, support_acting_master=True, notify_min_broker_id_changed=True
        )

    async def start(self) -> None:
        await super().start()
        self.other = await self.broker("other", broker_name="broker-b")
        for broker in (self.master, self.other):
            caller = self.caller(broker)
            await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic("T", 1, 1, 6))
            await caller.heartbeat(topics={"T": "*"})
        await self.copied()

    @property
    def acting(self) -> ActingMaster:
        assert self.slave.acting is not None
        return self.slave.acting

    @property
    def returning(self) -> ReturningMaster:
        assert self.master.returning is not None
        return self.master.returning

    async def lose_master(self) -> None:
        """The master stops, and the slave acts for it."""
        await self.halt(self.master)
        await until(lambda: self.acting.is_acting)

    async def bodies(self, broker: Broker, topic: str = "T") -> list[bytes]:
        """The messages of a topic's first queue on this broker."""
        answer = await self.caller(broker).pull(topic)
        return [one.body for one in records(answer)] if answer.code == codes.SUCCESS else []

    async def route(self, topic: str = "T") -> dict[str, tuple[dict[int, str], int]]:
        """The addresses by id, and the permission, by broker name."""
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
        """True if this consumer gets the lock of queue 0 from the broker."""
        body = LockBatchRequestBody(
            consumer_group="ordered", client_id=client, mq_set=[MessageQueue("T", "broker-a", 0)]
        )
        answer = await self.caller(broker).ask(codes.LOCK_BATCH_MQ, None, body.encode())
        if answer.code == codes.SERVICE_NOT_AVAILABLE:
            assert "this broker gives no locks" in (answer.remark or "")
            return False
        assert answer.code == codes.SUCCESS, answer.remark
        return bool(LockBatchResponseBody.decode(answer.body).lock_ok_mq_set)
