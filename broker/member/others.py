"""What other brokers of the name say about themselves, asked by a member before it takes a role."""

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.bodies.controller import ReplicasInfo
from ...protocol.bodies.ha import EpochEntryCache
from ...protocol.errors import Refusal
from ...store.base.errors import StoreError
from .election import Election
from .identity import Identity

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
    """StoreError when another living broker than this one, which is at `address`, has its id.

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
