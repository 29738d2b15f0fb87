"""The requests that a member sends to the leading controller, from arguments to values.

Each raises NoLeaderError when no leader answers, and `Declined` when it answers with an error.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from ...protocol import codes
from ...protocol.bodies.controller import (
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    ReplicasInfo,
    SyncStateSet,
)
from ...protocol.command import Command
from ...protocol.errors import Refusal
from ...protocol.headers import controller as headers
from ...protocol.wire import Header
from .controllers import Controllers, NoLeaderError
from .election import Election
from .identity import Identity

Kind = TypeVar("Kind", bound=Header)
# Responses to 1001 by which nothing has changed. Others, such as SYSTEM_ERROR, leave that open.
SET_REFUSED = frozenset(
    {
        codes.CONTROLLER_FENCED_MASTER_EPOCH,
        codes.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        codes.CONTROLLER_INVALID_MASTER,
        codes.CONTROLLER_INVALID_REPLICAS,
        codes.CONTROLLER_INVALID_REQUEST,
        codes.CONTROLLER_BROKER_NOT_ALIVE,
        codes.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    }
)


class Declined(Exception):
    """The leader's response has an error: its code, and its remark as the text."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{code} {remark}")
        self.code = code


class Leader:
    """The leading controller, for one broker of a name. `wall_ms` is the time since 1970 in ms."""

    def __init__(
        self, controllers: Controllers, cluster: str, name: str, wall_ms: Callable[[], int]
    ) -> None:
        self._controllers = controllers
        self._cluster = cluster
        self._name = name
        self._wall_ms = wall_ms

    async def next_id(self) -> int:
        """1012: the id to apply for."""
        header = headers.GetNextBrokerId(self._name, self._cluster)
        answer = await self._ask(codes.CONTROLLER_GET_NEXT_BROKER_ID, header)
        found = _header(answer, headers.GetNextBrokerIdResponse)
        if found.next_broker_id is None:
            raise NoLeaderError("the leader names no next broker id")
        return found.next_broker_id

    async def apply(self, application: Identity) -> None:
        """1013: get this id. Declined with CONTROLLER_BROKER_ID_INVALID when another has it."""
        header = headers.ApplyBrokerId(
            self._name, application.broker_id, application.check_code, self._cluster
        )
        await self._ask(codes.CONTROLLER_APPLY_BROKER_ID, header)

    async def register(self, own_id: int, address: str) -> Election:
        """1003: tell this broker's address; the last election, with the master only if alive."""
        header = headers.RegisterBrokerToController(
            self._name, own_id, address, self._cluster, self._wall_ms()
        )
        answer = await self._ask(codes.CONTROLLER_REGISTER_BROKER, header)
        return _election(own_id, answer, headers.RegisterBrokerToControllerResponse)

    async def elect(self, own_id: int) -> Election:
        """1002: have a master elected if there is none; the election."""
        return await self._elect(own_id, own_id, designate=False)

    async def hand_over(self, own_id: int, to_id: int) -> Election:
        """1002: have this member elected instead of the present master; the election."""
        return await self._elect(own_id, to_id, designate=True)

    async def election(self, own_id: int) -> Election:
        """1004: the last election. Declined with CONTROLLER_BROKER_METADATA_NOT_EXIST."""
        answer = await self._ask(
            codes.CONTROLLER_GET_REPLICA_INFO, headers.GetReplicaInfo(self._name)
        )
        return _election(own_id, answer, headers.GetReplicaInfoResponse)

    async def alter(
        self, election: Election, wanted: Iterable[int], set_epoch: int
    ) -> tuple[frozenset[int], int]:
        """1001: propose another sync state set instead of the one with this number.

        Returns the set that holds now and its number. Declined when the set stays as it is,
        NoLeaderError when that is unknown: the controller may have stored it and failed then.
        """
        header = headers.AlterSyncStateSet(
            self._name, election.own_id, election.epoch, self._wall_ms()
        )
        body = SyncStateSet(sorted(wanted), set_epoch).encode()
        try:
            answer = await self._ask(codes.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)
        except Declined as wrong:
            if wrong.code in SET_REFUSED:
                raise
            raise NoLeaderError(f"it is unknown whether the leader has the set: {wrong}") from None
        return _set(answer)

    async def replicas(self) -> dict[int, str]:
        """1006: all replicas of the broker name by their ids, each with its address."""
        found = await self.group()
        both = (*found.in_sync_replicas, *found.not_in_sync_replicas)
        return {one.broker_id: one.broker_address or "" for one in both}

    async def group(self) -> ReplicasInfo:
        """1006: the master and all replicas of the broker name; empty for an unknown name."""
        body = msgspec.json.encode([self._name])
        answer = await self._ask(codes.CONTROLLER_GET_SYNC_STATE_DATA, None, body)
        try:
            table = BrokerReplicasInfo.decode(answer.body or b"{}").replicas_info_table
        except ValueError as wrong:
            raise NoLeaderError(f"the leader's replicas can't be read: {wrong}") from None
        return table.get(self._name, ReplicasInfo())

    async def _elect(self, own_id: int, elected_id: int, *, designate: bool) -> Election:
        header = headers.ElectMaster(
            self._cluster, self._name, elected_id, designate, self._wall_ms()
        )
        answer = await self._ask(
            codes.CONTROLLER_ELECT_MASTER, header, may=codes.CONTROLLER_MASTER_STILL_EXIST
        )
        found = _header(answer, headers.ElectMasterResponse)
        try:
            members = ElectMasterResponseBody.decode(answer.body or b"{}").sync_state_set
        except ValueError as wrong:
            raise NoLeaderError(f"the leader's sync state set can't be read: {wrong}") from None
        return Election(
            own_id,
            found.master_epoch or 0,
            found.master_broker_id,
            found.master_address or "",
            frozenset(members),
            found.sync_state_set_epoch or 0,
        )

    async def _ask(
        self, code: int, header: Header | None, body: bytes = b"", may: int = codes.SUCCESS
    ) -> Command:
        answer = await self._controllers.ask(code, header, body)
        if answer.code not in (codes.SUCCESS, may):
            raise Declined(answer.code, answer.remark or "")
        return answer


def _header(answer: Command, kind: type[Kind]) -> Kind:
    try:
        return answer.header(kind)
    except Refusal as wrong:
        raise NoLeaderError(f"the leader's response can't be read: {wrong}") from None


def _election(
    own_id: int,
    answer: Command,
    kind: type[headers.RegisterBrokerToControllerResponse | headers.GetReplicaInfoResponse],
) -> Election:
    """The last election, of the header and the sync state set in a response."""
    found = _header(answer, kind)
    return Election(
        own_id,
        found.master_epoch or 0,
        found.master_broker_id,
        found.master_address or "",
        *_set(answer),
    )


def _set(answer: Command) -> tuple[frozenset[int], int]:
    try:
        found = SyncStateSet.decode(answer.body or b"{}")
    except ValueError as wrong:
        raise NoLeaderError(f"the leader's sync state set can't be read: {wrong}") from None
    return frozenset(found.sync_state_set), found.sync_state_set_epoch
