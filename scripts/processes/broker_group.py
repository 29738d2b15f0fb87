"""The supervisor of a group of brokers: it starts, restarts and stops them, one after another.

Clients speak to the members themselves; through the supervisor pass only the names of topics, lines
of the log and metrics.
"""

import asyncio
import json
import logging
import signal
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ...broker.topics.missed_deletions import MissedDeletions
from ...client.errors import AerobeeError
from .. import logs
from ..child_command import Backoff, ChildCommand, ChildStaysDown
from ..output.command_error import CommandError
from .plan import DRAINED, MemberPlan

log = logging.getLogger(__name__)

STARTING, SERVING, DOWN, STOPPED = "starting", "serving", "down", "stopped"
RESTARTING, LEAVING, EMPTY = "starts again", "leaving", "empty"
TOPICS_MAX = 10_000  # that some members have deleted and others not
LEAVE_SECONDS = 5.0  # between two checks whether a leaving member was read to its end


@dataclass
class GroupMember:
    """One member: its plan, its state, and for `down` the reason in one sentence."""

    plan: MemberPlan
    state: str = STARTING
    reason: str = ""
    restarts: int = 0
    child: ChildCommand | None = None
    task: asyncio.Task[None] | None = None
    began: asyncio.Event = field(default_factory=asyncio.Event)  # it serves, or why it doesn't

    @property
    def is_serving(self) -> bool:
        """True if clients can use the member."""
        return self.state in (SERVING, LEAVING)

    @property
    def page(self) -> str:
        """The URL of its HTTP endpoint; "" without one."""
        ready = "" if self.child is None else self.child.ready
        return ready.partition(", HTTP ")[2].partition(";")[0].partition(",")[0]

    @property
    def address(self) -> str:
        """The address that the member listens on; "" before it is ready."""
        ready = "" if self.child is None else self.child.ready
        return ready.partition("is ready on ")[2].partition(" ")[0]


class GroupDeletions:
    """The members that have deleted a topic, as long as others have it.

    A topic of a group is on all members, and an administrator deletes it on each. Only once every
    member that serves has deleted it, the members that are away have missed a deletion: a topic
    that was deleted on one broker alone keeps its messages on the others.
    """

    def __init__(self) -> None:
        self._by: dict[str, set[str]] = {}

    def deleted(self, topic: str, member: str, serving: Iterable[str]) -> bool:
        """A member has deleted a topic; whether every member that serves has."""
        by = self._by.setdefault(topic, set())
        by.add(member)
        if by.issuperset(serving):
            del self._by[topic]
            return True
        if len(self._by) > TOPICS_MAX:
            del self._by[next(iter(self._by))]
        return False

    def has(self, topic: str, member: str) -> None:
        """A member has this topic, perhaps again."""
        by = self._by.get(topic)
        if by is not None:
            by.discard(member)
            if not by:
                del self._by[topic]


class BrokerGroup:
    """The members of one command. `words` are the arguments of `aerobee broker` for each.

    `restart_pause` is the time in seconds between two members of a restart in turn, in which
    clients see in their routes that the earlier member is back. `what_keeps(address)` names the
    unread messages of a leaving member, "" without any.
    """

    def __init__(
        self,
        plans: Sequence[MemberPlan],
        words: Sequence[str],
        *,
        restart_pause: float,
        what_keeps: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        self.members = [GroupMember(plan) for plan in plans]
        self._words = list(words)
        self._restart_pause = restart_pause
        self._what_keeps = what_keeps
        self._restarting: asyncio.Task[None] | None = None
        self._deletions = GroupDeletions()

    async def start(self) -> None:
        """Start all; CommandError if none serves. SIGHUP restarts them in turn from now on."""
        for member in self.members:
            self._begin(member)
        await asyncio.gather(*(member.began.wait() for member in self.members))
        if not any(member.is_serving for member in self.members):
            await self.stop()
            raise CommandError(f"no member serves; the first says: {self.members[0].reason}")
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.restart)

    async def stop(self) -> None:
        """Stop them, one after the other, so that clients can go on with the rest meanwhile."""
        if self._restarting is not None:
            self._restarting.cancel()
        for member in self.members:
            await self._end(member)

    def restart(self) -> None:
        """Begin to restart the members, one after the other."""
        if self._restarting is None or self._restarting.done():
            self._restarting = asyncio.create_task(self._restart_in_turn())
            self._restarting.add_done_callback(_tell_fault)
        else:
            log.warning("a restart in turn goes on already")

    async def _restart_in_turn(self) -> None:
        staying = [member for member in self.members if not member.plan.is_leaving]
        for number, member in enumerate(staying):
            if number:
                await asyncio.sleep(self._restart_pause)
            log.info("%s restarts", member.plan.name)
            await self._end(member)
            self._begin(member)
            await member.began.wait()
            if not member.is_serving:
                log.error(
                    "the restart in turn ends here, so that the other members go on: %s is %s: %s",
                    member.plan.name,
                    member.state,
                    member.reason,
                )
                return
        log.info("all %d members have restarted", len(staying))

    def notes(self) -> list[str]:
        """A sentence for each member that doesn't serve."""
        return [
            f"{member.plan.name} is {member.state}"
            + (f": {member.reason}" if member.reason else "")
            for member in self.members
            if not member.is_serving and member.state != EMPTY
        ]

    def _begin(self, member: GroupMember) -> None:
        member.began.clear()
        member.state, member.reason = STARTING, ""
        member.task = asyncio.create_task(self._keep(member), name=member.plan.name)

    async def _end(self, member: GroupMember) -> None:
        if member.task is not None:
            member.task.cancel()
            await asyncio.gather(member.task, return_exceptions=True)
        if member.state != EMPTY:
            member.state = STOPPED
        if member.child is not None:
            await member.child.stop()

    async def _keep(self, member: GroupMember) -> None:
        """Have a member serve until this is cancelled, or until it has to stay down."""
        loop, backoff, name = asyncio.get_running_loop(), Backoff(), member.plan.name
        while True:
            since = loop.time()
            try:
                await self._serve(member)
                since = loop.time()
                reason = await self._served(member)
                if not reason:
                    return
            except ChildStaysDown as wrong:
                member.state, member.reason = DOWN, str(wrong)
                member.began.set()
                log.error(
                    "%s stays down, the others go on: %s; mend it, then send SIGHUP to this "
                    "process",
                    name,
                    wrong,
                )
                return
            except (CommandError, OSError) as wrong:
                reason = str(wrong)
            wait = backoff.next(loop.time() - since)
            member.state, member.reason = RESTARTING, reason
            member.began.set()
            log.error("%s: %s; it starts again in %g s", name, reason, wait)
            await asyncio.sleep(wait)
            member.restarts += 1

    async def _serve(self, member: GroupMember) -> None:
        """Start a member; CommandError when it doesn't serve."""
        plan = member.plan
        sets = [word for each in plan.settings for word in ("--set", each)]
        child = member.child = ChildCommand(
            ["broker", *self._words, *sets],
            is_watched=False,
            on_line=lambda line: self._on_line(member, line),
            on_log=lambda line: logs.copy(plan.name, line),
            ready_seconds=None,  # the recovery of a store may take long
        )
        try:
            await child.start()
        except asyncio.CancelledError:
            await asyncio.shield(child.stop())
            raise
        member.state, member.reason = LEAVING if plan.is_leaving else SERVING, ""
        member.began.set()
        missed = MissedDeletions(plan.config.store_dir)
        for topic in missed.topics():  # deleted elsewhere after its check, at its start
            child.say(json.dumps({"deleted": topic}))
            missed.done(topic)
        for other in self.members:
            if other.is_serving and other.child is not None:
                other.child.say('{"tell": true}')

    async def _served(self, member: GroupMember) -> str:
        """Wait until a member that serves ends; the reason, "" when it is wanted no more."""
        assert member.child is not None
        if not member.plan.is_leaving or self._what_keeps is None:
            return f"it ended with code {await member.child.ended()}"
        ended = asyncio.create_task(member.child.ended())
        try:
            # Clients with an older route still send to it.
            await asyncio.wait([ended], timeout=self._restart_pause)
            while not ended.done() and await self._is_kept(member, self._what_keeps):
                await asyncio.wait([ended], timeout=LEAVE_SECONDS)
            if ended.done():
                return f"it ended with code {ended.result()}"
        finally:
            ended.cancel()
        await member.child.stop()
        (member.plan.config.store_dir / DRAINED).touch()
        member.state = EMPTY
        log.info(
            "%s was read to its end and is stopped; its store %s is needed no more",
            member.plan.name,
            member.plan.config.store_dir,
        )
        return ""

    async def _is_kept(
        self, member: GroupMember, what_keeps: Callable[[str], Awaitable[str]]
    ) -> bool:
        """True if a leaving member still has messages to be read."""
        try:
            member.reason = await what_keeps(member.address)
        except (AerobeeError, OSError) as wrong:
            member.reason = f"it doesn't say what is left: {wrong}"
        return bool(member.reason)

    def _on_line(self, teller: GroupMember, line: str) -> None:
        """A member names a topic, which others create where it is missing, or has deleted one."""
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict) or not said.keys() & {"topic", "deleted"}:
            logs.copy(teller.plan.name, line)
            return
        if "deleted" in said:
            self._on_deleted(teller, said["deleted"])
            return
        self._deletions.has(said["topic"]["topicName"], teller.plan.name)
        for other in self.members:
            if other is not teller and other.is_serving and other.child is not None:
                other.child.say(line)

    def _on_deleted(self, teller: GroupMember, topic: str) -> None:
        """Once all members that serve have deleted a topic, the members that are away will, too."""
        serving = [member.plan.name for member in self.members if member.is_serving]
        if not self._deletions.deleted(topic, teller.plan.name, serving):
            return
        for member in self.members:
            if not member.is_serving and member is not teller:
                try:
                    MissedDeletions(member.plan.config.store_dir).add(topic)
                except OSError as wrong:
                    log.error(
                        "topic %s comes back with %s, which is away: its deletion can't be noted: "
                        "%s; delete the topic again when all members serve",
                        topic,
                        member.plan.name,
                        wrong,
                    )


def _tell_fault(restarting: asyncio.Task[None]) -> None:
    if not restarting.cancelled() and (wrong := restarting.exception()) is not None:
        log.error("the restart in turn ended", exc_info=wrong)
