"""QueryRoute and QueryAssignment: the queues of a topic, and the endpoints that serve them."""

import ipaddress
from typing import Any

from ...protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from ...protocol.bodies.topic import PERM_READ, PERM_WRITE
from ..http2.call import Call
from ..messages import definitions
from ..messages.names import group_of, topic_of
from ..messages.sending import DELAY, FIFO, KINDS, MIXED, NORMAL, TRANSACTION
from ..messages.status import OK_STATUS, Code, StatusError
from ..routes.topics import NEW_TOPIC_QUEUES
from .service import Service

QueryRouteResponse = definitions.message("QueryRouteResponse")
QueryAssignmentResponse = definitions.message("QueryAssignmentResponse")
MessageQueue = definitions.message("MessageQueue")
Endpoints = definitions.message("Endpoints")
_SCHEMES = definitions.enum("AddressScheme")
_PERMISSIONS = definitions.enum("Permission")
ALL_KINDS = (NORMAL, FIFO, DELAY, TRANSACTION)
QUEUES_MAX = 65_536  # of one answer
ALL_QUEUES = -1


async def query_route(service: Service, call: Call, client_id: str, request: Any) -> Any:
    """Each queue once for each member of its broker name, slaves too."""
    topic = topic_of(request.topic)
    try:
        data = (await service.topics.route(topic)).data
        kind = await service.topics.type_of(topic)
    except StatusError as wrong:
        if wrong.code != Code.TOPIC_NOT_FOUND or not service.config.auto_create_topic:
            raise
        data, kind = await _unborn(service), MIXED
    answer = QueryRouteResponse(status=OK_STATUS)
    there = dialled(service, call, request.endpoints)
    kinds = kinds_of(kind)
    members = {broker.broker_name: broker.broker_addrs for broker in data.broker_datas}
    for row in data.queue_datas:
        for broker_id in members.get(row.broker_name, {}):
            one = MessageQueue()
            one.topic.CopyFrom(request.topic)
            one.broker.name, one.broker.id = row.broker_name or "", broker_id
            one.broker.endpoints.CopyFrom(there)
            one.accept_message_types.extend(kinds)
            for number, permission in enumerate(permissions(row)):
                one.id, one.permission = number, permission
                answer.message_queues.append(one)
            if len(answer.message_queues) > QUEUES_MAX:
                raise StatusError(
                    Code.INTERNAL_SERVER_ERROR,
                    f"topic {topic} has more than {QUEUES_MAX} queues; make fewer",
                )
    return answer


async def query_assignment(service: Service, call: Call, client_id: str, request: Any) -> Any:
    """The queues that a push consumer receives from: one entry for each broker; for a group in
    order one for each queue.

    Every consumer gets every broker.
    """
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
            queue.id, queue.permission = queue_id, _PERMISSIONS["READ_WRITE"]
            queue.broker.name, queue.broker.id = name, 0
            queue.broker.endpoints.CopyFrom(there)
            queue.accept_message_types.extend(kinds)
    if not answer.assignments:
        raise StatusError(
            Code.FORBIDDEN, f"no readable queue of topic {topic}; check its permission"
        )
    return answer


def dialled(service: Service, call: Call, given: Any) -> Any:
    """The endpoints to name to this client."""
    port = None if service.config.use_endpoint_port_from_request else service.own_port()
    return endpoints(given, call.authority, call.connection.local, port)


def kinds_of(kind: str) -> list[int]:
    """The types of messages that a topic of this type takes; never UNSPECIFIED."""
    if kind == MIXED:
        return [KINDS[each] for each in ALL_KINDS]
    return [KINDS[kind if kind in ALL_KINDS else NORMAL]]


def permissions(row: QueueData) -> list[int]:
    """The permission of each queue of a broker: read-only ones, write-only ones, then both."""
    reads, writes = row.read_queue_nums, row.write_queue_nums
    may_read, may_write = bool(row.perm & PERM_READ), bool(row.perm & PERM_WRITE)
    if may_read and may_write:
        both = min(reads, writes)
        found = [_PERMISSIONS["READ"]] * (reads - both) + [_PERMISSIONS["WRITE"]] * (writes - both)
        return (found + [_PERMISSIONS["READ_WRITE"]] * both)[:QUEUES_MAX]
    if may_read:
        return [_PERMISSIONS["READ"]] * min(reads, QUEUES_MAX)
    if may_write:
        return [_PERMISSIONS["WRITE"]] * min(writes, QUEUES_MAX)
    return [_PERMISSIONS["NONE"]] * min(max(1, reads, writes), QUEUES_MAX)


async def _unborn(service: Service) -> TopicRouteData:
    """The route of a topic that its first message will create."""
    await service.brokers.learn_all()
    names = service.brokers.names()
    perm = PERM_READ | PERM_WRITE
    return TopicRouteData(
        queue_datas=[QueueData(name, NEW_TOPIC_QUEUES, NEW_TOPIC_QUEUES, perm) for name in names],
        broker_datas=[
            BrokerData(None, name, {0: address})
            for name in names
            if (address := service.brokers.address(name)) is not None
        ],
    )


def endpoints(given: Any, authority: str, local: tuple[str, int], port: int | None) -> Any:
    """The endpoints to name to a client: those that the client dialled.

    `given` are the endpoints of the request, which say what the client dialled; without them, or
    without a port in them, the call's :authority counts, and without that our end of the
    connection. `port`, if not None, replaces their ports.
    """
    found = Endpoints()
    host, dialled_port = _split(authority) if authority else local
    if given.addresses:
        found.CopyFrom(given)
    else:
        found.addresses.add(host=host)
        found.scheme = scheme_of(host)
    for address in found.addresses:
        address.port = (address.port or dialled_port or local[1]) if port is None else port
    return found


def scheme_of(host: str) -> int:
    """The scheme of a host by its text."""
    try:
        version = ipaddress.ip_address(host.strip("[]")).version
    except ValueError:
        return _SCHEMES["DOMAIN_NAME"]
    return _SCHEMES["IPv4" if version == 4 else "IPv6"]


def _split(authority: str) -> tuple[str, int]:
    host, colon, port = authority.rpartition(":")
    if colon and port.isdecimal() and not host.endswith(":") and len(port) < 6:
        return host.strip("[]"), int(port)
    return authority.strip("[]"), 0
