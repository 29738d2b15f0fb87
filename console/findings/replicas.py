"""The members of a broker name in controller mode, as its controller and they themselves tell."""

import json
from typing import NamedTuple

from ...client.errors import ClientError
from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.bodies.controller import BrokerReplicasInfo, ReplicasInfo
from ...protocol.bodies.ha import EpochEntryCache
from ...protocol.command import Command
from ...protocol.errors import Refusal
from ...protocol.headers.controller import ElectMaster, GetMetadataResponse
from ...protocol.wire import Header
from ..texts import Text, quoted, text_of

TIMEOUT_S = 5.0


class Replica(NamedTuple):
    """One member. `epoch` and `log_end` (bytes) are -1 where it does not answer."""

    broker_id: int
    address: str
    is_alive: bool
    is_in_set: bool
    epoch: int
    log_end: int


class Replicas(NamedTuple):
    """All members of a name. `master_id` is None without a master."""

    controller: str
    master_id: int | None
    master_epoch: int
    set_epoch: int
    members: list[Replica]


async def replicas_of(peers: Peers, controllers: list[str], name: str) -> Replicas:
    """The members of a broker name. ClientError when no controller leads or knows the name."""
    leader = await leader_of(peers, controllers)
    body = json.dumps([name]).encode()
    answer = await _ask(peers, leader, codes.CONTROLLER_GET_SYNC_STATE_DATA, body=body)
    try:
        found = BrokerReplicasInfo.decode(answer.body or b"{}").replicas_info_table.get(name)
    except ValueError as wrong:
        raise ClientError(
            Text(
                "controller %(leader)s: its members can't be read: %(wrong)s",
                leader=leader,
                wrong=wrong,
            )
        ) from None
    if found is None:
        raise ClientError(
            Text(
                "controller %(leader)s knows no broker name %(name)s; a broker with "
                "enableControllerMode=true and controllerAddr=%(leader)s joins it by itself",
                leader=leader,
                name=name,
            )
        )
    return Replicas(
        leader,
        found.master_broker_id,
        found.master_epoch,
        found.sync_state_set_epoch,
        await _members(peers, found),
    )


def told(name: str, found: Replicas, since: str) -> Text:
    """A broker name in one line; `since` is when its master took its role."""
    members = {one.broker_id: one for one in found.members}
    master = members.get(found.master_id or 0)
    leads = Text("no master")
    if master is not None:
        leads = Text("master %(id)s at %(address)s", id=master.broker_id, address=master.address)
    epoch = Text("epoch %(epoch)s", epoch=found.master_epoch)
    if since:
        epoch = Text("epoch %(epoch)s since %(since)s", epoch=found.master_epoch, since=since)
    inside = [str(one.broker_id) for one in found.members if one.is_in_set]
    return Text(
        "broker %(name)s: %(leads)s, %(epoch)s, sync state set %(inside)s (number %(number)s), "
        "members %(members)s; controller %(controller)s",
        name=name,
        leads=leads,
        epoch=epoch,
        inside=", ".join(inside) or Text("empty"),
        number=found.set_epoch,
        members=", ".join(map(str, members)),
        controller=found.controller,
    )


async def leader_of(peers: Peers, controllers: list[str]) -> str:
    """The address of the controller that leads; ClientError."""
    wrong: object = Text("none is given")
    for address in controllers:
        try:
            answer = await _ask(peers, address, codes.CONTROLLER_GET_METADATA_INFO)
            found = answer.header(GetMetadataResponse)
        except (ClientError, Refusal) as failed:
            wrong = failed
            continue
        leader = address if found.is_leader else found.controller_leader_address
        if leader:
            return leader
        wrong = Text("%(address)s knows no leader", address=address)
    raise ClientError(Text("no controller leads: %(wrong)s", wrong=wrong))


async def elect(peers: Peers, leader: str, cluster: str, name: str, broker_id: int) -> None:
    """Have this member elected. ClientError with the controller's reason when it declines."""
    header = ElectMaster(cluster, name, broker_id, True)
    await _ask(peers, leader, codes.CONTROLLER_ELECT_MASTER, header)


async def _members(peers: Peers, info: ReplicasInfo) -> list[Replica]:
    found = []
    for is_in_set, group in ((True, info.in_sync_replicas), (False, info.not_in_sync_replicas)):
        for one in group:
            epoch, end = await _log_of(peers, one.broker_address or "")
            found.append(
                Replica(one.broker_id, one.broker_address or "", one.alive, is_in_set, epoch, end)
            )
    return sorted(found)


async def _log_of(peers: Peers, address: str) -> tuple[int, int]:
    """The newest epoch and the end of the log of a broker; -1 twice when it does not answer."""
    try:
        answer = await _ask(peers, address, codes.GET_BROKER_EPOCH_CACHE)
        found = EpochEntryCache.decode(answer.body or b"{}")
    except (ClientError, ValueError):
        return -1, -1
    return max((one.epoch for one in found.epoch_list), default=0), found.max_offset


async def _ask(
    peers: Peers, address: str, code: int, header: Header | None = None, body: bytes = b""
) -> Command:
    try:
        answer = await peers.request(address, code, header, body, TIMEOUT_S)
    except (ConnectionError, TimeoutError) as wrong:
        raise ClientError(text_of(wrong)) from None
    if answer.code != codes.SUCCESS:
        raise ClientError(
            Text(
                "%(address)s answers %(code)s: %(remark)s",
                address=address,
                code=answer.code,
                remark=quoted(str(answer.remark)),
            )
        )
    return answer
