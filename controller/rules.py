"""The decisions of a controller: from request, state and live brokers to response and events.

Pure functions of their arguments, so that tests can try every history. Codes, remarks and the order
of checks are those of RocketMQ 5.3.3 (ReplicasInfoManager, DefaultElectPolicy), with five
differences, since RocketMQ's behaviour can lose messages: offsets are compared as 64 bits; a name
whose brokers know a newer epoch than the controller has no elections but by hand, and its brokers
get the ids back that they had; repeated elections without a candidate raise the epoch only once;
the present set is accepted from the master, with a new number; so is that of a master that
registers again.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ..protocol import codes
from ..protocol.bodies.cluster import BrokerMemberGroup
from ..protocol.bodies.controller import (
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
)
from ..protocol.headers import controller as headers
from ..protocol.headers.controller import CONTROLLER_ITSELF
from ..protocol.wire import Header
from .live import Key, LiveBrokers
from .replicas import (
    AddressChanged,
    Event,
    Groups,
    IdApplied,
    MasterElected,
    MembersRemoved,
    ReplicaGroup,
    SyncSetChanged,
)

FIRST_ID = 1
NAMES_MAX = 10_000  # broker names in the state
MEMBERS_MAX = 100  # brokers of one name
TEXT_CHARS_MAX = 1_024  # length of a name, an address or a check code


class Decision(NamedTuple):
    """A response and the events that it confirms. The events are stored before it is sent."""

    code: int = codes.SUCCESS
    remark: str | None = None
    header: Header | None = None
    body: bytes = b""
    events: tuple[Event, ...] = ()


def alter_sync_set(
    groups: Groups, live: LiveBrokers, header: headers.AlterSyncStateSet, wanted: SyncStateSet
) -> Decision:
    """1001: a master proposes the set of replicas that its acknowledgements wait for.

    The present set gets a new number, too: a master that proposes it has a proposal under way whose
    answer is lost, and the new number refuses that one.
    """
    failed = codes.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    group = groups.get(header.broker_name)
    if group is None:
        return _no_set(failed, "Broker metadata is not existed")
    ids = sorted(set(wanted.sync_state_set))
    is_present = (header.master_broker_id, header.master_epoch, wanted.sync_state_set_epoch) == (
        group.master_id,
        group.master_epoch,
        group.sync_set_epoch,
    )
    if ids == group.sync_set and not is_present:
        why = "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet"
        return _no_set(failed, why)
    rejecting = "Rejecting alter syncStateSet request because the"
    if group.master_id is None or group.master_id != header.master_broker_id:
        why = f"current leader is:{{{_text(group.master_id)}}}, not {{{header.master_broker_id}}}"
        return _no_set(codes.CONTROLLER_INVALID_MASTER, f"{rejecting} {why}")
    if header.master_epoch != group.master_epoch:
        why = f"current master epoch is:{{{group.master_epoch}}}, not {{{header.master_epoch}}}"
        return _no_set(codes.CONTROLLER_FENCED_MASTER_EPOCH, f"{rejecting} {why}")
    if wanted.sync_state_set_epoch != group.sync_set_epoch:
        epochs = f"{{{group.sync_set_epoch}}}, not {{{wanted.sync_state_set_epoch}}}"
        why = f"{rejecting} current syncStateSet epoch is:{epochs}"
        return _no_set(codes.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, why)
    for one in ids:
        if one not in group.members:
            why = f"{rejecting} replicas {{{one}}} don't exist"
            return _no_set(codes.CONTROLLER_INVALID_REPLICAS, why)
        if not live.is_alive(_key(group, one)):
            why = f"{rejecting} replicas {{{one}}} don't alive"
            return _no_set(codes.CONTROLLER_BROKER_NOT_ALIVE, why)
    if group.master_id not in ids:
        why = f"{rejecting} newSyncStateSet don't contains origin leader {{{group.master_id}}}"
        return _no_set(failed, why)
    epoch = group.sync_set_epoch + 1
    return Decision(
        header=headers.AlterSyncStateSetResponse(epoch),
        body=SyncStateSet(ids, epoch).encode(),
        events=(SyncSetChanged(group.name, ids),),
    )


def elect_master(
    groups: Groups, live: LiveBrokers, header: headers.ElectMaster, *, unclean: bool = False
) -> Decision:
    """1002: elect a live member of the set; with `unclean` any live member if the set has none."""
    group = groups.get(header.broker_name)
    empty = headers.ElectMasterResponse()
    asker = header.broker_id
    if group is None or (asker != CONTROLLER_ITSELF and asker not in group.members):
        return Decision(
            codes.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "Broker hasn't been registered", empty
        )
    by_controller = asker == CONTROLLER_ITSELF
    newest = max((live.position(_key(group, one)).epoch for one in group.members), default=0)
    if newest <= group.master_epoch or unclean:
        elected = _elected(group, live, header, unclean=unclean)
    elif header.designate_elect and _has_longest_log(group, live, asker):
        elected = asker
    else:
        return Decision(
            codes.CONTROLLER_ELECT_MASTER_FAILED,
            f"a broker of {group.name} knows master epoch {newest}, this controller only "
            f"{group.master_epoch}: the controller's state was lost, and an election could lose "
            "messages; restore controllerStorePath from a backup, or have the live broker with the "
            f"newest epoch and the longest log elected by hand: aerobee controller rebuild "
            f"{group.name}",
            empty,
        )
    if elected is not None and elected == group.master_id:
        return Decision(
            codes.CONTROLLER_MASTER_STILL_EXIST,
            f"The old master {elected} is still alive, not need to elect new master for broker "
            f"{group.name}",
            _master_of(group),
            ElectMasterResponseBody(sync_state_set=group.sync_set).encode(),
        )
    if elected is not None:
        epoch = max(group.master_epoch, newest) + 1
        addresses = {number: one.address for number, one in group.members.items()}
        members = BrokerMemberGroup(group.cluster, group.name, addresses)
        return Decision(
            header=headers.ElectMasterResponse(
                elected,
                group.address_of(elected),
                epoch,
                group.sync_set_epoch + 1,
            ),
            body=ElectMasterResponseBody(members, [elected]).encode(),
            events=(MasterElected(group.name, elected, epoch),),
        )
    if by_controller:
        return Decision(
            codes.CONTROLLER_MASTER_NOT_AVAILABLE,
            "Old master has down and failed to elect a new broker master",
            empty,
            events=() if group.master_id is None else (MasterElected(group.name, None),),
        )
    return Decision(codes.CONTROLLER_ELECT_MASTER_FAILED, "Failed to elect a new master", empty)


def next_id(groups: Groups, header: headers.GetNextBrokerId) -> Decision:
    """1012: the id that a new broker may apply for."""
    group = groups.get(header.broker_name)
    found = FIRST_ID if group is None else group.next_id
    return Decision(
        header=headers.GetNextBrokerIdResponse(header.cluster_name, header.broker_name, found)
    )


def apply_id(groups: Groups, live: LiveBrokers, header: headers.ApplyBrokerId) -> Decision:
    """1013: give a free id to the broker; a taken id only to the broker that has it already.

    A new name begins with the first id, unless a broker's heartbeats have an epoch: then this
    controller has lost what it knew of the name.
    """
    name, wanted = header.broker_name, header.applied_broker_id
    group = groups.get(name)
    response = headers.ApplyBrokerIdResponse(header.cluster_name, name)
    address = header.check_code.partition(";")[0]
    wrong = _limits(groups, group, (name, header.cluster_name, header.check_code))
    is_lost = live.position((header.cluster_name, name, wanted)).epoch > 0
    if group is None and wanted != FIRST_ID and not is_lost:
        wrong = (
            f"Broker-set: {name} hasn't been registered in controller, but broker try to apply "
            f"brokerId: {wanted}"
        )
    elif group is not None and wanted in group.members:
        if group.members[wanted].check_code == header.check_code:
            return Decision(header=response)
        wrong = f"Fail to apply brokerId: {wanted} in broker-set: {name}"
    if wrong or wanted < FIRST_ID:
        wrong = wrong or f"brokerId {wanted} can't be applied for, the first is {FIRST_ID}"
        return Decision(codes.CONTROLLER_BROKER_ID_INVALID, wrong, response)
    event = IdApplied(name, header.cluster_name, wanted, address, header.check_code)
    return Decision(header=response, events=(event,))


def register(
    groups: Groups, live: LiveBrokers, header: headers.RegisterBrokerToController
) -> Decision:
    """1003: a broker reports its address; the response names the master if it is alive.

    The set of a master that registers gets a new number: the broker has started again and does not
    know what it had proposed before, and the new number refuses what is still under way.
    """
    name, broker_id = header.broker_name, header.broker_id
    response = headers.RegisterBrokerToControllerResponse(header.cluster_name, name)
    unknown = codes.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    group = groups.get(name)
    if group is None:
        why = f"Broker-set: {name} hasn't been registered in controller"
        return Decision(unknown, why, response)
    if broker_id not in group.members:
        why = f"BrokerId: {broker_id} hasn't been registered in broker-set: {name}"
        return Decision(unknown, why, response)
    wrong = twin(groups, live, _key(group, broker_id), header.broker_address)
    if wrong:
        return Decision(codes.CONTROLLER_BROKER_ID_INVALID, wrong, response)
    events: tuple[Event, ...] = ()
    set_epoch = group.sync_set_epoch
    if broker_id == group.master_id:
        events, set_epoch = (SyncSetChanged(name, group.sync_set),), set_epoch + 1
    if group.master_id is not None and live.is_alive(_key(group, group.master_id)):
        response.master_broker_id = group.master_id
        response.master_address = group.address_of(group.master_id)
        response.master_epoch = group.master_epoch
        response.sync_state_set_epoch = set_epoch
    if header.broker_address != group.members[broker_id].address:
        if len(header.broker_address) > TEXT_CHARS_MAX:
            return Decision(codes.CONTROLLER_INVALID_REQUEST, _too_long(header.broker_address))
        events = (*events, AddressChanged(name, broker_id, header.broker_address))
    body = SyncStateSet(group.sync_set, set_epoch).encode()
    return Decision(header=response, body=body, events=events)


def twin(groups: Groups, live: LiveBrokers, key: Key, address: str) -> str:
    """The reason why the broker at `address` may not use this id; "" if it may.

    The id belongs to a broker at another address as long as that broker is alive, or may be: a
    controller that has just begun to lead has no heartbeat of that broker yet.
    """
    _, name, broker_id = key
    owner, group = live.address(key), groups.get(name)
    if owner is None and group is not None and group.master_epoch and not live.is_dead(key):
        owner = group.address_of(broker_id)
    if owner is None or owner == address:
        return ""
    return (
        f"broker id {broker_id} of {name} belongs to the broker at {owner}, which is alive, and "
        f"{address} has the same; an id can have one broker at a time. If the store folder of "
        f"{address} is a copy, start it with an empty one, so that it joins with an id of its own. "
        f"If the broker has moved, stop the one at {owner}: the id is free a second after its "
        "connection has ended, or when its heartbeats have stopped for its timeout"
    )


def replica_info(groups: Groups, header: headers.GetReplicaInfo) -> Decision:
    """1004: the master and the sync state set."""
    group = groups.get(header.broker_name)
    if group is None:
        return Decision(
            codes.CONTROLLER_BROKER_METADATA_NOT_EXIST,
            "Broker metadata is not existed",
            headers.GetReplicaInfoResponse(),
        )
    master = group.master_id
    response = headers.GetReplicaInfoResponse(master, group.address_of(master), group.master_epoch)
    return Decision(header=response, body=_set_of(group))


def sync_state_data(groups: Groups, live: LiveBrokers, names: Iterable[str]) -> Decision:
    """1006: all replicas of these names; unknown names are left out."""
    table: dict[str, ReplicasInfo] = {}
    for name in names:
        group = groups.get(name)
        if group is None:
            continue
        info = ReplicasInfo(
            master_address=group.address_of(group.master_id),
            master_broker_id=group.master_id,
            master_epoch=group.master_epoch,
            sync_state_set_epoch=group.sync_set_epoch,
            in_sync_replicas=[],
            not_in_sync_replicas=[],
        )
        for broker_id, member in sorted(group.members.items()):
            is_alive = live.is_alive(_key(group, broker_id))
            identity = ReplicaIdentity(is_alive, member.address, broker_id, name)
            is_in_sync = broker_id in group.sync_set
            (info.in_sync_replicas if is_in_sync else info.not_in_sync_replicas).append(identity)
        table[name] = info
    return Decision(body=BrokerReplicasInfo(table).encode())


def clean(groups: Groups, live: LiveBrokers, header: headers.CleanBrokerData) -> Decision:
    """1011: remove dead members, or a whole name; live members only with the flag for it."""
    name, refused = header.broker_name, codes.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    group = groups.get(name)
    if group is None:
        return Decision(refused, f"Broker {name} is not existed,clean broker data failure.")
    texts = [text.strip() for text in (header.ids or "").split(";") if text.strip()]
    if not all(text.isascii() and text.isdecimal() and len(text) < 19 for text in texts):
        return Decision(
            refused,
            "Please set the option <brokerControllerIdsToClean> according to the format, "
            f"exception: {(header.ids or '')[:80]!r} is not a list of ids such as 1;2",
        )
    ids = [int(text) for text in texts]
    if not header.is_clean_living_broker:
        if not ids and group.master_id is not None:
            return Decision(refused, f"Broker {name} is still alive, clean up failure")
        for broker_id in ids:
            if live.is_alive(_key(group, broker_id)):
                why = f"Broker [{name},  {broker_id}] is still alive, clean up failure"
                return Decision(refused, why)
    return Decision(events=(MembersRemoved(name, ids),))


def to_elect(groups: Groups, live: LiveBrokers) -> list[str]:
    """The names that need an election now: their master is dead and another member is alive."""
    return [
        name
        for name, group in groups.items()
        if group.master_id is not None
        and live.is_dead(_key(group, group.master_id))
        and any(live.is_alive(_key(group, one)) for one in group.members)
    ]


def _elected(
    group: ReplicaGroup, live: LiveBrokers, header: headers.ElectMaster, *, unclean: bool
) -> int | None:
    is_first = not group.master_epoch and all(
        live.position(_key(group, one)).epoch <= 0 for one in group.members
    )
    if is_first and header.broker_id != CONTROLLER_ITSELF:
        return header.broker_id  # the first master of the name: the log starts with it
    designated = header.broker_id if header.designate_elect else None
    found = _best(group, live, group.sync_set, designated)
    if found is None and unclean:
        found = _best(group, live, group.members, designated)
    return found


def _has_longest_log(group: ReplicaGroup, live: LiveBrokers, broker_id: int) -> bool:
    """True if this broker is alive and no other of the name has more, as heartbeats tell."""
    own = live.position(_key(group, broker_id))[:2]
    return live.is_alive(_key(group, broker_id)) and all(
        live.position(_key(group, one))[:2] <= own for one in group.members
    )


def _best(
    group: ReplicaGroup, live: LiveBrokers, ids: Iterable[int], designated: int | None
) -> int | None:
    """The best live candidate: the present master, else by epoch, log length, priority and id."""
    old = group.master_id
    candidates = [one for one in ids if live.is_alive(_key(group, one))]
    is_valid = old is not None and old in ids and not live.is_dead(_key(group, old))
    if is_valid and designated in (None, old):
        return old
    if designated is not None:
        return designated if designated in candidates else None

    def rank(broker_id: int) -> tuple[int, int, int, int]:
        epoch, max_offset, priority = live.position(_key(group, broker_id))
        return (-epoch, -max_offset, priority, broker_id)

    return min(candidates, key=rank, default=None)


def _master_of(group: ReplicaGroup) -> headers.ElectMasterResponse:
    master = group.master_id
    return headers.ElectMasterResponse(
        master, group.address_of(master), group.master_epoch, group.sync_set_epoch
    )


def _set_of(group: ReplicaGroup) -> bytes:
    return SyncStateSet(group.sync_set, group.sync_set_epoch).encode()


def _no_set(code: int, remark: str) -> Decision:
    return Decision(code, remark, headers.AlterSyncStateSetResponse())


def _key(group: ReplicaGroup, broker_id: int) -> Key:
    return (group.cluster, group.name, broker_id)


def _limits(groups: Groups, group: ReplicaGroup | None, texts: tuple[str, ...]) -> str:
    """The text of the first exceeded limit; empty if there is none."""
    for text in texts:
        if len(text) > TEXT_CHARS_MAX:
            return _too_long(text)
    if group is None and len(groups) >= NAMES_MAX:
        return (
            f"{len(groups)} broker names are registered, the limit is {NAMES_MAX}; remove those "
            "that are gone with cleanBrokerMetadata"
        )
    if group is not None and len(group.members) >= MEMBERS_MAX:
        return (
            f"{group.name} has {len(group.members)} members, the limit is {MEMBERS_MAX}; remove "
            "those that are gone with cleanBrokerMetadata"
        )
    return ""


def _too_long(text: str) -> str:
    return f"{text[:40]!a} has {len(text)} characters, the limit is {TEXT_CHARS_MAX}; shorten it"


def _text(broker_id: int | None) -> str:
    return "null" if broker_id is None else str(broker_id)
