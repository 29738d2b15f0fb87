"""Members of a broker name with real brokers, under a real controller and a name server."""

from pathlib import Path
from typing import Any, Self

from aerobee.broker import server
from aerobee.broker.controlled.member import Member, Membership
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.queues import LockBatchRequestBody, LockBatchResponseBody
from aerobee.protocol.command import Command
from aerobee.protocol.headers.pull import COMMIT_OFFSET, SUBSCRIPTION, PullMessage
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.message.record import decode_all

from ...simulation.cluster import SMALL
from ...waiting import LONG, until
from ..virtual_time import monotonic_ms, threads
from .members import NAME, ROOT, Cluster


class Brokers(Cluster):
    """Members with real brokers, and a name server."""

    def __init__(self, folder: Path = ROOT) -> None:
        super().__init__(folder, self._make, http_port=0, compiled_sends=False, **SMALL)

    async def __aenter__(self) -> Self:
        self.names = NameServer(NamesrvConfig(listen_port=0), monotonic_ms)
        await self.names.start()
        self.settings["namesrv_addr"] = self.names.address
        self.peers = Peers()
        await super().__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        await self.peers.close()
        await self.names.stop()

    def _make(self, config: BrokerConfig, *, membership: Membership) -> Broker:
        return Broker(
            config,
            now_ms=server.wall_clock_ms,
            alive_ms=monotonic_ms,
            threads=threads(),
            membership=membership,
        )

    async def in_set(self, *ids: int) -> None:
        groups = self.controller.groups
        await until(lambda: NAME in groups and groups[NAME].sync_set == list(ids))

    async def send(self, member: Member[Any], body: bytes) -> Command:
        header = SendMessage("pg", "T", "TBW102", 4, 1, 0, 1, 0, "", 0)
        code = codes.SEND_MESSAGE_V2
        return await self.peers.request(member.address, code, header, body, LONG)

    async def lock(self, member: Member[Any], client_id: str) -> bool:
        """True if this client gets queue 1."""
        queue = MessageQueue("T", NAME, 1)
        body = LockBatchRequestBody("g", client_id, mq_set=[queue]).encode()
        code = codes.LOCK_BATCH_MQ
        answer = await self.peers.request(member.address, code, None, body, LONG)
        if answer.code != codes.SUCCESS:
            return False
        return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set == [queue]

    async def until_locked(self, member: Member[Any], client_id: str) -> None:
        """Wait until this client has got queue 1."""
        await until(lambda: self.lock(member, client_id), pause=0.1)

    async def again(self, member: Member[Any], *, hand_over: bool) -> Member[Any]:
        """Stop it, and start it on its store folder, at free ports."""
        self.members.remove(member)
        await member.stop(hand_over=hand_over)
        return await self.add(self.member(member.election.own_id))

    async def bodies(self, member: Member[Any], commit: int | None = None) -> list[bytes]:
        """The bodies that a pull gets, which commits this offset."""
        flags = SUBSCRIPTION if commit is None else SUBSCRIPTION | COMMIT_OFFSET
        header = PullMessage("r", "T", 1, 0, 32, flags, commit or 0, 0, 0, "*")
        answer = await self.peers.request(member.address, codes.PULL_MESSAGE, header, b"", LONG)
        return [record.body for record in decode_all(answer.body or b"")]


def broker_of(member: Member[Any]) -> Broker:
    assert isinstance(member.broker, Broker)
    return member.broker
