"""What a broker in controller mode gets from the member that makes it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from .authority import Authority
from .election import Election
from .lock_handover import LockHandover
from .ports import Ports


@dataclass(frozen=True, slots=True)
class Membership:
    """The `election` that gives one broker its role, for as long as that broker lives.

    `alter(members)` proposes another sync state set to the controller, and returns once it is
    answered. `look()` has the leader asked for the last election now. `replicas()` are the
    replicas that the leader knows, by id, each with its address. `now_ms` is a monotonic clock.
    `since_ms` is when the role was taken, since 1970; `switches` counts the roles since the start.
    `handover` has the locks of the master before.
    """

    election: Election
    ports: Ports
    authority: Authority
    now_ms: Callable[[], int]
    alter: Callable[[frozenset[int]], Awaitable[None]]
    look: Callable[[], None]
    replicas: Callable[[], Mapping[int, str]]
    handover: LockHandover
    since_ms: int
    switches: int
