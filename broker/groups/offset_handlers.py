"""Requests about a group's progress and a queue's bounds: 14, 15, 29, 30, 31, 32."""

from dataclasses import dataclass, field

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffset,
    QueueAddress,
    SearchOffset,
    TimestampResponse,
    UpdateConsumerOffset,
)
from ...store.engine.store import MessageStore
from ..access import gates, needs
from ..runtime.forwarding import Forwarding
from ..topics.topics import Topics
from .groups import Groups
from .offsets import Offsets
from .static_offset_handlers import Answer, StaticOffsets


@dataclass(slots=True, eq=False)
class OffsetHandlers:
    """Answers about offsets."""

    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: Offsets
    forwarding: Forwarding
    static: StaticOffsets = field(init=False)

    def __post_init__(self) -> None:
        static = self.topics.static
        self.static = StaticOffsets(self.store, static, self.offsets, self.forwarding)

    def rows(self) -> list[Row]:
        return [
            Row(codes.QUERY_CONSUMER_OFFSET, QueryConsumerOffset, self.on_query, needs.OFFSET_READ),
            Row(
                codes.UPDATE_CONSUMER_OFFSET,
                UpdateConsumerOffset,
                self.on_update,
                needs.OFFSET_UPDATE,
                gates.PROGRESS,
            ),
            Row(codes.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffset, self.on_search, needs.TOPIC_GET),
            Row(codes.GET_MAX_OFFSET, QueueAddress, self.on_max, needs.TOPIC_GET),
            Row(codes.GET_MIN_OFFSET, QueueAddress, self.on_min, needs.TOPIC_GET),
            Row(codes.GET_EARLIEST_MSG_STORETIME, QueueAddress, self.on_earliest, needs.TOPIC_GET),
        ]

    def on_query(
        self, header: QueryConsumerOffset, command: Command, connection: Connection
    ) -> Answer:
        if self.static.has(header):
            return self.static.on_query(header, lambda one: self.on_query(one, command, connection))
        offset = self.offsets.get(header.topic, header.group, header.queue_id)
        if offset >= 0:
            return _offset(offset)
        if not header.zero_if_missing:
            raise Refusal(
                codes.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first"
            )
        # A young, small queue is read from its start, so that no first message is missed: one whose
        # entry 0 is there, and in memory.
        topic, queue_id = header.topic, header.queue_id
        if (
            self.store.min_offset(topic, queue_id) == 0
            and self.store.max_offset(topic, queue_id) > 0
            and self.store.in_memory(topic, queue_id, 0)
        ):
            return _offset(0)
        raise Refusal(
            codes.QUERY_NOT_FOUND,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )

    def on_update(
        self, header: UpdateConsumerOffset, command: Command, connection: Connection
    ) -> Answer:
        if self.static.has(header):
            return self.static.on_update(
                header, lambda one: self.on_update(one, command, connection)
            )
        # An offset alone creates no group, not even with autoCreateSubscriptionGroup: a consumer's
        # heartbeat or its first pull did.
        if self.groups.get(header.group) is None:
            raise Refusal(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} not exist! Create it"
            )
        if self.topics.get(header.topic) is None:
            raise Refusal(codes.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist! Create it")
        if (header.topic, header.group, header.queue_id) in self.offsets.resets:
            return Response(codes.SUCCESS, remark="Offset has been previously reset")
        self.offsets.commit(header.topic, header.group, header.queue_id, header.commit_offset)
        return OK

    def on_search(self, header: SearchOffset, command: Command, connection: Connection) -> Answer:
        if self.static.has(header):
            return self.static.on_search(header)
        upper = header.boundary.upper() == "UPPER"
        found = self.store.offset_at(header.topic, header.queue_id, header.timestamp_ms, upper)
        return _offset(found)

    def on_max(self, header: QueueAddress, command: Command, connection: Connection) -> Answer:
        if self.static.has(header):
            return self.static.on_max(header)
        return _offset(self.store.max_offset(header.topic, header.queue_id))

    def on_min(self, header: QueueAddress, command: Command, connection: Connection) -> Answer:
        if self.static.has(header):
            return self.static.on_min(header)
        return _offset(self.store.min_offset(header.topic, header.queue_id))

    def on_earliest(self, header: QueueAddress, command: Command, connection: Connection) -> Answer:
        if self.static.has(header):
            return self.static.on_earliest(header)
        found = self.store.earliest_store_ms(header.topic, header.queue_id)
        return Response(codes.SUCCESS, TimestampResponse(found).to_fields())


def _offset(offset: int) -> Response:
    return Response(codes.SUCCESS, OffsetResponse(offset).to_fields())
