"""Routes of topics and addresses of brokers, from the name servers.

Invariants: a route stays until a newer one arrives; the known brokers are exactly those of the
routes in use.
"""

import asyncio
import logging

from ...protocol import codes
from ...protocol.aio.attempts import Attempts
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.route import MASTER_ID, TopicRouteData
from ...protocol.headers.topics import TopicName
from ...protocol.queues.logical_queues import MOCK_BROKER_PREFIX, NO_BROKER
from ..base.responses import body_of
from ..errors import BrokerError, ClientError, ClosedError, NoRouteError, UnreachableError
from .name_servers import NameServers
from .route import Route, read_route

log = logging.getLogger(__name__)

TOPICS_MAX = 10_000  # topics in use by one client
TEMPLATE_TOPIC = "TBW102"  # its route is used for a topic that its first message will create
TEMPLATE_QUEUES_MAX = 4  # defaultTopicQueueNums
RENEW_SECONDS = 0.5  # between two requests for the route of a topic whose broker fails


def closed_while_waiting() -> ClosedError:
    """The error of a call that shares an attempt with others when the client is closed."""
    return ClosedError("the client was closed while the call was waiting")


class Routes:
    """The routes in use and the addresses of their brokers.

    `changes` counts changes, so that callers can invalidate what they cached; a `Cluster` also
    counts changes of its connections.
    """

    def __init__(self, name_servers: NameServers) -> None:
        self.name_servers = name_servers
        self.changes = 0
        self._routes: dict[str, Route] = {}
        self._borrowed: dict[str, Route] = {}  # of topics that don't exist yet
        self._brokers: dict[str, dict[int, str]] = {}
        self._lookups: Attempts[Route] = Attempts(closed_while_waiting)
        self._renewed: dict[str, float] = {}  # by topic: the loop's time of the last `renew`
        self._closed = False

    # --- routes ---------------------------------------------------------------------------------

    def known_route(self, topic: str) -> Route | None:
        """The route to publish to `topic`, if it is known by now."""
        return self._routes.get(topic) or self._borrowed.get(topic)

    async def route(self, topic: str, *, fresh: bool = False) -> Route:
        """The route of `topic`; NoRouteError when no name server has one."""
        self._check_open()
        found = self._routes.get(topic)
        if found is not None and not fresh:
            return found
        return await self._lookups.join(topic, lambda: self._look_up(topic))

    async def publish_route(self, topic: str) -> Route:
        """The route to send to `topic`; for a topic that doesn't exist yet, that of TBW102.

        A broker makes the topic with the first message if it has autoCreateTopicEnable.
        NoRouteError when there is neither.
        """
        found = self.known_route(topic)
        if found is not None:
            return found
        try:
            return await self.route(topic)
        except NoRouteError as unknown:
            try:
                answer = await self.route_data(TEMPLATE_TOPIC)
            except NoRouteError:
                raise unknown from None  # no broker creates topics automatically
        borrowed = read_route(topic, answer, TEMPLATE_QUEUES_MAX)
        if not borrowed.publish:
            raise _no_route(topic)
        self._check_room(topic)
        self._borrowed[topic] = borrowed
        self._learn_brokers()
        return borrowed

    async def route_data(self, topic: str) -> TopicRouteData:
        """A name server's response about `topic`, uncached; NoRouteError if it is unknown."""
        try:
            code = codes.GET_ROUTEINFO_BY_TOPIC
            # One that was restarted knows a topic once its brokers have registered again.
            unsure = (codes.TOPIC_NOT_EXIST,)
            answer = await self.name_servers.ask(code, TopicName(topic), unsure=unsure)
        except BrokerError as wrong:
            if wrong.code == codes.TOPIC_NOT_EXIST:
                raise _no_route(topic) from wrong
            raise
        return body_of(answer, TopicRouteData, code)

    async def renew(self, topic: str) -> None:
        """Fetch the route of a topic whose broker fails: another one may be its master by now.

        At most every `RENEW_SECONDS` for each topic. On failure the old route stays.
        """
        now = asyncio.get_running_loop().time()
        if (
            now - self._renewed.get(topic, -RENEW_SECONDS) < RENEW_SECONDS
            or self.known_route(topic) is None
        ):
            return
        self._renewed[topic] = now
        borrowed = self._borrowed.pop(topic, None)
        try:
            await (self.route(topic, fresh=True) if borrowed is None else self.publish_route(topic))
        except (ClientError, BrokerError) as wrong:
            log.debug("keeping the last known route of topic %s: %s", topic, wrong)
        if borrowed is not None and self.known_route(topic) is None:
            self._borrowed[topic] = borrowed

    def topics_at(self, address: str) -> list[str]:
        """The topics whose routes lead to this address."""
        return [
            topic
            for topic, route in [*self._routes.items(), *self._borrowed.items()]
            if any(address in each.values() for each in route.brokers.values())
        ]

    async def refresh(self) -> None:
        """Refresh every route in use; on failure the old route stays."""
        for topic in [*self._routes, *self._borrowed]:
            try:
                await self.route(topic, fresh=True)
            except (ClientError, BrokerError) as wrong:
                if topic in self._routes:
                    log.warning("keeping the last known route of topic %s: %s", topic, wrong)
                if isinstance(wrong, UnreachableError):
                    break  # no name server is reachable: other topics would fail too

    # --- brokers --------------------------------------------------------------------------------

    def address_of(self, broker_name: str, broker_id: int = MASTER_ID, *, only: bool = True) -> str:
        """The address of a broker; NoRouteError if unknown.

        Without `only` another broker of the same name may be returned: the slave after the wanted
        one, or any.
        """
        addresses = self._brokers.get(broker_name, {})
        found = addresses.get(broker_id)
        if found is None and not only and addresses:
            if broker_id != MASTER_ID:
                found = addresses.get(broker_id + 1)
            found = found or addresses[min(addresses)]
        if found is None:
            known = ", ".join(f"{name} {dict(each)}" for name, each in self._brokers.items())
            raise NoRouteError(
                f"broker {broker_name} with id {broker_id} is in no route; known are "
                f"{known or 'none'}; check that it runs and registers with this name server"
            )
        return found

    def leader_of(self, queue: MessageQueue) -> str:
        """The name of the broker that serves a queue: for a logical one, of its leader."""
        name = queue.broker_name
        if not name.startswith(MOCK_BROKER_PREFIX):
            return name
        route = self._routes.get(queue.topic)
        return NO_BROKER if route is None else route.leaders.get(queue, NO_BROKER)

    def address_for(
        self, queue: MessageQueue, broker_id: int = MASTER_ID, *, only: bool = True
    ) -> str:
        """The address of a queue's broker; arguments and errors are those of `address_of`."""
        return self.address_of(self.leader_of(queue), broker_id, only=only)

    def known_address(self, broker_name: str, broker_id: int) -> str:
        """The address of a broker, "" if unknown."""
        return self._brokers.get(broker_name, {}).get(broker_id, "")

    @property
    def masters(self) -> dict[str, str]:
        """The addresses of all known masters by broker name."""
        return {
            name: addresses[MASTER_ID]
            for name, addresses in self._brokers.items()
            if MASTER_ID in addresses
        }

    # --- inside ---------------------------------------------------------------------------------

    async def _look_up(self, topic: str) -> Route:
        answer = await self.route_data(topic)
        try:
            found = read_route(topic, answer)
        except ValueError as wrong:
            raise NoRouteError(str(wrong)) from wrong
        self._check_room(topic)
        self._routes.pop(topic, None)
        self._routes[topic] = found  # the last one: what it says of a broker's addresses counts
        self._borrowed.pop(topic, None)
        self._learn_brokers()
        return found

    def _check_room(self, topic: str) -> None:
        used = len(self._routes) + len(self._borrowed)
        if used >= TOPICS_MAX and self.known_route(topic) is None:
            raise ClientError(
                f"no room for the route of topic {topic}: this client uses {used} topics, the "
                f"limit is {TOPICS_MAX}; use a second client for others"
            )

    def _learn_brokers(self) -> None:
        # Rebuilt from all routes, so that brokers in no route are forgotten.
        found: dict[str, dict[int, str]] = {}
        for route in [*self._borrowed.values(), *self._routes.values()]:
            for name, addresses in route.brokers.items():
                found.setdefault(name, {}).update(addresses)
        self._brokers = found
        self.changes += 1

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this client is closed; make a new one")


def _no_route(topic: str) -> NoRouteError:
    return NoRouteError(
        f"no name server knows topic {topic}; create it (`aerobee topics create {topic}`, mqadmin "
        "updateTopic), start its broker if that has not come back, or check the topic's spelling "
        "and the name server's address"
    )
