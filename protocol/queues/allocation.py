"""Allocation of queues to members: pure functions that every member computes for itself.

All members see the same queues and ids in the same order, so they reach the same result without
communication. A strategy gets the member's own id, the sorted queues of one topic and the sorted
ids of the group's members, and returns the member's queues. Strategies with settings are made by
functions: `consistent_hash(10)`, `by_config(queues)`, `machine_room(rooms)`, `nearby(average)`. Any
function of that form works; all members of a group must use the same one.

Average gives each member a contiguous run of queues, circle spreads a broker's queues over more
members, and consistent hash moves the fewest queues when members come and go: for groups whose size
changes often.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from ..bodies.body import MessageQueue

VIRTUAL_NODES = 10  # points of a member on the ring

Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]


def sort_ids(ids: Iterable[str]) -> list[str]:
    """Client ids without repeats, in the order of Java's strings: by UTF-16 units."""
    return sorted(set(ids), key=lambda text: text.encode("utf-16-be", "surrogatepass"))


def average(me: str, queues: Sequence[MessageQueue], ids: Sequence[str]) -> list[MessageQueue]:
    """AVG: a run of neighbours each; the first members get one more when it doesn't come out."""
    if me not in ids:
        return []
    index, members = ids.index(me), len(ids)
    each, more = divmod(len(queues), members)
    start = index * each + min(index, more)
    return list(queues[start : start + each + (index < more)])


def circle(me: str, queues: Sequence[MessageQueue], ids: Sequence[str]) -> list[MessageQueue]:
    """AVG_BY_CIRCLE: dealt out like cards. Of q1 to q6 the third of three members has q3 and q6,
    where a text says q3 and q5."""
    if me not in ids:
        return []
    return list(queues[ids.index(me) :: len(ids)])


def consistent_hash(virtual_nodes: int = VIRTUAL_NODES) -> Strategy:
    """CONSISTENT_HASH: a queue belongs to the next of the members' points on a ring of hashes."""
    if virtual_nodes < 1:
        raise ValueError(f"virtual_nodes is {virtual_nodes}; give at least 1")

    def allocate(me: str, queues: Sequence[MessageQueue], ids: Sequence[str]) -> list[MessageQueue]:
        if me not in ids:
            return []
        # If points have the same hash, the later member's wins, as in Java's map.
        owners = {_point(f"{each}-{at}"): each for each in ids for at in range(virtual_nodes)}
        ring = sorted(owners)
        found = []
        for queue in queues:
            # The text is Java's MessageQueue.toString().
            at = bisect_left(
                ring,
                _point(
                    f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
                    f"queueId={queue.queue_id}]"
                ),
            )
            if owners[ring[at % len(ring)]] == me:
                found.append(queue)
        return found

    return allocate


def by_config(mine: Iterable[MessageQueue]) -> Strategy:
    """CONFIG: this member gets exactly these queues, independent of other members."""
    wanted = list(mine)

    def allocate(me: str, queues: Sequence[MessageQueue], ids: Sequence[str]) -> list[MessageQueue]:
        # A rebalance is about one topic; those of others would be taken by the wrong round.
        topics = {queue.topic for queue in queues}
        return [queue for queue in wanted if queue.topic in topics]

    return allocate


def machine_room(rooms: Iterable[str]) -> Strategy:
    """MACHINE_ROOM: only queues on brokers named `room@name` with a room in `rooms`, averaged."""
    served = frozenset(rooms)

    def allocate(me: str, queues: Sequence[MessageQueue], ids: Sequence[str]) -> list[MessageQueue]:
        if me not in ids:
            return []
        here = []
        for queue in queues:
            room, *name = queue.broker_name.split("@")
            if len(name) == 1 and room in served:
                here.append(queue)
        index = ids.index(me)
        each, more = divmod(len(here), len(ids))
        # Unlike AVG's, what doesn't come out is taken one by one from the end of the list.
        rest = here[each * len(ids) + index : each * len(ids) + index + (index < more)]
        return here[each * index : each * (index + 1)] + rest

    return allocate


def room_of_broker(queue: MessageQueue) -> str:
    """The room in a broker's name of the form `room@name`; "" without one."""
    room, at, _ = queue.broker_name.partition("@")
    return room if at else ""


def room_of_client(client_id: str) -> str:
    """The room in a client id of the form `room@name`; "" without one."""
    room, at, _ = client_id.partition("@")
    return room if at else ""


def nearby(
    inner: Strategy,
    broker_room: Callable[[MessageQueue], str] = room_of_broker,
    client_room: Callable[[str], str] = room_of_client,
) -> Strategy:
    """MACHINE_ROOM_NEARBY: each room's queues among its own members, by `inner`.

    Queues of a room without a member are shared by all. A text has all queues shared where a member
    finds none in its own room. Raises ValueError when a queue or a member has no room.
    """

    def allocate(me: str, queues: Sequence[MessageQueue], ids: Sequence[str]) -> list[MessageQueue]:
        if me not in ids:
            return []
        rooms: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            rooms.setdefault(_room(broker_room(queue), queue.broker_name), []).append(queue)
        members: dict[str, list[str]] = {}
        for each in ids:
            members.setdefault(_room(client_room(each), each), []).append(each)
        mine = client_room(me)
        found = inner(me, rooms.pop(mine, []), members[mine])
        for room in sorted(rooms):
            if room not in members:
                found = found + inner(me, rooms[room], ids)
        return found

    return allocate


def _room(room: str, of: str) -> str:
    if not room:
        raise ValueError(f"{of} names no machine room; give functions that know its room")
    return room


def _point(text: str) -> int:
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


# By the names of Java's classes; strategies with settings are not listed.
STRATEGIES: dict[str, Strategy] = {
    "AVG": average,
    "AVG_BY_CIRCLE": circle,
    "CONSISTENT_HASH": consistent_hash(),
    "MACHINE_ROOM_NEARBY-AVG": nearby(average),
}
