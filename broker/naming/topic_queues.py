"""The queues of a topic on all its brokers, from the name servers' routes.

A broker that assigns queues to consumers must know the queues of other brokers, too. Without name
servers there are only its own. A route is kept for a while; when no name server answers, the last
one stays in use.
"""

import logging
from collections.abc import Callable

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.route import TopicRouteData
from ...protocol.bodies.topic import PERM_READ
from ...protocol.headers.namesrv import GetRoute
from ...protocol.names import LMQ_PREFIX
from ..runtime.peers import open_peers
from ..settings.config import BrokerConfig
from ..topics.topics import Topics

TIMEOUT_S = 3.0
ROUTES_MAX = 10_000  # topics whose queues are kept

log = logging.getLogger(__name__)


class TopicQueues:
    """Asks the name servers for the queues of topics."""

    def __init__(self, config: BrokerConfig, topics: Topics, now_ms: Callable[[], int]) -> None:
        self._config = config
        self._topics = topics
        self._now_ms = now_ms
        self._servers = [a for a in (config.namesrv_addr or "").replace(",", ";").split(";") if a]
        self._peers = open_peers(config)
        self._known: dict[str, tuple[int, list[MessageQueue]]] = {}  # with the time of asking

    async def of(self, topic: str) -> list[MessageQueue] | None:
        """The readable queues, in order; None when the topic is unknown."""
        if not self._servers or topic.startswith(LMQ_PREFIX):  # no name server knows light queues
            return self._own(topic)
        asked_ms, known = self._known.get(topic, (None, None))
        interval_ms = self._config.load_balance_poll_name_server_interval
        if asked_ms is not None and self._now_ms() - asked_ms < interval_ms:
            return known
        for server in self._servers:
            try:
                answer = await self._peers.request(
                    server,
                    codes.GET_ROUTEINFO_BY_TOPIC,
                    GetRoute(topic),
                    timeout_s=TIMEOUT_S,
                )
                if answer.code == codes.SUCCESS:
                    return self._keep(topic, TopicRouteData.decode(answer.body))
                if answer.code != codes.TOPIC_NOT_EXIST:
                    log.warning(
                        "name server %s refused the route of %s: %s", server, topic, answer.remark
                    )
            except (ConnectionError, TimeoutError, ValueError) as wrong:
                log.warning("name server %s didn't tell the route of %s: %s", server, topic, wrong)
        return known

    async def stop(self) -> None:
        """Close the connections to the name servers."""
        await self._peers.close()

    def _keep(self, topic: str, route: TopicRouteData) -> list[MessageQueue]:
        queues = sorted(
            MessageQueue(topic, row.broker_name or "", number)
            for row in route.queue_datas
            if row.perm & PERM_READ
            for number in range(row.read_queue_nums)
        )
        if len(self._known) >= ROUTES_MAX:
            self._known.clear()
        self._known[topic] = (self._now_ms(), queues)
        return queues

    def _own(self, topic: str) -> list[MessageQueue] | None:
        config = self._topics.get(topic)
        if config is None or not config.perm & PERM_READ:
            return None
        name = self._config.broker_name
        return [MessageQueue(topic, name, number) for number in range(config.read_queue_nums)]
