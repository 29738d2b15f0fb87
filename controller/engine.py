"""Where a controller's state is kept, and which controller leads: what the request handlers need.

`FileEngine` is `controllerType=file`: one controller, which always leads. `etcd.py` has the other.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ..store.base.errors import StoreError
from .journal import FileJournal
from .replicas import Event, Groups

log = logging.getLogger(__name__)


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
        """Whether this controller leads at this moment."""

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


class FileEngine:
    """A journal and a snapshot on the disk of the only controller."""

    is_leader = True
    fault = ""

    def __init__(self, journal: FileJournal) -> None:
        self.place = journal.place
        self.leading = Leading()
        self._journal = journal

    @property
    def groups(self) -> Groups:
        """The replicas of each broker name."""
        return self._journal.groups

    def open(self) -> None:
        """Read the stored state. StoreError when the folder is in use or a file is damaged."""
        self._journal.open()

    def begin(self, own: Leading, led: Callable[[], None]) -> None:
        """Lead."""
        self.leading = own
        led()

    async def store(self, events: tuple[Event, ...]) -> None:
        """Write the events to the disk, then apply them."""
        await asyncio.to_thread(self._journal.write, events)
        self._journal.apply(events)
        if self._journal.is_long:
            await self._shorten()

    async def close(self) -> None:
        """Release the folder."""
        self._journal.close()

    async def _shorten(self) -> None:
        """Replace a long journal by a snapshot. After an error the next change tries again."""
        try:
            await asyncio.to_thread(self._journal.write_snapshot)
        except StoreError as wrong:
            log.error("the snapshot of the state could not be written: %s", wrong)
