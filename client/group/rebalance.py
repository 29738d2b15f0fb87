"""The queues of this member, computed from the group's members like on every other member.

Nothing changes if the queues or the members can't be fetched or the strategy fails: keeping queues
is better than releasing them because of a lost response.
"""

import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.clients import GetConsumerListByGroupResponseBody
from ...protocol.bodies.route import MASTER_ID
from ...protocol.headers.clients import ConsumerGroup
from ...protocol.names import RETRY_PREFIX
from ...protocol.queues.allocation import Strategy, sort_ids
from ..base.failures import log_failure
from ..base.responses import body_of
from ..cluster.cluster import Cluster
from ..cluster.route import Route
from ..errors import BrokerError, ClientError, NoAnswerError, NoRouteError, UnreachableError

log = logging.getLogger(__name__)

QUEUES_LOGGED = 10  # how many queues a debug message lists

Answered = TypeVar("Answered")


@dataclass(frozen=True, slots=True)
class Share:
    """All queues of a topic, sorted, and the queues assigned to this member.

    `mine` are the queues to pull and `popped` the queues to pop; there, queue id -1 stands for all
    queues of a broker.
    """

    every: list[MessageQueue]
    mine: list[MessageQueue]
    popped: list[MessageQueue] = field(default_factory=list)


class Rebalance:
    """Computes the queues of one member of `group`; without a strategy it gets all queues.

    `members` are the sorted ids of the group's members, as last received.
    """

    def __init__(self, cluster: Cluster, group: str, strategy: Strategy | None) -> None:
        self._cluster = cluster
        self._group = group
        self._strategy = strategy
        self._missing: set[str] = set()  # topics without a route, each logged once
        self.members: list[str] = []

    async def shares(self, topics: Iterable[str]) -> dict[str, Share]:
        """The queues of this member by topic, without topics whose queues can't be computed."""
        found: dict[str, Share] = {}
        for topic in topics:
            share = await self._of_topic(topic)
            if share is not None:
                found[topic] = share
        return found

    async def _of_topic(self, topic: str) -> Share | None:
        try:
            share = await self._share(topic, await self._cluster.route(topic))
        except NoRouteError as unknown:
            self._warn_once(topic, unknown)
            return None
        except (ClientError, BrokerError) as wrong:
            log.warning("group %s keeps its queues of topic %s: %s", self._group, topic, wrong)
            return None
        self._missing.discard(topic)
        return share

    async def _share(self, topic: str, route: Route) -> Share | None:
        ids = await self._members(route) if self._strategy is not None else []
        every = sorted(route.subscribe)
        if self._strategy is None:
            return Share(every, every) if every else None
        if not every or not ids:
            return None
        self.members = ids
        try:
            mine = list(self._strategy(self._cluster.client_id, list(every), list(ids)))
        except Exception as wrong:
            what = "group %s keeps its queues of topic %s, its strategy failed"
            log_failure(log, wrong, what, self._group, topic)
            return None
        strangers = [queue for queue in mine if getattr(queue, "topic", None) != topic]
        if strangers:
            log.error(
                "group %s keeps its queues of topic %s: its strategy gave %r, which is no queue of "
                "that topic",
                self._group,
                topic,
                strangers[0],
            )
            return None
        log.debug(
            "group %s has %d of the %d queues of topic %s, shared by %d members: %s",
            self._group,
            len(mine),
            len(every),
            topic,
            len(ids),
            ", ".join(f"{each.broker_name}:{each.queue_id}" for each in mine[:QUEUES_LOGGED]),
        )
        return Share(every, mine)

    async def _members(self, route: Route) -> list[str]:
        # Any broker of the topic knows all members: each member sends heartbeats to all brokers.
        return await self._of_any(route, self._ask) or []

    async def _of_any(
        self, route: Route, ask: Callable[[str], Awaitable[Answered]]
    ) -> Answered | None:
        """The response of the topic's first reachable broker; None if none is reachable."""
        names = list(route.brokers)
        random.shuffle(names)
        failure: ClientError | None = None
        for name in names:
            addresses = route.brokers[name]
            try:
                return await ask(addresses.get(MASTER_ID) or addresses[min(addresses)])
            except (UnreachableError, NoAnswerError) as wrong:
                failure = wrong
        if failure is not None:
            raise failure
        return None

    async def _ask(self, address: str) -> list[str]:
        code, header = codes.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroup(self._group)
        answer = await self._cluster.request(address, code, header)
        if answer.code != codes.SUCCESS:
            # The broker lost this client, after a restart for example: send a heartbeat first.
            await self._cluster.beat_to(address)
            answer = await self._cluster.ask(address, code, header)
        return sort_ids(body_of(answer, GetConsumerListByGroupResponseBody, code).consumer_id_list)

    def _warn_once(self, topic: str, unknown: NoRouteError) -> None:
        if topic in self._missing:
            return
        self._missing.add(topic)
        if not topic.startswith(RETRY_PREFIX):
            log.warning("group %s waits for topic %s: %s", self._group, topic, unknown)
