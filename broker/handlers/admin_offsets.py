"""Requests that read, copy and reset the progress of groups: 43, 45, 222, 223, 314.

A reset goes through the consumers, as before RocketMQ 5: the broker computes where each queue is to
go on, tells every member (220), and each sets itself there and reports it with its next offset.
"""

import asyncio
import logging

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.offsets import (
    GetConsumerStatusBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from ...protocol.command import OK, Command, Reply
from ...protocol.errors import Refusal
from ...protocol.headers.admin import ConsumerStatus, ResetOffset
from ...protocol.headers.groups import CloneGroupOffset
from ...store.store import MessageStore
from ..clients import Clients, ConsumerGroup, Member
from ..delays import Delays
from ..offsets import Offsets
from ..topics import Topics

log = logging.getLogger(__name__)

ASK_VERSION_MIN = 28  # V3_0_7_SNAPSHOT: clients before it know neither 220 nor 221
ASK_SECONDS = 5.0


class AdminOffsetHandlers:
    """Looks after offsets. `broker_name` is this broker's."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        offsets: Offsets,
        clients: Clients,
        delays: Delays,
        *,
        broker_name: str,
    ) -> None:
        self.store = store
        self.topics = topics
        self.offsets = offsets
        self.clients = clients
        self.delays = delays
        self.broker_name = broker_name

    def rows(self) -> list[Row]:
        return [
            Row(codes.GET_ALL_CONSUMER_OFFSET, None, self.on_all),
            Row(codes.GET_ALL_DELAY_OFFSET, None, self.on_delays),
            Row(codes.CLONE_GROUP_OFFSET, CloneGroupOffset, self.on_clone),
            Row(codes.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffset, self.on_reset),
            Row(codes.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatus, self.on_status),
        ]

    def on_all(self, header: None, command: Command, connection: Connection) -> Reply:
        return Reply(codes.SUCCESS, body=self.offsets.to_body().encode())

    def on_delays(self, header: None, command: Command, connection: Connection) -> Reply:
        return Reply(codes.SUCCESS, body=self.delays.to_body().encode())

    def on_clone(self, header: CloneGroupOffset, command: Command, connection: Connection) -> Reply:
        """Without `offline`, topics that the source no longer subscribes to stay out."""
        named = (header.topic or "").strip()
        names = [named] if named else self.offsets.topics_of(header.source)
        live = self.clients.consumer_group(header.source)
        if live is not None and live.subscriptions and not header.offline:
            names = [topic for topic in names if topic in live.subscriptions]
        for topic in names:
            if self.topics.get(topic) is None:
                continue
            for queue_id, offset in self.offsets.queues(topic, header.source).items():
                self.offsets.commit(topic, header.target, queue_id, offset)
        return OK

    def on_reset(self, header: ResetOffset, command: Command, connection: Connection) -> Reply:
        topic, name = header.topic, header.group
        config = self.topics.get(topic)
        if config is None:
            raise Refusal(
                codes.TOPIC_NOT_EXIST,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
            )
        table = {
            MessageQueue(topic, self.broker_name, queue_id): self._target(header, queue_id)
            for queue_id in range(config.write_queue_nums)
        }
        group = self.clients.consumer_group(name)
        if group is None:
            raise Refusal(
                codes.CONSUMER_NOT_ONLINE,
                "Consumer not online, so can not reset offset, "
                f"Group: {name} Topic: {topic} Timestamp: {header.timestamp_ms}",
            )
        _check_versions(group)
        fields = ResetOffset(name, topic, header.timestamp_ms, False).to_fields()
        body = ResetOffsetBody(table).encode()
        told = body if command.language != "CPP" else _for_c(table)
        for member in group.members:
            member.oneway(codes.RESET_CONSUMER_CLIENT_OFFSET, fields, told)
        return Reply(codes.SUCCESS, body=body)

    async def on_status(
        self, header: ConsumerStatus, command: Command, connection: Connection
    ) -> Reply:
        group = self.clients.consumer_group(header.group)
        if group is None:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{header.group}]",
            )
        _check_versions(group)
        wanted = (header.client_id or "").strip()
        fields = ConsumerStatus(header.topic, header.group).to_fields()
        asked = [
            (connection, member)
            for connection, member in group.members.items()
            if not wanted or member.client_id == wanted
        ]
        answers = await asyncio.gather(*(_ask(to, member, fields) for to, member in asked))
        found = GetConsumerStatusBody(consumer_table=dict(filter(None, answers)))
        return Reply(codes.SUCCESS, body=found.encode())

    def _target(self, header: ResetOffset, queue_id: int) -> int:
        """Where a queue is to go on; Refusal when the group never was there."""
        topic, store = header.topic, self.store
        consumed = self.offsets.get(topic, header.group, queue_id)
        if consumed == -1:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"THe consumer group <{header.group}> not exist",  # Java's spelling
            )
        if header.timestamp_ms == -1:
            target = store.max_offset(topic, queue_id)
        else:
            target = store.offset_at(topic, queue_id, header.timestamp_ms, False)
        target = max(0, target)
        return target if header.force or target < consumed else consumed


def _check_versions(group: ConsumerGroup) -> None:
    for member in group.members.values():
        if member.version < ASK_VERSION_MIN:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"the client does not support this feature. version={member.version}; "
                f"{ASK_VERSION_MIN} (V3_0_7_SNAPSHOT) is the first that does",
            )


async def _ask(
    connection: Connection, member: Member, fields: dict[str, str]
) -> tuple[str, dict[MessageQueue, int]] | None:
    """A member's client id and offsets; None when it didn't answer them."""
    try:
        answer = await connection.request(
            codes.GET_CONSUMER_STATUS_FROM_CLIENT, fields, b"", ASK_SECONDS
        )
        if answer.code != codes.SUCCESS or not answer.body:
            return None
        body = GetConsumerStatusBody.decode(answer.body)
    except (TimeoutError, ConnectionError, ValueError) as wrong:
        log.warning("no offsets from consumer %s: %s", member.client_id, wrong)
        return None
    return member.client_id, body.message_queue_table


def _for_c(table: dict[MessageQueue, int]) -> bytes:
    rows = [
        MessageQueueForC(queue.topic, queue.broker_name, queue.queue_id, offset)
        for queue, offset in table.items()
    ]
    return ResetOffsetBodyForC(rows).encode()
