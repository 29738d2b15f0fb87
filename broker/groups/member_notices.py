"""NOTIFY_CONSUMER_IDS_CHANGED (40): tells members that their group has changed, so that they
rebalance.

A large group is notified in slices. It changes most often while many members start or stop; all
changes during a round lead to one more round.
"""

import asyncio
from collections.abc import Generator

from ...protocol import codes
from ...protocol.aio.slices import Slices
from .clients import BROADCASTING, ConsumerGroup, Member

AT_ONCE_MAX = 64  # members notified in one loop iteration


class MemberNotices:
    """Sends the notices to the members of groups."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._rounds: dict[str, asyncio.Task[None]] = {}  # by group
        self._changed: set[str] = set()  # groups that have changed since their round began

    def tell(self, group: ConsumerGroup) -> None:
        """Notify the members of a group that it has changed."""
        if group.message_model == BROADCASTING:
            return  # each member reads all queues there
        if group.name in self._rounds:
            self._changed.add(group.name)
        elif len(group.members) > AT_ONCE_MAX:
            work = self._work(group)
            self._rounds[group.name] = asyncio.create_task(work, name=f"notices-{group.name}")
        else:
            for member in group.members.values():
                _tell(member, group)

    async def stop(self) -> None:
        """Send no more notices."""
        rounds = list(self._rounds.values())
        for task in rounds:
            task.cancel()
        await asyncio.gather(*rounds, return_exceptions=True)

    async def _work(self, group: ConsumerGroup) -> None:
        try:
            self._changed.add(group.name)
            while group.name in self._changed:
                self._changed.discard(group.name)
                await self._slices.run(_round(group))
        finally:
            del self._rounds[group.name]


def _round(group: ConsumerGroup) -> Generator[None, None, None]:
    for key, member in list(group.members.items()):
        if key in group.members:
            _tell(member, group)
        yield


def _tell(member: Member, group: ConsumerGroup) -> None:
    if not member.is_proxied:
        member.connection.oneway(codes.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group.name})
