"""Queues that a broker hands out to the members of a group."""

from ..wire import Int32
from .body import Body, MessageQueue


class QueryAssignmentRequestBody(Body):
    """Which queues are mine? (400)"""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str = ""
    message_model: str = "CLUSTERING"


class MessageQueueAssignment(Body):
    """A queue and how it is to be read: PULL or POP."""

    message_queue: MessageQueue | None = None
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


class QueryAssignmentResponseBody(Body):
    """The queues of the client that asked; None when it is to keep what it has."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class SetMessageRequestModeRequestBody(Body):
    """The reading mode of a group in a topic (401); `pop_share_queue_num` members share a queue."""

    topic: str = ""
    consumer_group: str = ""
    mode: str = "PULL"
    pop_share_queue_num: Int32 = 0


class MessageRequestModeWrapper(Body):
    """messageRequestMode.json: topic to group to how it reads."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
