"""Requests that are passed on to a consumer and answered with its response: 307 and 309."""

from dataclasses import KW_ONLY, dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.clients import ConsumeMessageDirectly, ConsumerRunningInfo
from ...protocol.message.message_id import parse_offset_message_id
from ...store.engine.store import MessageStore
from ..access import needs
from ..groups.clients import Clients
from ..groups.groups import Groups
from ..pull.query_handlers import WHY_NOT_THERE
from ..topics.topics import Topics

CALL_VERSION_MIN = 62  # V3_1_8_SNAPSHOT: the first clients that answer such requests
CALL_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class AdminClientHandlers:
    """Asks consumers. `broker_name` is this broker's."""

    store: MessageStore
    topics: Topics
    groups: Groups
    clients: Clients
    _: KW_ONLY
    broker_name: str

    def rows(self) -> list[Row]:
        return [
            Row(
                codes.GET_CONSUMER_RUNNING_INFO,
                ConsumerRunningInfo,
                self.on_running_info,
                needs.CONSUMERS_GET,
            ),
            Row(
                codes.CONSUME_MESSAGE_DIRECTLY,
                ConsumeMessageDirectly,
                self.on_directly,
                needs.consume_directly(self.store.message_at),
            ),
        ]

    async def on_running_info(
        self, header: ConsumerRunningInfo, command: Command, connection: Connection
    ) -> Response:
        return await self._call(command, header.group, header.client_id, command.body or b"")

    async def on_directly(
        self, header: ConsumeMessageDirectly, command: Command, connection: Connection
    ) -> Response:
        """Sends the message as its record; the headers tell the client how to consume it."""
        try:
            _, offset = parse_offset_message_id(header.msg_id or "")
        except ValueError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, f"{wrong}; name the message by its id") from None
        record = self.store.message_at(offset)
        if record is None:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"can not find message by the offset, {offset}: {WHY_NOT_THERE}",
            )
        fields = {"brokerName": self.broker_name}
        topic = self.topics.get(header.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self.groups.find_quietly(header.group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        return await self._call(command, header.group, header.client_id or "", record, fields)

    async def _call(
        self,
        command: Command,
        group: str,
        client_id: str,
        body: bytes,
        more: dict[str, str] | None = None,
    ) -> Response:
        """The consumer's answer to the same request, `more` header fields added."""
        member = self.clients.find_consumer(group, client_id)
        if member is None:
            raise Refusal(codes.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        consumer, version = member.connection, member.version
        if version < CALL_VERSION_MIN:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version}> too low to finish, please upgrade "
                f"it to V3_1_8_SNAPSHOT ({CALL_VERSION_MIN})",
            )
        if consumer.is_full:
            raise Refusal(
                codes.SYSTEM_BUSY,
                f"[OVERLOAD]consumer <{group}> <{client_id}> does not read what it was sent "
                "before; ask again later",
            )
        fields = command.fields() | (more or {})
        try:
            answer = await consumer.request(command.code, fields, body, CALL_SECONDS)
        except TimeoutError as wrong:
            raise Refusal(
                codes.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {wrong}"
            ) from None
        except ConnectionError as wrong:
            raise Refusal(
                codes.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {wrong}"
            ) from None
        return Response(answer.code, answer.fields() or None, answer.remark, answer.body)
