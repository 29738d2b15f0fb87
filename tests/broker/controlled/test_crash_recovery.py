"""Whether a master that has crashed may go on, by the logs of the other members of its set."""

from typing import cast

from aerobee.broker.controlled.election import Election
from aerobee.broker.controlled.leader import Declined, Leader
from aerobee.broker.controlled.others import may_lead_again
from aerobee.broker.replication.log_position import LogPosition
from aerobee.protocol.aio.peers import Peers

from .logs import Other

IN_VIRTUAL_TIME = True

OWN = LogPosition(2, 500, 0)  # of broker 1
NOWHERE = "127.0.0.1:1"


class StandIn:
    """A leading controller: where the brokers are, and which of them it would elect."""

    def __init__(self, addresses: dict[int, str], *electable: int) -> None:
        self.addresses = addresses
        self.electable = electable
        self.elected: list[int] = []

    async def replicas(self) -> dict[int, str]:
        return self.addresses

    async def hand_over(self, own_id: int, to_id: int) -> Election:
        if to_id not in self.electable:
            raise Declined(2012, "Failed to elect a new master")
        self.elected.append(to_id)
        return Election(own_id, 3, to_id, self.addresses[to_id])


async def asked(leader: StandIn, members: set[int], *, is_late: bool = False) -> bool:
    peers = Peers()
    election = Election(1, 2, 1, "127.0.0.1:9", frozenset(members), 4)
    try:
        return await may_lead_again(cast(Leader, leader), peers, election, OWN, is_late=is_late)
    finally:
        await peers.close()


async def test_a_master_alone_in_its_set_goes_on() -> None:
    assert await asked(StandIn({1: NOWHERE, 2: NOWHERE}), {1})


async def test_a_master_that_has_all_that_the_others_have_goes_on() -> None:
    async with Other(2, epoch=2, end=500) as two, Other(3, epoch=1, end=600) as three:
        leader = StandIn({2: two.address, 3: three.address}, 2, 3)
        assert await asked(leader, {1, 2, 3})
        assert leader.elected == []


async def test_the_member_with_the_longest_log_is_elected_instead() -> None:
    async with Other(2, epoch=2, end=501) as two, Other(3, epoch=2, end=502) as three:
        leader = StandIn({2: two.address, 3: three.address}, 2, 3)
        assert not await asked(leader, {1, 2, 3})
        assert leader.elected == [3]
        # One outside the set has nothing that was acknowledged and that this one lacks.
        assert await asked(leader, {1})


async def test_a_longer_log_is_never_cut_even_when_its_broker_is_not_elected() -> None:
    async with Other(2, epoch=2, end=501) as two:
        leader = StandIn({2: two.address})
        assert not await asked(leader, {1, 2})
        assert not await asked(leader, {1, 2}, is_late=True)


async def test_a_silent_member_is_waited_for_then_elected_if_the_controller_finds_it() -> None:
    leader = StandIn({2: NOWHERE}, 2)
    assert not await asked(leader, {1, 2})
    assert leader.elected == []
    assert not await asked(leader, {1, 2}, is_late=True)
    assert leader.elected == [2]
    assert await asked(StandIn({2: NOWHERE}), {1, 2}, is_late=True)
