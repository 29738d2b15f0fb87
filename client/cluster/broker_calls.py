"""Requests that brokers send to clients.

40 membership changed, 220 reset offsets, 221 report offsets, 307 running info, 309 consume one
message now. A request for a group that this client does not have is refused.
"""

import sys
import traceback
from collections.abc import Callable, Coroutine, Mapping
from types import FrameType

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.aio.server import table
from ...protocol.bodies.offsets import GetConsumerStatusBody, ResetOffsetBody
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.clients import (
    ConsumeMessageDirectly,
    ConsumerGroup,
    ConsumerRunningInfo,
)
from ...protocol.headers.groups import GroupTopic
from ..base.identity import monotonic
from .heartbeat import ConsumerMember


def table_of(
    consumers: Mapping[str, ConsumerMember], rebalance_soon: Callable[[], None]
) -> dict[int, Row]:
    """The request table of a client; `consumers` by group, read at each request."""

    def member(group: str) -> ConsumerMember:
        found = consumers.get(group)
        if found is None:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"consumer group {group} is not in this client; it has {sorted(consumers)}",
            )
        return found

    def on_ids_changed(header: ConsumerGroup, _: Command, __: Connection) -> Response:
        member(header.group)
        rebalance_soon()  # all groups of this client, as in Java
        return OK

    async def on_reset(header: GroupTopic, command: Command, _: Connection) -> Response:
        try:
            body = ResetOffsetBody.decode(command.body)
        except ValueError as wrong:
            raise Refusal(codes.INVALID_PARAMETER, str(wrong)) from wrong
        await member(header.group).reset_offsets(dict(body.offset_table))
        return OK

    def on_status(header: GroupTopic, _: Command, __: Connection) -> Response:
        offsets = member(header.group).offsets_of(header.topic or "")
        return Response(body=GetConsumerStatusBody(offsets).encode())

    def on_running_info(header: ConsumerRunningInfo, _: Command, __: Connection) -> Response:
        info = member(header.group).running_info()
        if header.jstack:
            info.jstack = "\n".join(map(_stack, sys._current_frames().items()))
        return Response(body=info.encode())

    def on_consume(
        header: ConsumeMessageDirectly, command: Command, _: Connection
    ) -> Coroutine[None, None, Response]:
        return _consume(member(header.group), command, header.broker_name)

    return table(
        (
            Row(codes.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroup, on_ids_changed),
            Row(codes.RESET_CONSUMER_CLIENT_OFFSET, GroupTopic, on_reset),
            Row(codes.GET_CONSUMER_STATUS_FROM_CLIENT, GroupTopic, on_status),
            Row(codes.GET_CONSUMER_RUNNING_INFO, ConsumerRunningInfo, on_running_info),
            Row(codes.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectly, on_consume),
        )
    )


async def _consume(member: ConsumerMember, command: Command, broker_name: str | None) -> Response:
    began = monotonic()
    result = await member.consume_directly(command, broker_name)
    result.spent_time_mills = round((monotonic() - began) * 1000)
    return Response(body=result.encode())


def _stack(thread: tuple[int, FrameType]) -> str:
    name, frame = thread
    return f"thread {name}\n{''.join(traceback.format_stack(frame))}"
