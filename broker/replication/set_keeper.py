"""The sync state set that a master wants: what it proposes to the controller, and when.

The wanted set is worked out each time from how the slaves stand: two connections that close at once
both leave it. A slave that has nearly caught up is waited for before it is proposed, since the
controller may elect any member of the set: each must have all that is confirmed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from ...protocol.aio.tasks import end
from .sync_state import SyncState, may_join

log = logging.getLogger(__name__)

NEAR_MS = 1_000  # a slave that is so much behind is waited for, to become a member
JOIN_MS = 1_000  # how long it is waited for at most
JOIN_PAUSE_MS = 5_000  # until it is waited for again
FIRST_MS = 5_000  # how long a member may take to connect to a new master
RETRY_MS = 1_000  # until the controller is asked again


class Standing(NamedTuple):
    """A connected slave: the end of its log, and when it last had all of the master's."""

    acked: int
    caught_up_ms: int
    is_learner: bool


class SetKeeper:
    """Keeps `state` of a master: proposes sets, and takes the controller's answers."""

    def __init__(
        self,
        broker_id: int,
        state: SyncState,
        alter: Callable[[frozenset[int]], Awaitable[None]],
        now_ms: Callable[[], int],
    ) -> None:
        """Take the same arguments as `SyncSetAcks`."""
        self._broker_id = broker_id
        self._state = state
        self._alter = alter
        self._now_ms = now_ms
        self._started_ms = now_ms()
        self._joining: dict[int, int] = {}  # slaves that are waited for, and since when
        self._pausing: dict[int, int] = {}  # slaves that took too long, and until when
        self._asking: asyncio.Task[None] | None = None
        self._asked_ms = -RETRY_MS
        self._told = ""

    def needed(self) -> frozenset[int]:
        """The brokers that must have a message before it is confirmed."""
        return self._state.counted() | self._joining.keys()

    def apply(self, members: frozenset[int], set_epoch: int) -> bool:
        """Take over the set that the controller has confirmed; False when it is older than the
        known one."""
        before = self._state.members
        is_taken = self._state.take(members, set_epoch)
        if is_taken and members != before:
            log.info("the sync state set is %s, it was %s", sorted(members), sorted(before))
        return is_taken

    def propose(
        self, standings: Mapping[int, Standing], confirmed: int, epoch_start: int, late_ms: int
    ) -> None:
        """Ask the controller for another set, if these slaves should be in one.

        A member has to have had all of the log within the last `late_ms`; another slave has to have
        it up to `confirmed` and into the epoch that began at `epoch_start`.
        """
        state = self._state
        if self._broker_id not in state.members:
            return
        now = self._now_ms()
        wanted = {self._broker_id}
        wanted.update(each for each in state.members if self._stays(each, standings, now, late_ms))
        for slave_id, one in standings.items():
            is_new = slave_id not in state.members
            if (
                is_new
                and self._joins(slave_id, one, now, epoch_start)
                and may_join(one.acked, confirmed, epoch_start)
            ):
                wanted.add(slave_id)
        for slave_id in [each for each in self._joining if each not in standings]:
            del self._joining[slave_id]
        for member in state.members & self._joining.keys():
            del self._joining[member]
        self._ask(frozenset(wanted), now)

    async def stop(self) -> None:
        """Ask nothing any more."""
        if self._asking is not None:
            await end(self._asking)

    # ---- inside

    def _stays(
        self, member: int, standings: Mapping[int, Standing], now: int, late_ms: int
    ) -> bool:
        one = standings.get(member)
        if one is None:
            # Gone, or not here yet after this broker has become the master.
            is_new = member not in self._state.last_report_ms
            return is_new and now - self._started_ms < FIRST_MS
        return now - max(one.caught_up_ms, self._started_ms) <= late_ms

    def _joins(self, slave_id: int, one: Standing, now: int, epoch_start: int) -> bool:
        """True if a slave outside of the set is to become a member; messages then wait for its
        ack."""
        is_near = now - one.caught_up_ms <= NEAR_MS
        if one.is_learner or one.acked < epoch_start or not is_near:
            self._joining.pop(slave_id, None)
            return False
        if now < self._pausing.get(slave_id, 0):
            return False
        since = self._joining.setdefault(slave_id, now)
        if now - since > JOIN_MS and slave_id not in self._state.proposed:
            del self._joining[slave_id]
            self._pausing[slave_id] = now + JOIN_PAUSE_MS
            return False
        return True

    def _ask(self, wanted: frozenset[int], now: int) -> None:
        state = self._state
        if self._asking is not None or (self._told and now - self._asked_ms < RETRY_MS):
            return
        if wanted == state.members and not state.proposed:
            return
        state.propose(wanted)
        self._asked_ms = now
        self._asking = asyncio.get_running_loop().create_task(self._ask_for(wanted))

    async def _ask_for(self, wanted: frozenset[int]) -> None:
        before = self._state.set_epoch
        try:
            await self._alter(wanted)
        except Exception as wrong:
            if self._state.set_epoch == before:
                self._state.is_lost = True
            self._tell(f"the controller was asked for the set {sorted(wanted)}, no answer: {wrong}")
        else:
            self._state.is_answered = True
            if self._state.set_epoch == before:
                self._tell(f"the controller has not taken {sorted(wanted)} as the sync state set")
            else:
                self._told = ""
        finally:
            self._asking = None

    def _tell(self, wrong: str) -> None:
        """Log what went wrong, unless it is the same as the last time."""
        if wrong != self._told:
            self._told = wrong
            log.warning("%s; asked again after %d ms", wrong, RETRY_MS)
