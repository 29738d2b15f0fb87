"""The RPCs that the proxy serves, by the paths of their calls."""

from ..http2.call import BIDIRECTIONAL, Call, Method
from ..messages import definitions
from . import telemetry as clients
from .offsets import get_offset, query_offset, update_offset
from .pull_message import pull_message
from .query_route import query_assignment, query_route
from .receive_message import receive_message
from .send_message import send_message
from .service import Service, delivery_time, streaming, unary
from .settle import (
    ack_message,
    change_invisible_duration,
    end_transaction,
    forward_to_dead_letters,
    recall_message,
)

_UNARY = {
    "QueryRoute": query_route,
    "QueryAssignment": query_assignment,
    "SendMessage": send_message,
    "AckMessage": ack_message,
    "ChangeInvisibleDuration": change_invisible_duration,
    "ForwardMessageToDeadLetterQueue": forward_to_dead_letters,
    "EndTransaction": end_transaction,
    "RecallMessage": recall_message,
    "UpdateOffset": update_offset,
    "GetOffset": get_offset,
    "QueryOffset": query_offset,
    "Heartbeat": clients.heartbeat,
    "NotifyClientTermination": clients.notify_termination,
}


def methods(service: Service) -> dict[bytes, Method]:
    """The methods of the messaging service."""
    found = {name: unary(name, handle, service) for name, handle in _UNARY.items()}
    found["ReceiveMessage"] = streaming("ReceiveMessage", receive_message, service, delivery_time)
    found["PullMessage"] = streaming("PullMessage", pull_message, service)

    async def telemetry(call: Call) -> None:
        await clients.telemetry(service, call)

    command = definitions.message("TelemetryCommand")
    found["Telemetry"] = Method(BIDIRECTIONAL, command.FromString, telemetry)
    return {f"/{definitions.SERVICE}/{name}".encode(): method for name, method in found.items()}
