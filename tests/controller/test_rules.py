"""The decisions of a controller, called as pure functions."""

from typing import Any

import msgspec
import pytest
from aerobee.controller import rules
from aerobee.controller.live import TIMEOUT_MS, LiveBrokers
from aerobee.controller.replicas import Groups, apply
from aerobee.protocol import codes
from aerobee.protocol.bodies.controller import (
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    SyncStateSet,
)
from aerobee.protocol.headers import controller as headers

from .support import CLUSTER, NAME, State


def led(members: int = 3) -> State:
    """A name whose master is broker 1 and whose set has all members."""
    state = State(members)
    state.elect(1)
    for broker_id in range(1, members + 1):
        state.beat(broker_id, epoch=1, max_offset=100)
    if members > 1:
        state.alter(list(range(1, members + 1)))
    return state


def test_ids_start_at_one_and_a_taken_id_is_given_only_to_its_owner() -> None:
    state = State()
    header = headers.GetNextBrokerId(NAME, CLUSTER)
    assert rules.next_id(state.groups, header).header == headers.GetNextBrokerIdResponse(
        CLUSTER, NAME, 1
    )
    assert state.apply_id(2).code == codes.CONTROLLER_BROKER_ID_INVALID
    assert state.apply_id(1, "h:1;7").code == codes.SUCCESS
    assert state.apply_id(1, "h:1;7").events == ()  # the same broker applies again
    assert state.apply_id(1, "h:1;8").code == codes.CONTROLLER_BROKER_ID_INVALID
    assert state.apply_id(0).code == codes.CONTROLLER_BROKER_ID_INVALID
    assert state.groups[NAME].next_id == 2


def test_the_first_broker_that_asks_becomes_the_first_master() -> None:
    state = State(2)
    decision = state.elect(2)
    assert decision.header == headers.ElectMasterResponse(2, "127.0.0.1:10002", 1, 1)
    body = ElectMasterResponseBody.decode(decision.body)
    assert body.sync_state_set == [2]
    assert body.broker_member_group is not None
    assert body.broker_member_group.broker_addrs == {
        1: "127.0.0.1:10001",
        2: "127.0.0.1:10002",
    }
    again = state.elect(1)
    assert again.code == codes.CONTROLLER_MASTER_STILL_EXIST
    assert again.header == headers.ElectMasterResponse(2, "127.0.0.1:10002", 1, 1)
    assert state.groups[NAME].master_epoch == 1


def test_only_members_of_the_set_are_elected() -> None:
    state = led()
    state.alter([1, 3])
    state.beat(2, epoch=1, max_offset=900)  # a longer log, but not in the set
    state.die(1)
    assert rules.to_elect(state.groups, state.live) == [NAME]
    decision = state.elect()
    assert isinstance(decision.header, headers.ElectMasterResponse)
    assert decision.header.master_broker_id == 3
    assert state.groups[NAME].sync_set == [3]
    assert (state.groups[NAME].master_epoch, state.groups[NAME].sync_set_epoch) == (2, 4)
    assert rules.to_elect(state.groups, state.live) == []


@pytest.mark.parametrize(
    ("two", "three", "elected"),
    [
        ((1, 100, 0), (1, 101, 0), 3),
        ((2, 100, 0), (1, 900, 0), 2),
        ((1, 100, 5), (1, 100, 4), 3),
        ((1, 100, 5), (1, 100, 5), 2),
    ],
)
def test_the_newest_epoch_then_the_longest_log_then_the_priority_decides(
    two: tuple[int, int, int], three: tuple[int, int, int], elected: int
) -> None:
    state = led()
    state.groups[NAME].master_epoch = 2
    state.beat(2, *two)
    state.beat(3, *three)
    state.die(1)
    header = state.elect().header
    assert isinstance(header, headers.ElectMasterResponse)
    assert header.master_broker_id == elected


def test_fault_10_6_a_lead_of_more_than_32_bits_counts() -> None:
    state = led()
    state.beat(2, epoch=1, max_offset=3 << 30)
    state.beat(3, epoch=1, max_offset=100)
    state.die(1)
    header = state.elect().header
    assert isinstance(header, headers.ElectMasterResponse)
    assert header.master_broker_id == 2


def test_without_a_live_member_of_the_set_there_is_no_master_and_the_set_stays() -> None:
    state = led(2)
    state.die(1)
    state.die(2)
    state.apply_id(3)
    state.beat(3, epoch=1, max_offset=5)
    decision = state.elect()
    assert decision.code == codes.CONTROLLER_MASTER_NOT_AVAILABLE
    group = state.groups[NAME]
    assert (group.master_id, group.master_epoch, group.sync_set) == (None, 2, [1, 2])
    assert state.elect().events == ()  # the epoch is raised only once
    assert state.elect(3).code == codes.CONTROLLER_ELECT_MASTER_FAILED
    assert state.elect(3, unclean=True).code == codes.SUCCESS
    assert group.master_id == 3


def test_a_returned_member_of_the_set_is_elected_when_it_asks() -> None:
    state = led(2)
    state.die(2)
    state.die(1)
    state.elect()
    state.beat(2, epoch=1, max_offset=100)
    header = state.elect(2).header
    assert isinstance(header, headers.ElectMasterResponse)
    assert (header.master_broker_id, header.master_epoch) == (2, 3)


def test_only_a_designated_member_is_elected() -> None:
    state = led()
    assert state.elect(3, designate=True).code == codes.SUCCESS
    assert state.groups[NAME].master_id == 3
    assert state.elect(2, designate=True).code == codes.CONTROLLER_ELECT_MASTER_FAILED
    assert state.groups[NAME].master_id == 3


def test_brokers_with_a_newer_epoch_than_the_controller_stop_elections() -> None:
    state = State(2)
    state.beat(2, epoch=7, max_offset=100)
    decision = state.elect(1)
    assert decision.code == codes.CONTROLLER_ELECT_MASTER_FAILED
    assert "knows master epoch 7, this controller only 0" in (decision.remark or "")
    assert decision.events == ()
    unclean = state.elect(1, unclean=True)  # a person accepts that messages may be lost
    assert isinstance(unclean.header, headers.ElectMasterResponse)
    assert (unclean.header.master_broker_id, unclean.header.master_epoch) == (2, 8)
    assert state.groups[NAME].master_epoch == 8


def test_a_new_leader_does_not_replace_a_silent_master_before_the_timeout() -> None:
    state = led(2)
    state.live = type(state.live)(state.clock)  # another controller leads
    state.beat(2, epoch=1, max_offset=100)
    assert rules.to_elect(state.groups, state.live) == []
    assert state.elect(2).code == codes.CONTROLLER_MASTER_STILL_EXIST
    state.clock.ms += 10_001
    state.beat(2, epoch=1, max_offset=100)
    assert rules.to_elect(state.groups, state.live) == [NAME]
    assert state.elect().code == codes.SUCCESS


@pytest.mark.parametrize(
    ("ids", "changes", "code"),
    [
        ([1, 2], {"master": 2}, codes.CONTROLLER_INVALID_MASTER),
        ([1, 2], {"epoch": 0}, codes.CONTROLLER_FENCED_MASTER_EPOCH),
        ([1, 2], {"set_epoch": 9}, codes.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH),
        ([1, 9], {}, codes.CONTROLLER_INVALID_REPLICAS),
        ([2, 3], {}, codes.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
        # Equal to the present set.
        ([3, 2, 1], {"master": 2}, codes.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
        ([3, 2, 1], {"set_epoch": 1}, codes.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
    ],
)
def test_only_the_master_that_knows_the_present_set_changes_it(
    ids: list[int], changes: dict[str, int], code: int
) -> None:
    state = led()
    before = msgspec.json.encode(state.groups)
    decision = state.alter(ids, **changes)
    assert (decision.code, decision.events) == (code, ())
    assert decision.header == headers.AlterSyncStateSetResponse(0)
    assert msgspec.json.encode(state.groups) == before


def test_the_present_set_gets_a_new_number_which_refuses_a_proposal_that_is_under_way() -> None:
    state = led()
    state.alter([1])
    late = {"set_epoch": 3}  # of a proposal whose answer is lost
    assert state.alter([1]).header == headers.AlterSyncStateSetResponse(4)
    assert state.alter([1, 2], **late).code == codes.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    assert state.groups[NAME].sync_set == [1]


def test_a_master_that_registers_again_has_its_earlier_proposals_refused() -> None:
    state = led()
    state.alter([1])
    for broker_id, set_epoch in ((2, 3), (1, 4)):
        address = state.groups[NAME].members[broker_id].address
        header = headers.RegisterBrokerToController(NAME, broker_id, address, CLUSTER)
        decision = state.done(rules.register(state.groups, state.live, header))
        assert isinstance(decision.header, headers.RegisterBrokerToControllerResponse)
        assert decision.header.sync_state_set_epoch == set_epoch
        assert SyncStateSet.decode(decision.body) == SyncStateSet([1], set_epoch)
    late = state.alter([1, 2], set_epoch=3)
    assert late.code == codes.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH


def test_a_set_has_live_members_only() -> None:
    state = led()
    state.alter([1, 2])
    state.die(3)
    assert state.alter([1, 2, 3]).code == codes.CONTROLLER_BROKER_NOT_ALIVE
    decision = state.alter([1])
    assert decision.header == headers.AlterSyncStateSetResponse(4)
    assert SyncStateSet.decode(decision.body) == SyncStateSet([1], 4)


def test_the_response_to_a_registration_names_only_a_live_master() -> None:
    state = led(2)
    state.die(2)  # it moves
    header = headers.RegisterBrokerToController(NAME, 2, "127.0.0.1:20002", CLUSTER)
    decision = state.done(rules.register(state.groups, state.live, header))
    assert decision.header == headers.RegisterBrokerToControllerResponse(
        CLUSTER, NAME, 1, "127.0.0.1:10001", 1, 2
    )
    assert state.groups[NAME].members[2].address == "127.0.0.1:20002"
    state.die(1)
    decision = rules.register(state.groups, state.live, header)
    assert decision.header == headers.RegisterBrokerToControllerResponse(CLUSTER, NAME)
    assert SyncStateSet.decode(decision.body) == SyncStateSet([1, 2], 2)
    for name, broker_id in (("other", 1), (NAME, 9)):
        header = headers.RegisterBrokerToController(name, broker_id, "h:1", CLUSTER)
        found = rules.register(state.groups, state.live, header)
        assert found.code == codes.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


def test_an_id_has_one_living_broker() -> None:
    state = led(2)
    copy = headers.RegisterBrokerToController(NAME, 2, "127.0.0.1:20002", CLUSTER)

    def asked() -> rules.Decision:
        return rules.register(state.groups, state.live, copy)

    found = asked()
    assert (found.code, found.events) == (codes.CONTROLLER_BROKER_ID_INVALID, ())
    for part in ("id 2", "127.0.0.1:10002", "127.0.0.1:20002", "one broker at a time", "empty"):
        assert part in (found.remark or "")
    state.live = LiveBrokers(state.clock)  # the controller has started again
    assert asked().code == codes.CONTROLLER_BROKER_ID_INVALID
    state.beat(2)
    assert asked().code == codes.CONTROLLER_BROKER_ID_INVALID
    state.clock.ms += TIMEOUT_MS + 1
    assert asked().code == codes.SUCCESS


def test_replicas_are_shown_in_and_out_of_the_set() -> None:
    state = led()
    state.alter([1, 2])
    state.die(3)
    decision = rules.sync_state_data(state.groups, state.live, [NAME, "unknown"])
    table = BrokerReplicasInfo.decode(decision.body).replicas_info_table
    assert list(table) == [NAME]
    info = table[NAME]
    assert [(one.broker_id, one.alive) for one in info.in_sync_replicas] == [(1, True), (2, True)]
    assert [(one.broker_id, one.alive) for one in info.not_in_sync_replicas] == [(3, False)]
    assert (info.master_broker_id, info.master_epoch) == (1, 1)


def test_dead_members_can_be_removed_and_live_ones_only_by_force() -> None:
    state = led()
    refused = codes.CONTROLLER_INVALID_CLEAN_BROKER_METADATA

    def clean(ids: str | None, *, living: bool = False) -> int:
        header = headers.CleanBrokerData(NAME, CLUSTER, ids, living)
        return state.done(rules.clean(state.groups, state.live, header)).code

    assert clean(None) == refused
    assert clean("3") == refused
    assert clean("x;3") == refused
    state.die(3)
    assert clean("3") == codes.SUCCESS
    assert sorted(state.groups[NAME].members) == [1, 2]
    assert state.groups[NAME].sync_set == [1, 2]
    assert state.apply_id(3, "new:1;1").code == codes.SUCCESS  # a removed id is free again
    assert clean("1", living=True) == codes.SUCCESS
    assert state.groups[NAME].master_id is None
    assert clean(None) == codes.SUCCESS
    assert NAME not in state.groups
    assert clean(None) == refused


def test_fault_10_9_after_a_lost_state_only_the_longest_log_is_elected_and_only_by_hand() -> None:
    state = State()
    for broker_id in (2, 3):
        state.beat(broker_id, epoch=7, max_offset=100 * broker_id)
        assert state.apply_id(broker_id).code == codes.SUCCESS  # it gets its old id back
    assert state.apply_id(4).code == codes.SUCCESS  # the name is known by now
    assert state.elect(3).code == codes.CONTROLLER_ELECT_MASTER_FAILED
    assert "aerobee controller rebuild broker-a" in (state.elect().remark or "")
    assert state.elect(2, designate=True).code == codes.CONTROLLER_ELECT_MASTER_FAILED
    state.clock.ms += 10_001
    state.beat(2, epoch=7, max_offset=200)
    assert state.elect(3, designate=True).code == codes.CONTROLLER_ELECT_MASTER_FAILED  # dead
    state.beat(3, epoch=7, max_offset=300)
    header = state.elect(3, designate=True).header
    assert isinstance(header, headers.ElectMasterResponse)
    assert (header.master_broker_id, header.master_epoch) == (3, 8)


def test_names_members_and_texts_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(1)
    monkeypatch.setattr(rules, "MEMBERS_MAX", 1)
    assert "has 1 members, the limit is 1" in (state.apply_id(2).remark or "")
    monkeypatch.setattr(rules, "NAMES_MAX", 1)
    header = headers.ApplyBrokerId("b", 1, "h:1;1", CLUSTER)
    assert "1 broker names are registered" in (
        rules.apply_id(state.groups, state.live, header).remark or ""
    )
    header = headers.ApplyBrokerId("b" * 2_000, 1, "h:1;1", CLUSTER)
    assert "has 2000 characters" in (rules.apply_id(state.groups, state.live, header).remark or "")


def test_the_state_depends_only_on_its_events() -> None:
    state = State(3)
    events: list[Any] = []
    for decision in (
        state.elect(1),
        state.alter([1, 2]),
        state.elect(2, designate=True),
        state.alter([1, 2, 3]),
    ):
        assert decision.code == codes.SUCCESS, decision.remark
        events += decision.events
    again: Groups = {}
    fresh = State(3)
    again = fresh.groups
    for event in events:
        apply(again, event)
    assert again == state.groups
