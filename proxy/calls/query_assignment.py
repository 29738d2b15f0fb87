"""QueryAssignment: where a push consumer receives from. Every consumer gets every broker."""

from typing import Any

from ..http2.call import Call
from ..messages import definitions
from ..messages.names import group_of, topic_of
from ..messages.status import OK_STATUS, Code, StatusError
from .query_route import dialled, kinds_of
from .service import Service

QueryAssignmentResponse = definitions.message("QueryAssignmentResponse")
_READ_WRITE = definitions.enum("Permission")["READ_WRITE"]
ALL_QUEUES = -1


async def query_assignment(service: Service, call: Call, client_id: str, request: Any) -> Any:
    """One entry a broker; for a group in order one a queue."""
    topic, group = topic_of(request.topic), group_of(request.group)
    route = await service.topics.route(topic)
    in_order = (await service.topics.group(group)).consume_message_orderly
    answer = QueryAssignmentResponse(status=OK_STATUS)
    there = dialled(service, call, request.endpoints)
    kinds = kinds_of(await service.topics.type_of(topic))
    for name, queues in route.readable:
        for queue_id in range(queues) if in_order else (ALL_QUEUES,):
            queue = answer.assignments.add().message_queue
            queue.topic.CopyFrom(request.topic)
            queue.id, queue.permission = queue_id, _READ_WRITE
            queue.broker.name, queue.broker.id = name, 0
            queue.broker.endpoints.CopyFrom(there)
            queue.accept_message_types.extend(kinds)
    if not answer.assignments:
        raise StatusError(
            Code.FORBIDDEN, f"no readable queue of topic {topic}; check its permission"
        )
    return answer
