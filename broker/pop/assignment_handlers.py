"""QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401), GET_ALL_MESSAGE_REQUEST_MODE (402).

A consumer with clientRebalance=false lets the broker decide which queues it reads, and whether by
pull or by pop. With pop, every client may read all queues unless popShareQueueNum limits it; its
assignment then has one entry per broker, with queue id -1.
"""

from dataclasses import dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.bodies.assignment import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from ...protocol.bodies.body import MessageQueue, body_of
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.names import RETRY_PREFIX
from ...protocol.queues.allocation import STRATEGIES, Strategy
from ..access import gates, needs
from ..groups.clients import BROADCASTING, Clients
from ..groups.groups import Groups
from ..naming.topic_queues import TopicQueues
from ..settings.config import BrokerConfig
from ..topics.topics import Topics
from .request_modes import POP, PULL, RequestModes

ALL_QUEUES = -1
SERVED = ("AVG", "AVG_BY_CIRCLE")  # strategies of RocketMQ's broker; others give no assignment


@dataclass(slots=True, eq=False)
class AssignmentHandlers:
    """Assigns the queues of a topic to the clients of a group."""

    config: BrokerConfig
    topics: Topics
    groups: Groups
    clients: Clients
    modes: RequestModes
    queues: TopicQueues

    def rows(self) -> list[Row]:
        return [
            Row(codes.QUERY_ASSIGNMENT, None, self.on_query, needs.ANY_USER),
            Row(
                codes.SET_MESSAGE_REQUEST_MODE,
                None,
                self.on_set_mode,
                needs.OUR_CLUSTER_UPDATE,
                gates.CHANGE,
            ),
            Row(codes.GET_ALL_MESSAGE_REQUEST_MODE, None, self.on_all_modes, needs.OUR_CLUSTER_GET),
        ]

    async def on_query(self, header: None, command: Command, connection: Connection) -> Response:
        wanted = body_of(command, QueryAssignmentRequestBody)
        mode = self._mode(wanted)
        queues = await self._assigned(wanted, mode)
        assignments = None
        if queues is not None:
            assignments = [MessageQueueAssignment(queue, mode.mode) for queue in queues]
        return Response(codes.SUCCESS, body=QueryAssignmentResponseBody(assignments).encode())

    def on_set_mode(self, header: None, command: Command, connection: Connection) -> Response:
        wanted = body_of(command, SetMessageRequestModeRequestBody)
        if wanted.topic.startswith(RETRY_PREFIX):
            raise Refusal(codes.NO_PERMISSION, "retry topic is not allowed to set mode")
        if wanted.mode not in (PULL, POP):
            raise Refusal(
                codes.INVALID_PARAMETER, f"the mode is {wanted.mode!r}, it must be PULL or POP"
            )
        if self.topics.get(wanted.topic) is None:
            raise Refusal(codes.TOPIC_NOT_EXIST, f"topic[{wanted.topic}] not exist; create it")
        if self.groups.find(wanted.consumer_group) is None:
            raise Refusal(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group does not exist: {wanted.consumer_group}; create it",
            )
        self.modes.put(wanted)
        return OK

    def on_all_modes(self, header: None, command: Command, connection: Connection) -> Response:
        return Response(codes.SUCCESS, body=self.modes.to_body().encode())

    # --- inside ---------------------------------------------------------------------------------

    def _mode(self, wanted: QueryAssignmentRequestBody) -> SetMessageRequestModeRequestBody:
        topic, group = wanted.topic, wanted.consumer_group
        found = self.modes.get(topic, group)
        if found is not None:
            return found
        by_default = self.config.default_message_request_mode
        mode = PULL if topic.startswith(RETRY_PREFIX) else by_default
        share = self.config.default_pop_share_queue_num if mode == POP else 0
        return SetMessageRequestModeRequestBody(topic, group, mode, share)

    async def _assigned(
        self, wanted: QueryAssignmentRequestBody, mode: SetMessageRequestModeRequestBody
    ) -> list[MessageQueue] | None:
        """The client's queues; None when its assignment stays as it is."""
        queues = await self.queues.of(wanted.topic)
        if queues is None or wanted.message_model == BROADCASTING:
            return queues
        if not self.config.server_load_balancer_enable:
            return queues
        group = self.clients.consumer_group(wanted.consumer_group)
        strategy = STRATEGIES[wanted.strategy_name] if wanted.strategy_name in SERVED else None
        if group is None or strategy is None or not queues:
            return None
        ids = group.sorted_ids()
        if mode.mode == POP:
            found = _popping(strategy, wanted.client_id, queues, ids, mode.pop_share_queue_num)
        else:
            found = strategy(wanted.client_id, queues, ids)
        return list(dict.fromkeys(found))


def _popping(
    strategy: Strategy, me: str, queues: list[MessageQueue], ids: list[str], share: int
) -> list[MessageQueue]:
    """The queues of the client `me`, which pops: its own and those of the next `share` members.

    So `share` + 1 clients read each queue. Queue id -1 stands for all queues of a broker.
    """
    if share <= 0 or share >= len(ids) - 1:
        return [MessageQueue(each.topic, each.broker_name, ALL_QUEUES) for each in queues]
    if me not in ids:
        return []
    place = ids.index(me)
    if len(ids) > len(queues):
        return [queues[place % len(queues)]]
    members = [ids[(place + step) % len(ids)] for step in range(share + 1)]
    return [queue for member in members for queue in strategy(member, queues, ids)]
