"""Pulls of static topics: finding the messages of a logical queue, and translating the response.

The broker that leads a logical queue serves all of it. Items in its own queues it reads as usual;
for items on another broker, from which the queue was moved, it forwards the pull. A response has
logical offsets, and `offsetDelta`, which turns a message's physical offset into a logical one.
"""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec

from ...protocol import codes
from ...protocol.aio.connection import Connection
from ...protocol.bodies.topic_queue_mapping import LogicQueueMappingItem
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.pull import (
    COMMIT_OFFSET,
    SUSPEND,
    Page,
    PullMessage,
    PullMessageResponse,
)
from ...protocol.queues.logical_queues import (
    decided,
    end_of,
    has_end,
    item_at,
    next_item,
    to_logical,
    to_physical,
)
from ..groups.offsets import Offsets
from ..runtime.forwarding import Forwarding
from ..topics.static_mappings import Items, StaticTopics
from .handlers import OFFSET_RESET, PullHandlers

ANSWERS = frozenset(
    (
        codes.SUCCESS,
        codes.PULL_NOT_FOUND,
        codes.PULL_RETRY_IMMEDIATELY,
        codes.PULL_OFFSET_MOVED,
    )
)
# How long a pull waits whose next messages are in an item that can't be read yet. RocketMQ answers
# at once, so its clients pull again without a pause until the remapping has ended.
UNDECIDED_MS = 1_000
Answer = Response | bytes | None


@dataclass(frozen=True, slots=True)
class Reading:
    """A read in one item of a logical queue, from a physical offset on.

    Where it `is_followed`, this broker is a slave of the item's: its end may only be the slave's
    progress, so that no reader is sent on because of it.
    """

    items: Items
    item: LogicQueueMappingItem
    is_followed: bool

    def respond(self, code: int, offset: int, found: PullMessageResponse) -> int:
        """Turn the response to a pull at this physical offset into a logical one; its code."""
        item, moved = self.item, None
        if code != codes.SUCCESS and not self.is_followed:
            code, moved = self._revised(code, offset, found)
        item = moved or item
        following = found.next_offset
        if has_end(item):
            following = min(following, item.end_offset)
        most = max(to_logical(item, found.max_offset), end_of(self.items[-1]))
        found.next_offset = to_logical(item, following)
        found.min_offset = to_logical(item, found.min_offset)
        found.max_offset = most
        found.offset_delta = item.logic_offset - item.start_offset
        return code

    def _revised(
        self, code: int, offset: int, found: PullMessageResponse
    ) -> tuple[int, LogicQueueMappingItem | None]:
        """The code for a pull without messages, and the next item when this one is at its end.

        The rules are RocketMQ's; the offsets in `found` are still physical."""
        items, item = self.items, self.item
        is_first = item.gen == decided(items)[0].gen
        is_last = item.gen == items[-1].gen
        if offset < found.min_offset:
            found.next_offset = found.min_offset
            return codes.PULL_OFFSET_MOVED if is_first else codes.PULL_RETRY_IMMEDIATELY, None
        if is_last and not is_first:
            if offset > found.max_offset and code == codes.PULL_OFFSET_MOVED:
                found.next_offset = found.max_offset
            return code, None
        if offset < found.max_offset:
            return code, None
        if offset > found.max_offset and code == codes.PULL_OFFSET_MOVED:
            found.next_offset = found.max_offset
        following = next_item(items, item)
        if following is None:
            return codes.PULL_NOT_FOUND, None
        start = following.start_offset
        found.next_offset = found.min_offset = found.max_offset = start
        return codes.PULL_RETRY_IMMEDIATELY, following


class PhysicalPull(PullMessage):
    """A pull of a logical queue, as a pull of the physical queue here that has the messages."""

    logical: PullMessage = None  # type: ignore[assignment]
    reading: Reading = None  # type: ignore[assignment]

    def found(
        self,
        request: Command,
        page: Page,
        topic_sys_flag: int,
        group_sys_flag: int,
        suggested_broker_id: int = 0,
    ) -> Response:
        answer = PullMessageResponse.of(page, topic_sys_flag, group_sys_flag, suggested_broker_id)
        self.reading.respond(codes.SUCCESS, self.offset, answer)
        return Response(codes.SUCCESS, answer.to_fields(), "FOUND", page.records)

    def missed(self, code: int, answer: PullMessageResponse, remark: str) -> Response:
        if remark == OFFSET_RESET:  # that offset counts, wherever the reader is
            self.reading.respond(codes.SUCCESS, self.offset, answer)
        else:
            code = self.reading.respond(code, self.offset, answer)
        return Response(code, answer.to_fields(), remark)


@dataclass(slots=True, eq=False)
class StaticPulls:
    """Serves the pulls of static topics with the `pulls` of all others."""

    _pulls: PullHandlers
    _static: StaticTopics
    _offsets: Offsets
    _forwarding: Forwarding

    def has(self, header: PullMessage) -> bool:
        """True if the pull is of a logical queue."""
        return header.lo is not False and header.topic in self._static.table

    def on_pull(
        self, header: PullMessage, command: Command, connection: Connection
    ) -> Answer | Coroutine[Any, Any, Response]:
        items = self._items(header)
        flags = header.sys_flag
        if flags & COMMIT_OFFSET and header.commit_offset >= 0 and self._pulls.takes_progress:
            self._commit(header, items)
        item = item_at(items, header.offset)
        if item is None:
            raise self._not_leader(header)
        if item.bname == self._static.broker_name:
            fields = msgspec.structs.asdict(self._physical(header, items, item))
            physical = PhysicalPull(**fields, logical=header, reading=self._reading(items, item))
            return self._pulls.on_pull(physical, command, connection)
        leader = msgspec.structs.replace(header, queue_id=items[-1].queue_id)
        self._pulls.check(leader, command, connection)
        return self._from_elsewhere(header, items, item, command.code)

    def recheck(self, header: PullMessage) -> None:
        """Give a pull that waited the items that its logical queue has now; Refusal once the queue
        has been moved."""
        if isinstance(header, PhysicalPull):
            items = self._items(header.logical)
            header.reading = self._reading(items, header.reading.item)

    # --- inside ---------------------------------------------------------------------------------

    def _items(self, header: PullMessage) -> Items:
        """The items of the queue; Refusal when this broker doesn't lead it."""
        if header.topic in self._static.table:
            items = self._static.led(header.topic, header.queue_id)
            if items is not None:
                return items
        raise self._not_leader(header)

    def _not_leader(self, header: PullMessage) -> Refusal:
        return Refusal(
            codes.NOT_LEADER_FOR_QUEUE,
            f"{header.topic}-{header.queue_id} cannot find mapping item in request process of "
            f"current broker {self._static.broker_name}",
        )

    def _reading(self, items: Items, item: LogicQueueMappingItem) -> Reading:
        is_here = item.bname == self._static.broker_name
        return Reading(items, item, is_followed=is_here and self._pulls.config.is_slave)

    def _physical(
        self, header: PullMessage, items: Items, item: LogicQueueMappingItem
    ) -> PullMessage:
        """The pull of the item's own queue: one that commits nothing, and waits only where no
        other item has what follows."""
        flags, suspend_ms = header.sys_flag & ~COMMIT_OFFSET, header.suspend_ms
        if next_item(items, item) is not None:
            flags &= ~SUSPEND
        elif item.gen != items[-1].gen:
            suspend_ms = min(suspend_ms, UNDECIDED_MS)
        messages = header.max_messages
        if has_end(item):
            messages = min(messages, item.end_offset - item.start_offset)
        return msgspec.structs.replace(
            header,
            queue_id=item.queue_id,
            offset=to_physical(item, header.offset),
            max_messages=messages,
            sys_flag=flags,
            suspend_ms=suspend_ms,
            broker_name=item.bname,
            lo=False,
        )

    async def _from_elsewhere(
        self, header: PullMessage, items: Items, item: LogicQueueMappingItem, code: int
    ) -> Response:
        physical = self._physical(header, items, item)
        answer = await self._forwarding.request(item.bname or "", code, physical)
        if answer.code not in ANSWERS:
            raise self._forwarding.refusal(item.bname or "", code, answer)
        found = answer.header(PullMessageResponse)
        code = self._reading(items, item).respond(answer.code, physical.offset, found)
        records = [answer.body] if answer.body else []
        return Response(code, found.to_fields(), answer.remark, records)

    def _commit(self, header: PullMessage, items: Items) -> None:
        """Commit the progress that comes with a pull, in the item that has this offset.

        RocketMQ keeps a logical offset as the leader's physical one here, from which the group
        would skip messages once its queue is read by another member. An offset in an item of
        another broker is left to UPDATE_CONSUMER_OFFSET, which clients send as well.
        """
        item = item_at(items, header.commit_offset)
        if item is not None and item.bname == self._static.broker_name:
            offset = max(0, to_physical(item, header.commit_offset))
            self._offsets.commit(header.topic, header.group, item.queue_id, offset)
