"""RecallMessage: a delayed message is taken back before its time."""

from typing import Any

from ...client.base.responses import header_of
from ...protocol import codes
from ...protocol.errors import Refusal
from ...protocol.headers.recall import RecallMessage, RecallMessageResponse
from ...protocol.message import recall_handle
from ..http2.call import Call
from ..messages import definitions
from ..messages.names import topic_of
from ..messages.sending import DELAY, MIXED
from ..messages.status import OK_STATUS, Code, StatusError
from .service import Service

Answer = definitions.message("RecallMessageResponse")


async def recall_message(service: Service, call: Call, client_id: str, request: Any) -> Any:
    """The id of the message."""
    topic = topic_of(request.topic)
    if service.config.enable_topic_message_type_check:
        kind = await service.topics.type_of(topic)
        if kind not in (DELAY, MIXED):
            raise StatusError(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"TopicMessageType validate failed, the expected type is {kind}, but actual type "
                f"is {DELAY}",
            )
    try:
        handle = recall_handle.decode(request.recall_handle)
    except Refusal as wrong:
        raise StatusError(Code.INTERNAL_SERVER_ERROR, wrong.remark) from None
    await service.topics.route(topic)
    address = service.brokers.address(handle.broker_name)
    if address is None:
        raise StatusError(Code.BAD_REQUEST, f"cannot find broker {handle.broker_name[:200]}")
    header = RecallMessage(topic, request.recall_handle, topic)
    code = codes.RECALL_MESSAGE
    answer = await service.brokers.ask(address, code, header)
    found = header_of(answer, RecallMessageResponse, code)
    return Answer(status=OK_STATUS, message_id=found.msg_id)
