"""Requests that search messages: QUERY_MESSAGE (12), VIEW_MESSAGE_BY_ID (33) and a consume
queue's entries, QUERY_CONSUME_QUEUE (321)."""

from collections.abc import Generator
from dataclasses import dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.aio.slices import LongResponse, Slices
from ...protocol.bodies.queues import ConsumeQueueData, QueryConsumeQueueResponseBody
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.topics import (
    QueryConsumeQueue,
    QueryMessage,
    QueryMessageResponse,
    ViewMessage,
)
from ...store.engine.store import MessageStore
from ..access import needs
from ..groups.clients import Clients
from ..settings.config import BrokerConfig

MESSAGES_MAX = 64  # RocketMQ's maxMsgsNumBatch
RESPONSE_BYTES_MAX = 15 << 20  # a frame ends at 16 MiB
ENTRIES_MAX = 10_000  # of a consume queue, in one answer
KEYS_AT_ONCE = 256  # messages whose keys a query puts into the index in one loop iteration

WHY_NOT_THERE = "no message begins there, or it was deleted by now (fileReservedTime)"


@dataclass(slots=True, eq=False)
class QueryHandlers:
    """Searches messages."""

    config: BrokerConfig
    store: MessageStore
    clients: Clients
    slices: Slices

    def rows(self) -> list[Row]:
        return [
            Row(codes.QUERY_MESSAGE, QueryMessage, self.on_query, needs.TOPIC_READ, bulk=True),
            Row(
                codes.VIEW_MESSAGE_BY_ID,
                ViewMessage,
                self.on_view,
                needs.view(self.store.message_at),
                bulk=True,
            ),
            Row(
                codes.QUERY_CONSUME_QUEUE,
                QueryConsumeQueue,
                self.on_consume_queue,
                needs.CONSUMERS_OF_TOPIC_GET,
            ),
        ]

    def on_query(
        self, header: QueryMessage, command: Command, connection: Connection
    ) -> LongResponse:
        return self.slices.respond(self._query(header), counted=False)

    def _query(self, header: QueryMessage) -> Generator[object, None, Response]:
        """The steps of a search by key: first the keys of earlier messages go into the index."""
        left = self.store.index_backlog
        while left > 0:
            done = self.store.index_pending(KEYS_AT_ONCE)
            left -= done
            if not done:
                break
            yield None
        wanted = header.max_messages
        if header.unique_key == "true":
            wanted = self.config.default_query_max_num
        records: list[bytes] = []
        size = 0
        found = yield from self.store.query_in_parts(
            header.topic, header.key, header.begin_ms, header.end_ms, min(wanted, MESSAGES_MAX)
        )
        for record in found:
            size += len(record)
            if records and size > RESPONSE_BYTES_MAX:
                break
            records.append(record)
        if not records:
            raise Refusal(
                codes.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                QueryMessageResponse(0, 0).to_fields(),
            )
        answer = QueryMessageResponse(*self.store.index_end)
        return Response(codes.SUCCESS, answer.to_fields(), body=records)

    def on_view(self, header: ViewMessage, command: Command, connection: Connection) -> Response:
        data = self.store.message_at(header.offset)
        if data is None:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"can not find message by the offset, {header.offset}: {WHY_NOT_THERE}",
            )
        return Response(codes.SUCCESS, body=data)

    def on_consume_queue(
        self, header: QueryConsumeQueue, command: Command, connection: Connection
    ) -> Response:
        topic, queue_id, index = header.topic, header.queue_id, header.index
        if queue_id not in self.store.queues(topic):
            raise Refusal(codes.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        body = QueryConsumeQueueResponseBody()
        body.min_queue_index = self.store.min_offset(topic, queue_id)
        body.max_queue_index = self.store.max_offset(topic, queue_id)
        if header.group is not None:
            group = self.clients.consumer_group(header.group)
            body.subscription_data = None if group is None else group.subscriptions.get(topic)
            offline = f"{header.group}@{topic} is not online!"
            body.filter_data = offline if body.subscription_data is None else "null"
        if not body.min_queue_index <= index < body.max_queue_index:
            return Response(
                codes.SUCCESS, remark=f"Index {index} of {queue_id}@{topic} is not exist!"
            )
        count = min(max(0, header.count), ENTRIES_MAX)
        body.queue_data = [
            ConsumeQueueData(log_offset, size, tags_code)
            for log_offset, size, tags_code in self.store.entries(topic, queue_id, index, count)
        ]
        return Response(codes.SUCCESS, body=body.encode())
