"""What a controller knows for good: the replicas of each broker name, and how events change it.

The state is the result of its events, in their order. Nothing else changes it.
"""

from typing import TypeAlias

import msgspec


class Member(msgspec.Struct):
    """One broker of a name. `check_code` proves that a broker asks for its own id again."""

    address: str
    check_code: str


class ReplicaGroup(msgspec.Struct):
    """The brokers of one name. Always true: the master is a member and stands in the set.

    `sync_set` has the ids of the brokers whose logs have every acknowledged message. Each master
    has a larger epoch than the one before; each set a larger number than the one before.
    """

    cluster: str
    name: str
    members: dict[int, Member] = {}
    next_id: int = 1
    master_id: int | None = None
    master_epoch: int = 0
    sync_set: list[int] = []
    sync_set_epoch: int = 0

    def address_of(self, broker_id: int | None) -> str | None:
        """Where a member serves clients, as "host:port"; None for no member."""
        member = None if broker_id is None else self.members.get(broker_id)
        return None if member is None else member.address


class _Event(msgspec.Struct, tag_field="event", frozen=True):
    name: str  # of the broker


class IdApplied(_Event, tag="idApplied", frozen=True):
    """A broker has its id for life."""

    cluster: str
    broker_id: int
    address: str
    check_code: str


class AddressChanged(_Event, tag="addressChanged", frozen=True):
    """A member serves at another address."""

    broker_id: int
    address: str


class MasterElected(_Event, tag="masterElected", frozen=True):
    """A new master, which is the whole set at first; None: the old one is gone, the set stays.

    The master's epoch is the next one, or `epoch` where that is larger.
    """

    broker_id: int | None
    epoch: int = 0


class SyncSetChanged(_Event, tag="syncSetChanged", frozen=True):
    """The master's proposal for the set was accepted."""

    ids: list[int]


class MembersRemoved(_Event, tag="membersRemoved", frozen=True):
    """These members are forgotten; without ids the whole name."""

    ids: list[int]


Event: TypeAlias = IdApplied | AddressChanged | MasterElected | SyncSetChanged | MembersRemoved
Groups: TypeAlias = dict[str, ReplicaGroup]


def apply(groups: Groups, event: Event) -> None:
    """Change the groups by one event. An event for a name that is not there changes nothing."""
    if isinstance(event, IdApplied):
        group = groups.setdefault(event.name, ReplicaGroup(event.cluster, event.name))
        if event.broker_id not in group.members:
            group.members[event.broker_id] = Member(event.address, event.check_code)
            group.next_id = max(group.next_id, event.broker_id) + 1
        return
    found = groups.get(event.name)
    if found is None:
        return
    if isinstance(event, AddressChanged):
        if event.broker_id in found.members:
            found.members[event.broker_id].address = event.address
    elif isinstance(event, MasterElected):
        found.master_id = event.broker_id
        found.master_epoch = max(found.master_epoch + 1, event.epoch)
        if event.broker_id is not None:
            _set_sync_set(found, [event.broker_id])
    elif isinstance(event, SyncSetChanged):
        _set_sync_set(found, event.ids)
    elif not event.ids:
        del groups[event.name]
    else:
        _remove(groups, found, event.ids)


def _set_sync_set(group: ReplicaGroup, ids: list[int]) -> None:
    group.sync_set = sorted(set(ids))
    group.sync_set_epoch += 1


def _remove(groups: Groups, group: ReplicaGroup, ids: list[int]) -> None:
    for broker_id in ids:
        group.members.pop(broker_id, None)
    if not group.members:
        del groups[group.name]
        return
    kept = [broker_id for broker_id in group.sync_set if broker_id in group.members]
    if kept != group.sync_set:
        _set_sync_set(group, kept)
    if group.master_id not in group.members:
        group.master_id = None
