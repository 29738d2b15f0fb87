"""Questions to the other brokers of the name, asked by a member before it takes a role.

A master may come back after a crash, before another one was elected. With ASYNC_FLUSH a power cut
may have taken the end of its log, which the other members of the sync state set have. As the master
it would cut them to its own end. So it compares the logs first: a member with a longer log is to be
the master instead. A member that does not answer is waited for.
"""

import logging
from collections.abc import Mapping

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.bodies.controller import ReplicasInfo
from ...protocol.bodies.ha import EpochEntryCache
from ...protocol.errors import Refusal
from ...store.base.errors import StoreError
from ..replication.log_position import LogPosition
from .election import Election
from .identity import Identity
from .leader import Declined, Leader

TIMEOUT_S = 3.0


async def epochs_of(peers: Peers, address: str) -> EpochEntryCache | None:
    """1007: the epochs and the end of another broker's log; None when it does not answer."""
    try:
        answer = await peers.request(
            address, codes.GET_BROKER_EPOCH_CACHE, None, b"", timeout_s=TIMEOUT_S
        )
        if answer.code != codes.SUCCESS:
            return None
        return EpochEntryCache.decode(answer.body or b"{}")
    except (ConnectionError, TimeoutError, Refusal, ValueError):
        return None


async def refuse_twin(peers: Peers, group: ReplicasInfo, own: Identity, address: str) -> None:
    """Raise StoreError when another living broker, not this one at `address`, has its id.

    `group` is what the controller knows of the broker name.
    """
    both = (*group.in_sync_replicas, *group.not_in_sync_replicas)
    known = next((one.broker_address for one in both if one.broker_id == own.broker_id), None)
    if not known or known == address:
        return
    found = await epochs_of(peers, known)
    if found is None or found.broker_name != own.name:
        return
    told_id = found.broker_id or group.master_broker_id  # a master says 0
    if told_id == own.broker_id:
        raise StoreError(_twin(own.broker_id, known, address))


def refuse_usurped(election: Election, address: str) -> None:
    """StoreError when the controller names this broker, which is at `address`, as the master at
    another address: another broker has registered with its id."""
    if election.is_master and election.master_address != address:
        raise StoreError(_twin(election.own_id, election.master_address, address))


def _twin(own_id: int, other: str, address: str) -> str:
    return (
        f"broker id {own_id} belongs to the broker at {other}, and this one at {address} has the "
        "same; an id can have one broker at a time. Stop one of the two; if the store folder of "
        "one is a copy, start that one with an empty folder, so that it joins with an id of its own"
    )


log = logging.getLogger(__name__)


async def may_lead_again(
    leader: Leader,
    peers: Peers,
    election: Election,
    position: LogPosition,
    *,
    is_late: bool,
) -> bool:
    """True if this broker may take the role of the master that it had before its crash.

    `position` is how far its log goes. False: another member is or will be elected, or has not
    answered; ask again later. With `is_late` silent members are no longer waited for: one that the
    controller finds alive is elected, without such a member this broker goes on.
    """
    addresses = await leader.replicas()
    others = {one: addresses.get(one, "") for one in sorted(election.members - {election.own_id})}
    logs = await _logs(peers, others)
    longer = {one: end for one, end in logs.items() if end > position[:2]}
    silent = [one for one in others if one not in logs]
    if not longer and not silent:
        return True
    candidates = sorted(longer, key=lambda one: longer[one], reverse=True)
    if is_late:
        candidates += silent
    for one in candidates:
        try:
            elected = await leader.hand_over(election.own_id, one)
        except Declined as wrong:
            log.warning("broker %d does not become the master: %s", one, wrong)
            continue
        log.warning("%s: this broker has crashed, and its log may lack the end", elected)
        return False
    return is_late and not longer


async def _logs(peers: Peers, others: Mapping[int, str]) -> dict[int, tuple[int, int]]:
    """The newest epoch and the end of the log of each broker that answers."""
    found = {}
    for one, address in others.items():
        told = await epochs_of(peers, address) if address else None
        if told is not None:
            newest = max((each.epoch for each in told.epoch_list), default=0)
            found[one] = newest, told.max_offset
    return found
