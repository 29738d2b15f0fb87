"""Offsets of static topics: 14, 15, 29, 30, 31, 32 for logical queues.

The broker that leads a logical queue answers for all of it. For the part in an item on another
broker it asks that one, with `lo=false`: queue ids and offsets are physical between brokers.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from ...protocol import codes
from ...protocol.bodies.topic_queue_mapping import LogicQueueMappingItem
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffset,
    QueueAddress,
    SearchOffset,
    TimestampResponse,
    UpdateConsumerOffset,
)
from ...protocol.queues.logical_queues import (
    decided,
    item_at,
    to_logical,
    to_logical_within,
    to_physical,
)
from ...store.engine.store import MessageStore
from ..runtime.forwarding import Forwarding
from ..topics.static_mappings import Items, StaticTopics
from ..topics.static_targets import not_leader
from .offsets import Offsets

LAST = (1 << 63) - 1  # a logical offset behind all messages
Answer = Response | Coroutine[Any, Any, Response]
Header = QueryConsumerOffset | UpdateConsumerOffset | QueueAddress | SearchOffset
Address = TypeVar("Address", QueryConsumerOffset, UpdateConsumerOffset, QueueAddress, SearchOffset)


@dataclass(slots=True, eq=False)
class StaticOffsets:
    """Answers for static topics what `OffsetHandlers` answers for all others."""

    store: MessageStore
    static: StaticTopics
    offsets: Offsets
    forwarding: Forwarding

    def has(self, header: Header) -> bool:
        """True if the request is about a logical queue, so that it is answered here."""
        return header.topic in self.static.table and header.lo is not False

    def on_query(
        self, header: QueryConsumerOffset, answer: Callable[[QueryConsumerOffset], Answer]
    ) -> Answer:
        """Answer for a logical queue. `answer` does so for a queue that is not logical."""
        items = self._items(header)
        if len(items) == 1 and items[0].logic_offset == 0:
            return answer(_at(header, items[0]))
        return self._query(header, items)

    def on_update(
        self, header: UpdateConsumerOffset, answer: Callable[[UpdateConsumerOffset], Answer]
    ) -> Answer:
        """Update the offset in a logical queue. `answer` is as in `on_query`."""
        items = self._items(header)
        item = self._item_at(header, items, header.commit_offset)
        physical = msgspec.structs.replace(
            _at(header, item), commit_offset=max(0, to_physical(item, header.commit_offset))
        )
        if self._is_here(item):
            return answer(physical)
        return self._passed_on(item, codes.UPDATE_CONSUMER_OFFSET, physical)

    async def on_search(self, header: SearchOffset) -> Response:
        """Search all items as one queue. RocketMQ takes the last item's answer from elsewhere, and
        answers 0 where this answers that there is none."""
        items = decided(self._items(header))
        if not items:
            return _offset(-1)
        upper = header.boundary.upper() == "UPPER"
        if upper:
            for item in reversed(items):
                first_ms = await self._earliest_ms(header.topic, item)
                if 0 <= first_ms <= header.timestamp_ms:
                    return _offset(to_logical(item, await self._search(header, item)))
            return _offset(to_logical(items[0], await self._search(header, items[0])))
        for item in items[:-1]:
            found = await self._search(header, item)
            if found < await self._max(header.topic, item):
                return _offset(to_logical(item, found))
        return _offset(to_logical(items[-1], await self._search(header, items[-1])))

    async def on_max(self, header: QueueAddress) -> Response:
        # RocketMQ asks for the leader's queue id, also where another item is the last to be read.
        item = self._item_at(header, self._items(header), LAST)
        return _offset(to_logical(item, await self._max(header.topic, item)))

    async def on_min(self, header: QueueAddress) -> Response:
        item = self._item_at(header, self._items(header), 0)
        if self._is_here(item):
            physical = self.store.min_offset(header.topic, item.queue_id)
        else:
            physical = await self._asked_offset(item, codes.GET_MIN_OFFSET, _at(header, item))
        return _offset(to_logical_within(item, physical))

    async def on_earliest(self, header: QueueAddress) -> Response:
        # RocketMQ asks for the logical queue's id there, which may be another queue's.
        item = self._item_at(header, self._items(header), 0)
        found = await self._earliest_ms(header.topic, item)
        return Response(codes.SUCCESS, TimestampResponse(found).to_fields())

    # --- inside ---------------------------------------------------------------------------------

    def _items(self, header: Header) -> Items:
        items = self.static.led(header.topic, header.queue_id)
        if items is None:
            raise not_leader(header.topic, header.queue_id, self.static.broker_name)
        return items

    def _item_at(self, header: Header, items: Items, offset: int) -> LogicQueueMappingItem:
        item = item_at(items, offset)
        if item is None:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"logical queue {header.queue_id} of topic {header.topic} has no offset yet: its "
                "remapping is under way (remappingStaticTopic)",
            )
        return item

    def _is_here(self, item: LogicQueueMappingItem) -> bool:
        return item.bname == self.static.broker_name

    async def _query(self, header: QueryConsumerOffset, items: Items) -> Response:
        """The group's progress in the newest item in which it has one."""
        for item in reversed(items):
            if self._is_here(item):
                offset = self.offsets.get(header.topic, header.group, item.queue_id)
            else:
                there = msgspec.structs.replace(_at(header, item), zero_if_missing=False)
                offset = await self._progress(item, there)
            if offset >= 0:
                return _offset(to_logical(item, offset))
        raise Refusal(codes.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first")

    async def _progress(self, item: LogicQueueMappingItem, header: QueryConsumerOffset) -> int:
        code, broker = codes.QUERY_CONSUMER_OFFSET, item.bname or ""
        answer = await self.forwarding.request(broker, code, header)
        if answer.code == codes.QUERY_NOT_FOUND:
            return -1
        if answer.code != codes.SUCCESS:
            raise self.forwarding.refusal(broker, code, answer)
        return answer.header(OffsetResponse).offset

    async def _search(self, header: SearchOffset, item: LogicQueueMappingItem) -> int:
        if self._is_here(item):
            upper = header.boundary.upper() == "UPPER"
            return self.store.offset_at(header.topic, item.queue_id, header.timestamp_ms, upper)
        there = _at(header, item)
        return await self._asked_offset(item, codes.SEARCH_OFFSET_BY_TIMESTAMP, there)

    async def _max(self, topic: str, item: LogicQueueMappingItem) -> int:
        if self._is_here(item):
            return self.store.max_offset(topic, item.queue_id)
        header = QueueAddress(topic, item.queue_id, item.bname, lo=False)
        return await self._asked_offset(item, codes.GET_MAX_OFFSET, header)

    async def _earliest_ms(self, topic: str, item: LogicQueueMappingItem) -> int:
        if self._is_here(item):
            return self.store.earliest_store_ms(topic, item.queue_id)
        header = QueueAddress(topic, item.queue_id, item.bname, lo=False)
        answer = await self._asked(item, codes.GET_EARLIEST_MSG_STORETIME, header)
        return answer.header(TimestampResponse).timestamp_ms

    async def _asked_offset(self, item: LogicQueueMappingItem, code: int, header: Header) -> int:
        return (await self._asked(item, code, header)).header(OffsetResponse).offset

    async def _asked(self, item: LogicQueueMappingItem, code: int, header: Header) -> Command:
        """A broker's response about its own queue; Refusal when it declines."""
        answer = await self.forwarding.request(item.bname or "", code, header)
        if answer.code != codes.SUCCESS:
            raise self.forwarding.refusal(item.bname or "", code, answer)
        return answer

    async def _passed_on(self, item: LogicQueueMappingItem, code: int, header: Header) -> Response:
        answer = await self.forwarding.request(item.bname or "", code, header)
        return Response(answer.code, remark=answer.remark)


def _at(header: Address, item: LogicQueueMappingItem) -> Address:
    """The same for the item's own queue."""
    return msgspec.structs.replace(header, queue_id=item.queue_id, broker_name=item.bname, lo=False)


def _offset(offset: int) -> Response:
    return Response(codes.SUCCESS, OffsetResponse(offset).to_fields())
