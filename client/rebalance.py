"""Which queues this member should hold now: asked of the brokers, computed like everybody else.

Nothing is changed when the queues or the members of a group can't be learnt: holding on is better
than letting go because of a lost answer.
"""

import logging
import random
from collections.abc import Iterable

from ..protocol import codes
from ..protocol.assign import Strategy, sort_ids
from ..protocol.bodies.body import MessageQueue
from ..protocol.bodies.clients import GetConsumerListByGroupResponseBody
from ..protocol.bodies.route import MASTER_ID
from ..protocol.headers.clients import ConsumerGroup
from ..protocol.names import RETRY_PREFIX
from .answers import body_of
from .cluster import Cluster
from .errors import BrokerError, ClientError, NoAnswerError, NoRouteError, UnreachableError
from .route import Route

log = logging.getLogger(__name__)


class Rebalance:
    """Computes the queues of one member of `group`."""

    def __init__(self, cluster: Cluster, group: str, strategy: Strategy) -> None:
        self._cluster = cluster
        self._group = group
        self._strategy = strategy
        self._missing: set[str] = set()  # topics without a route, each logged once

    async def assigned(self, topics: Iterable[str]) -> dict[str, list[MessageQueue]]:
        """This member's queues by topic; a topic of which nothing could be learnt is left out."""
        found: dict[str, list[MessageQueue]] = {}
        for topic in topics:
            queues = await self._of_topic(topic)
            if queues is not None:
                found[topic] = queues
        return found

    async def _of_topic(self, topic: str) -> list[MessageQueue] | None:
        try:
            route = await self._cluster.route(topic)
            ids = await self._members(route)
        except NoRouteError as unknown:
            self._warn_once(topic, unknown)
            return None
        except (ClientError, BrokerError) as wrong:
            log.warning("group %s keeps its queues of topic %s: %s", self._group, topic, wrong)
            return None
        self._missing.discard(topic)
        if not route.subscribe or not ids:
            return None
        return self._strategy(self._cluster.client_id, sorted(route.subscribe), ids)

    async def _members(self, route: Route) -> list[str]:
        # Any broker of the topic knows all members, because each sends them all its heartbeats.
        names = list(route.brokers)
        random.shuffle(names)
        failure: ClientError | None = None
        for name in names:
            addresses = route.brokers[name]
            try:
                return await self._ask(addresses.get(MASTER_ID) or addresses[min(addresses)])
            except (UnreachableError, NoAnswerError) as wrong:
                failure = wrong
        if failure is not None:
            raise failure
        return []

    async def _ask(self, address: str) -> list[str]:
        code, header = codes.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroup(self._group)
        answer = await self._cluster.request(address, code, header)
        if answer.code != codes.SUCCESS:
            # It has lost us, after a restart for example: it must hear of us before it can answer.
            await self._cluster.beat_to(address)
            answer = await self._cluster.ask(address, code, header)
        return sort_ids(body_of(answer, GetConsumerListByGroupResponseBody, code).consumer_id_list)

    def _warn_once(self, topic: str, unknown: NoRouteError) -> None:
        if topic in self._missing:
            return
        self._missing.add(topic)
        if not topic.startswith(RETRY_PREFIX):
            log.warning("group %s waits for topic %s: %s", self._group, topic, unknown)
