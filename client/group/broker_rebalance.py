"""The queues of this member, assigned by a broker, which also decides between pull and pop.

Used by consumers with `client_rebalance=False`; `mqadmin setConsumeMode` sets the mode. With pop
all members may read all queues; then a broker gives one assignment with the queue id -1.
"""

from collections.abc import Mapping

from ...protocol import codes
from ...protocol.bodies.assignment import (
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from ...protocol.message.pop_handles import retry_topic
from ...protocol.names import RETRY_PREFIX
from ...protocol.queues.allocation import Strategy
from ..base.responses import body_of
from ..cluster.cluster import Cluster
from ..cluster.route import Route
from ..errors import ClientError
from .rebalance import Rebalance, Share

STRATEGIES = ("AVG", "AVG_BY_CIRCLE")  # the strategies of brokers
POP = "POP"


class BrokerRebalance(Rebalance):
    """Fetches the queues of one member of `group`; `strategy` is a name."""

    def __init__(self, cluster: Cluster, group: str, strategy: str | Strategy) -> None:
        if strategy not in STRATEGIES:
            raise ClientError(
                f"strategy is {strategy!r}; brokers share queues out by {' or '.join(STRATEGIES)}, "
                "give one of them, or leave client_rebalance on"
            )
        super().__init__(cluster, group, None)
        self._name = str(strategy)

    async def _share(self, topic: str, route: Route) -> Share | None:
        wanted = QueryAssignmentRequestBody(
            topic, self._group, self._cluster.client_id, self._name
        ).encode()
        code = codes.QUERY_ASSIGNMENT

        async def ask(address: str) -> QueryAssignmentResponseBody:
            answer = await self._cluster.ask(address, code, None, wanted)
            return body_of(answer, QueryAssignmentResponseBody, code)

        answer = await self._of_any(route, ask)
        assignments = answer.message_queue_assignments if answer is not None else None
        if assignments is None:
            return None  # for example the broker does not know this client yet: keep the queues
        share = Share(sorted(route.subscribe), [])
        for each in assignments:
            if each.message_queue is not None:
                (share.popped if each.mode == POP else share.mine).append(each.message_queue)
        return share


def changed_retries(
    shares: Mapping[str, Share], group: str, subscribed: Mapping[str, object]
) -> dict[str, bool]:
    """Retry topics of pop that are to be subscribed (True) or not any more (False).

    While a topic is popped, its broker reads its retry topic by itself. Once it is pulled again,
    messages in the retry topic only arrive by a subscription.
    """
    found = {}
    for topic, share in shares.items():
        if topic.startswith(RETRY_PREFIX) or bool(share.mine) == bool(share.popped):
            continue
        name = retry_topic(topic, group)
        if (name in subscribed) != bool(share.mine):
            found[name] = bool(share.mine)
    return found
