"""Requests that read, copy and reset the progress of groups: 43, 45, 222, 223, 308, 314.

With useServerSideResetOffset the broker itself resets: it sets the offset, and the next pull of the
group is told to continue there. So it works for offline groups, too, and goes forward without
isForce, as in RocketMQ 5. Without it the consumers reset, as in RocketMQ 4: the broker computes the
new position of each queue, without isForce never forward, and sends it to every member (220). Each
member applies it and reports it with its next offset.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.aio.slices import LongResponse, Slices, reply_of
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.offsets import (
    GetConsumerStatusBody,
    MessageQueueForC,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.admin import ConsumerStatus, CorrectionOffset, ResetOffset
from ...protocol.headers.groups import CloneGroupOffset
from ...store.engine.store import MessageStore
from ..access import gates, needs
from ..groups.clients import Clients, ConsumerGroup, Member
from ..groups.groups import Groups
from ..groups.offsets import Offsets
from ..scheduled.delays import Delays
from ..settings.config import BrokerConfig
from ..topics.topics import Topics

log = logging.getLogger(__name__)

ASK_VERSION_MIN = 28  # V3_0_7_SNAPSHOT: clients before it know neither 220 nor 221
ASK_SECONDS = 5.0
OFFSET_MAX = (1 << 63) - 1


@dataclass(slots=True, eq=False)
class AdminOffsetHandlers:
    """Manages offsets. `mark((topic, queue))` wakes the pulls that wait there."""

    config: BrokerConfig
    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: Offsets
    clients: Clients
    delays: Delays
    mark: Callable[[tuple[str, int]], None]
    slices: Slices

    def rows(self) -> list[Row]:
        return [
            Row(codes.GET_ALL_CONSUMER_OFFSET, None, self.on_all, needs.OUR_CLUSTER_GET),
            Row(codes.GET_ALL_DELAY_OFFSET, None, self.on_delays, needs.OUR_CLUSTER_GET),
            Row(
                codes.CLONE_GROUP_OFFSET,
                CloneGroupOffset,
                self.on_clone,
                needs.OFFSETS_CLONE,
                gates.RESET,
            ),
            Row(
                codes.INVOKE_BROKER_TO_RESET_OFFSET,
                ResetOffset,
                self.on_reset,
                needs.GROUP_IN_TOPIC_UPDATE,
                gates.RESET,
            ),
            Row(
                codes.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                ConsumerStatus,
                self.on_status,
                needs.GROUP_IN_TOPIC_GET,
            ),
            Row(
                codes.QUERY_CORRECTION_OFFSET,
                CorrectionOffset,
                self.on_correction,
                needs.OFFSETS_COMPARE,
            ),
        ]

    def on_all(self, header: None, command: Command, connection: Connection) -> LongResponse:
        return self.slices.respond(reply_of(self.offsets.text()))

    def on_delays(self, header: None, command: Command, connection: Connection) -> Response:
        return Response(codes.SUCCESS, body=self.delays.to_body().encode())

    def on_clone(
        self, header: CloneGroupOffset, command: Command, connection: Connection
    ) -> LongResponse:
        return self.slices.respond(self._clone(header))

    def on_reset(self, header: ResetOffset, command: Command, connection: Connection) -> Response:
        if self.config.use_server_side_reset_offset:
            return self._reset_here(header)
        return self._reset_through_members(header, command)

    async def on_status(
        self, header: ConsumerStatus, command: Command, connection: Connection
    ) -> Response:
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
            member
            for member in group.members.values()
            if not member.is_proxied and (not wanted or member.client_id == wanted)
        ]
        answers = await asyncio.gather(*(_ask(member, fields) for member in asked))
        found = GetConsumerStatusBody(consumer_table=dict(filter(None, answers)))
        return Response(codes.SUCCESS, body=found.encode())

    def on_correction(
        self, header: CorrectionOffset, command: Command, connection: Connection
    ) -> LongResponse:
        return self.slices.respond(self._correction(header))

    # --- inside ---------------------------------------------------------------------------------

    def _clone(self, header: CloneGroupOffset) -> Generator[object, None, Response]:
        """Without `offline`, topics that the source no longer subscribes to stay out."""
        named = (header.topic or "").strip()
        names = [named] if named else self.offsets.topics_of(header.source)
        live = self.clients.consumer_group(header.source)
        if live is not None and live.subscriptions and not header.offline:
            names = [topic for topic in names if live.reads(topic)]
        for topic in names:
            if self.topics.get(topic) is not None:
                self.offsets.clone(topic, header.source, header.target)
            yield None
        return OK

    def _correction(self, header: CorrectionOffset) -> Generator[object, None, Response]:
        """The least offset of all groups in each queue; where the group to compare with is behind
        that already, the greatest number there is."""
        topic = header.topic
        left_out = set((header.filter_groups or "").split(","))
        least: dict[int, int] = {}
        for group in self.offsets.groups_of(topic):
            if group in left_out:
                continue
            for queue_id, offset in self.offsets.queues(topic, group).items():
                if offset >= self.store.min_offset(topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, OFFSET_MAX))
            yield None
        for queue_id, offset in self.offsets.queues(topic, header.compare_group).items():
            if least.get(queue_id, OFFSET_MAX) > offset:
                least[queue_id] = OFFSET_MAX
        return Response(codes.SUCCESS, body=QueryCorrectionOffsetBody(least).encode())

    def _reset_here(self, header: ResetOffset) -> Response:
        topic, group = header.topic, header.group
        config = self.topics.get(topic)
        if config is None:
            raise Refusal(codes.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if self.groups.get(group) is None:
            raise Refusal(codes.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        queues: Iterable[int] = range(config.read_queue_nums)
        if header.queue_id >= config.read_queue_nums:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic {topic} has "
                f"{config.read_queue_nums} queues; refresh the route",
            )
        if header.queue_id >= 0:
            queues = [header.queue_id]
        wanted = {queue_id: self._wanted(header, queue_id) for queue_id in queues}
        for queue_id, offset in wanted.items():
            self.offsets.reset(topic, group, queue_id, offset)
            self.mark((topic, queue_id))
        log.info("group %s goes on in topic %s at %s, by queue", group, topic, wanted)
        table = {MessageQueue(topic, self.config.broker_name, q): wanted[q] for q in wanted}
        return Response(codes.SUCCESS, body=ResetOffsetBody(table).encode())

    def _wanted(self, header: ResetOffset, queue_id: int) -> int:
        """The offset that a reset sets in a queue; Refusal when there is no such offset."""
        topic, target = header.topic, header.offset
        if header.queue_id >= 0 and target is not None and target != -1:
            least = self.store.min_offset(topic, queue_id)
            most = self.store.max_offset(topic, queue_id)
            if not least <= target <= most + 1:
                raise Refusal(
                    codes.SYSTEM_ERROR,
                    f"Target offset {target} not in consume queue range [{least}-{most}]",
                )
            return target
        return self._at(topic, queue_id, header.timestamp_ms)

    def _reset_through_members(self, header: ResetOffset, command: Command) -> Response:
        topic, name = header.topic, header.group
        config = self.topics.get(topic)
        if config is None:
            raise Refusal(
                codes.TOPIC_NOT_EXIST,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
            )
        table = {
            MessageQueue(topic, self.config.broker_name, queue_id): self._target(header, queue_id)
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
        for member in group.members.values():
            if member.is_proxied:
                continue  # it has no offsets: what it pops goes by the broker's
            member.connection.oneway(codes.RESET_CONSUMER_CLIENT_OFFSET, fields, told)
        return Response(codes.SUCCESS, body=body)

    def _target(self, header: ResetOffset, queue_id: int) -> int:
        """The offset at which a queue is to go on; Refusal when the group never read it."""
        topic = header.topic
        consumed = self.offsets.get(topic, header.group, queue_id)
        if consumed == -1:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"THe consumer group <{header.group}> not exist",  # Java's spelling
            )
        target = self._at(topic, queue_id, header.timestamp_ms)
        return target if header.force or target < consumed else consumed

    def _at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first offset stored at this time or later; the end for -1, as for all below 0."""
        if timestamp_ms < 0:
            return max(0, self.store.max_offset(topic, queue_id))
        return max(0, self.store.offset_at(topic, queue_id, timestamp_ms, False))


def _check_versions(group: ConsumerGroup) -> None:
    for member in group.members.values():
        if member.version < ASK_VERSION_MIN:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"the client does not support this feature. version={member.version}; "
                f"{ASK_VERSION_MIN} (V3_0_7_SNAPSHOT) is the first that does",
            )


async def _ask(
    member: Member, fields: dict[str, str]
) -> tuple[str, dict[MessageQueue, int]] | None:
    """A member's client id and offsets; None when it didn't answer them."""
    try:
        answer = await member.connection.request(
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
