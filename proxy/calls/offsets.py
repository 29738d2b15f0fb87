"""UpdateOffset, GetOffset and QueryOffset: how far a group is, and the bounds of a queue."""

from typing import Any

from ...client.base.responses import header_of
from ...protocol import codes
from ...protocol.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffset,
    QueueAddress,
    SearchOffset,
    UpdateConsumerOffset,
)
from ...protocol.wire import Header
from ..http2.call import Call
from ..messages import definitions, times
from ..messages.names import group_of, topic_of
from ..messages.status import OK_STATUS, Code, StatusError
from .service import Service

UpdateOffsetResponse = definitions.message("UpdateOffsetResponse")
GetOffsetResponse = definitions.message("GetOffsetResponse")
QueryOffsetResponse = definitions.message("QueryOffsetResponse")
_POLICIES = definitions.enum("QueryOffsetPolicy")


async def queue_of(service: Service, queue: Any) -> tuple[str, str, int]:
    """Address, topic and queue id of a MessageQueue; StatusError for one that isn't there."""
    topic = topic_of(queue.topic)
    route = await service.topics.route(topic)
    name, queue_id = queue.broker.name, queue.id
    queues = dict(route.readable).get(name)
    address = service.brokers.address(name)
    if queues is None or address is None:
        raise StatusError(Code.BAD_REQUEST, f"topic {topic} has no readable queue at {name[:200]}")
    if not 0 <= queue_id < queues:
        raise StatusError(
            Code.BAD_REQUEST,
            f"the queue id is {queue_id}; topic {topic} has the queues 0 to {queues - 1} at {name}",
        )
    return address, topic, queue_id


def check_offset(offset: int) -> None:
    """StatusError ILLEGAL_OFFSET for one below 0."""
    if offset < 0:
        raise StatusError(Code.ILLEGAL_OFFSET, f"the offset is {offset}; give one from 0 on")


async def update_offset(service: Service, call: Call, client_id: str, request: Any) -> Any:
    """Commit the offset of a group."""
    group = group_of(request.group)
    address, topic, queue_id = await queue_of(service, request.message_queue)
    check_offset(request.offset)
    header = UpdateConsumerOffset(group, topic, queue_id, request.offset)
    await service.brokers.ask(address, codes.UPDATE_CONSUMER_OFFSET, header)
    return UpdateOffsetResponse(status=OK_STATUS)


async def get_offset(service: Service, call: Call, client_id: str, request: Any) -> Any:
    """The committed offset of a group; OFFSET_NOT_FOUND without one."""
    group = group_of(request.group)
    address, topic, queue_id = await queue_of(service, request.message_queue)
    header = QueryConsumerOffset(group, topic, queue_id, zero_if_missing=False)
    code = codes.QUERY_CONSUMER_OFFSET
    accepted = (codes.SUCCESS, codes.QUERY_NOT_FOUND)
    answer = await service.brokers.ask(address, code, header, accepted=accepted)
    if answer.code == codes.QUERY_NOT_FOUND:
        raise StatusError(
            Code.OFFSET_NOT_FOUND,
            f"group {group} has no committed offset in queue {queue_id} of topic {topic}",
        )
    return GetOffsetResponse(
        status=OK_STATUS, offset=header_of(answer, OffsetResponse, code).offset
    )


async def query_offset(service: Service, call: Call, client_id: str, request: Any) -> Any:
    """The first offset, the next one, or that of a time."""
    address, topic, queue_id = await queue_of(service, request.message_queue)
    policy = request.query_offset_policy
    header: Header = QueueAddress(topic, queue_id)
    code = codes.GET_MIN_OFFSET if policy == _POLICIES["BEGINNING"] else codes.GET_MAX_OFFSET
    if policy == _POLICIES["TIMESTAMP"]:
        if not request.HasField("timestamp"):
            raise StatusError(Code.BAD_REQUEST, "the policy TIMESTAMP needs a timestamp")
        ms = times.to_ms(request.timestamp, "timestamp")
        code, header = codes.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffset(topic, queue_id, ms)
    answer = await service.brokers.ask(address, code, header)
    # A broker may say -1 for a queue that was never written.
    offset = max(0, header_of(answer, OffsetResponse, code).offset)
    return QueryOffsetResponse(status=OK_STATUS, offset=offset)
