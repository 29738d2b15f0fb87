"""The persistent state of a controller: the replicas of each broker name, changed by events.

The state depends only on its events and their order.
"""

from typing import TypeAlias

import msgspec


class Member(msgspec.Struct):
    """One broker of a name. `check_code` identifies the broker when it applies for its id again."""

    address: str
    check_code: str


class ReplicaGroup(msgspec.Struct):
    """The brokers of one name. Invariant: the master is a member and belongs to the set.

    `sync_set` has the ids of the brokers whose logs have every acknowledged message. `master_epoch`
    grows with each change of the master, `sync_set_epoch` with each change of the set.
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
        """A member's address for clients, as "host:port"; None for an unknown id."""
        member = None if broker_id is None else self.members.get(broker_id)
        return None if member is None else member.address


class _Event(msgspec.Struct, tag_field="event", frozen=True):
    name: str  # the broker name


class IdApplied(_Event, tag="idApplied", frozen=True):
    """A broker received its id, which never changes."""

    cluster: str
    broker_id: int
    address: str
    check_code: str


class AddressChanged(_Event, tag="addressChanged", frozen=True):
    """A member's address for clients changed."""

    broker_id: int
    address: str


class MasterElected(_Event, tag="masterElected", frozen=True):
    """A new master, the only member of its first set; None: the master is dead, the set stays.

    The master's epoch is the next one, or `epoch` where that is larger.
    """

    broker_id: int | None
    epoch: int = 0


class SyncSetChanged(_Event, tag="syncSetChanged", frozen=True):
    """The master's proposal for the set was accepted."""

    ids: list[int]


class MembersRemoved(_Event, tag="membersRemoved", frozen=True):
    """The removal of these members; without ids, of the whole name."""

    ids: list[int]


Event: TypeAlias = IdApplied | AddressChanged | MasterElected | SyncSetChanged | MembersRemoved
Groups: TypeAlias = dict[str, ReplicaGroup]


def apply(groups: Groups, event: Event) -> None:
    """Change the groups by one event. An event for an unknown name changes nothing."""
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
