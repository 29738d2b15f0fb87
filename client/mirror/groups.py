"""Consumer groups at the target: their settings, and their offsets translated.

A group's offset at the target is where it would be, had it read the copies. It is set while no
member of the group is connected there, and only forward: once consumers have moved, their own
progress counts.
"""

import logging
import re
from collections.abc import Callable

import msgspec

from ...protocol.bodies.body import MessageQueue
from ...protocol.names import SYSTEM_GROUPS, is_system_group
from ..errors import AerobeeError, BrokerError, ClientError
from .origin import GROUP
from .queue_copy import QueueCopy
from .side import Side
from .source import Source

log = logging.getLogger(__name__)


class GroupCopy:
    """Copies the groups whose names match `pattern`; `named` gives a group's name at the target."""

    def __init__(
        self,
        sides: tuple[Source, Side],
        pattern: re.Pattern[str],
        named: Callable[[str], str] = str,
    ) -> None:
        self._from, self._to = sides
        self._pattern = pattern
        self._named = named
        self._set: dict[tuple[str, MessageQueue], int] = {}  # the source's offsets that are done

    def matches(self, group: str) -> bool:
        """True if the pattern matches this group, which is neither a mirror's nor the system's."""
        is_own = group.startswith(GROUP) or group in SYSTEM_GROUPS or is_system_group(group)
        return not is_own and self._pattern.fullmatch(group) is not None

    async def copy_settings(self) -> int:
        """Make the groups that the target lacks; how many were made.

        ClientError, once all others are made, when some can't be.
        """
        groups = await self._from.groups()
        wanted = {self._named(name): each for name, each in groups.items() if self.matches(name)}
        for wrapper in (await self._to.groups()).values():
            for name in wrapper.subscription_group_table:
                wanted.pop(name, None)
        failures = []
        for name, config in wanted.items():
            try:
                await self._to.update_group(msgspec.structs.replace(config, group_name=name))
            except (BrokerError, ClientError) as wrong:
                failures.append(f"group {name} can't be made at the target: {wrong}")
        if failures:
            more = f"; and {len(failures) - 1} others" if len(failures) > 1 else ""
            raise ClientError(failures[0] + more)
        return len(wanted)

    async def copy_offsets(self, queues: dict[MessageQueue, QueueCopy]) -> int:
        """Set the offsets that have changed at the source; how many were set."""
        changed: dict[str, list[tuple[QueueCopy, int]]] = {}
        for (group, queue), offset in (await self._from.offsets(self.matches)).items():
            copy = queues.get(queue)
            if copy is not None and self._set.get((group, queue)) != offset:
                changed.setdefault(group, []).append((copy, offset))
        count = 0
        for group, moves in changed.items():
            try:
                count += await self._set_offsets(group, moves)
            except AerobeeError as wrong:
                log.warning("the offsets of group %s are not copied yet: %s", group, wrong)
        return count

    async def _set_offsets(self, group: str, moves: list[tuple[QueueCopy, int]]) -> int:
        named = self._named(group)
        if await self._to.consumer_connection(named) is not None:
            return 0
        count = 0
        for copy, offset in moves:
            translated = await copy.translate(offset)
            if translated is None:
                continue
            known = await self._to.committed(named, copy.target)
            if known is None or known < translated:
                await self._to.commit_for(named, copy.target, translated)
                count += 1
            if copy.offset >= offset:  # else it may mean a later one when more is copied
                self._set[group, copy.source] = offset
        return count
