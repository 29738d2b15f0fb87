"""Where a controller's state is kept, and which controller leads: what the request handlers need.

`journal.py` has `controllerType=file`: one controller, which always leads. `etcd.py` has the other.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from .replicas import Event, Groups


class NotLeaderError(Exception):
    """Another controller leads, or none; the text says which."""


class Leading(NamedTuple):
    """The controller that leads: its id, and its address as "host:port"; both "" if unknown."""

    controller_id: str = ""
    address: str = ""


class Engine(Protocol):
    """The state of a controller. Only the leader has it, and only the leader changes it."""

    place: str  # where the state is, for people
    fault: str  # why the state can't be used now, in one sentence; "" if it can

    @property
    def groups(self) -> Groups:
        """The replicas of each broker name; empty while another controller leads."""

    @property
    def is_leader(self) -> bool:
        """True if this controller leads at this moment."""

    @property
    def leading(self) -> Leading:
        """The controller that leads."""

    def open(self) -> None:
        """Get ready. StoreError when the state can't be read."""

    def begin(self, own: Leading, led: Callable[[], None]) -> None:
        """Lead from now on, or as soon as may be; `led` is called each time that begins."""

    async def store(self, events: tuple[Event, ...]) -> None:
        """Store the events of one broker name and apply them to `groups`, all or none.

        NotLeaderError when this controller does not lead, StoreError when they can't be stored.
        """

    async def close(self) -> None:
        """End. Another controller may lead at once."""
