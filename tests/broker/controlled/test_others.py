"""What a member asks the other brokers of its name: their logs, and whether one has its id."""

from collections.abc import AsyncIterator

import pytest
from aerobee.broker.controlled.election import Election
from aerobee.broker.controlled.identity import Identity
from aerobee.broker.controlled.others import epochs_of, refuse_twin, refuse_usurped
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.controller import ReplicaIdentity, ReplicasInfo
from aerobee.store.base.errors import StoreError

from .logs import Other

IN_VIRTUAL_TIME = True

OWN = Identity("c", "broker-a", 2)
HERE = "127.0.0.1:9"


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    found = Peers()
    yield found
    await found.close()


def known(address: str, master_id: int) -> ReplicasInfo:
    """The replicas that a controller knows when id 2 is at this address."""
    one = ReplicaIdentity(True, address, 2, "broker-a")
    return ReplicasInfo(in_sync_replicas=[one], master_broker_id=master_id)


async def test_the_log_of_another_broker_is_told_and_silence_is_none(peers: Peers) -> None:
    async with Other(1, epoch=3, end=700) as other:
        found = await epochs_of(peers, other.address)
        assert found is not None
        assert (found.epoch_list[-1].epoch, found.max_offset) == (3, 700)
    assert await epochs_of(peers, other.address) is None


@pytest.mark.parametrize(("told_id", "master_id"), [(2, 1), (0, 2)])
async def test_a_living_broker_with_the_own_id_is_refused_with_both_addresses(
    told_id: int, master_id: int, peers: Peers
) -> None:
    async with Other(told_id, epoch=3, end=700) as other:
        with pytest.raises(StoreError, match="broker id 2 belongs to the broker at") as wrong:
            await refuse_twin(peers, known(other.address, master_id), OWN, HERE)
        for part in (other.address, HERE, "one broker at a time", "empty folder"):
            assert part in str(wrong.value)


async def test_the_own_address_a_dead_one_and_another_broker_are_no_twins(peers: Peers) -> None:
    await refuse_twin(peers, ReplicasInfo(), OWN, HERE)
    await refuse_twin(peers, known(HERE, 1), OWN, HERE)
    async with Other(3, epoch=3, end=700) as other:
        await refuse_twin(peers, known(other.address, 1), OWN, HERE)
    async with Other(0, epoch=3, end=700) as other:
        await refuse_twin(peers, known(other.address, 1), OWN, HERE)
    async with Other(2, epoch=3, end=700, name="broker-b") as other:
        await refuse_twin(peers, known(other.address, 1), OWN, HERE)
    await refuse_twin(peers, known(other.address, 1), OWN, HERE)


def test_the_own_role_at_another_address_is_another_brokers() -> None:
    refuse_usurped(Election(2, 1, 2, HERE), HERE)
    refuse_usurped(Election(2, 1, 1, "127.0.0.1:8"), HERE)
    with pytest.raises(StoreError, match=r"id 2 belongs to the broker at 127.0.0.1:8"):
        refuse_usurped(Election(2, 1, 2, "127.0.0.1:8"), HERE)
