"""Requests of clients about themselves: HEART_BEAT (34), UNREGISTER_CLIENT (35), 38, 46."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.bodies.body import body_of
from ...protocol.bodies.heartbeat import CheckClientRequestBody, ConsumerData, HeartbeatData
from ...protocol.codec.header_binary import LANGUAGES
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.clients import ConsumerGroup, Heartbeat, UnregisterClient
from ...protocol.names import PROXIED, RETRY_PREFIX
from ..access import needs
from ..filters.filters import Filters
from ..settings.config import BrokerConfig
from ..topics.topics import Topics, retry_config
from .clients import Clients, Proxied
from .groups import Groups

# The fields of a heartbeat's response: V2 heartbeats are understood, and the body is always read.
HEARTBEAT_FIELDS = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
HEARD = Response(codes.SUCCESS, HEARTBEAT_FIELDS)
PROXIED_HEARD = Response(codes.SUCCESS, HEARTBEAT_FIELDS | {PROXIED: "true"})
ADDRESS_CHARS_MAX = 300  # of a client behind a proxy
ACTIVELY = "CONSUME_ACTIVELY"  # the type of a consumer that pulls by itself
REGISTERED_S_MAX = 1.0  # how long a heartbeat waits for the name servers; clients wait 3 s for it


@dataclass(slots=True, eq=False)
class ClientHandlers:
    """Keeps `Clients` up to date with the clients' heartbeats and farewells."""

    config: BrokerConfig
    topics: Topics
    groups: Groups
    clients: Clients
    filters: Filters
    now_ms: Callable[[], int]

    def rows(self) -> list[Row]:
        return [
            Row(codes.HEART_BEAT, Heartbeat, self.on_heartbeat, needs.HEARTBEAT),
            Row(codes.UNREGISTER_CLIENT, UnregisterClient, self.on_unregister, needs.UNREGISTER),
            Row(
                codes.GET_CONSUMER_LIST_BY_GROUP,
                ConsumerGroup,
                self.on_consumer_list,
                needs.CONSUMERS_READ,
            ),
            Row(codes.CHECK_CLIENT_CONFIG, None, self.on_check, needs.ANY_USER),
        ]

    def on_heartbeat(
        self, header: Heartbeat, command: Command, connection: Connection
    ) -> Response | Coroutine[Any, Any, Response]:
        heartbeat = body_of(command, HeartbeatData)
        if not heartbeat.client_id:
            raise Refusal(codes.SYSTEM_ERROR, "the heartbeat's clientID is empty; send one")
        is_news = False

        def admit(consumers: list[ConsumerData]) -> list[ConsumerData]:
            nonlocal is_news
            if self.config.reject_pull_consumer_enable:
                # As in RocketMQ they are no members then, so that their pulls are refused.
                consumers = [each for each in consumers if each.consume_type != ACTIVELY]
            is_news = self._make_ready(consumers)
            return [each for each in consumers if self.groups.get(each.group_name) is not None]

        self.clients.register(
            heartbeat,
            connection,
            str(command.language),
            command.version,
            self.now_ms(),
            admit,
            _proxied(header),
        )
        if self.filters.enabled:
            # After everything else is taken over: a faulty expression is refused at once, while in
            # RocketMQ only the pull fails.
            for consumer in heartbeat.consumer_data_set:
                for wanted in consumer.subscription_data_set:
                    self.filters.check(wanted)
        wait = self.topics.wait_registered
        heard = HEARD if header.proxied_address is None else PROXIED_HEARD
        return heard if wait is None or not is_news else _after(wait(REGISTERED_S_MAX), heard)

    def on_unregister(
        self, header: UnregisterClient, command: Command, connection: Connection
    ) -> Response:
        self.clients.unregister(
            connection, header.client_id, header.producer_group, header.consumer_group
        )
        return OK

    def on_consumer_list(
        self, header: ConsumerGroup, command: Command, connection: Connection
    ) -> Response:
        group = self.clients.consumer_group(header.group)
        if group is None:
            raise Refusal(codes.SYSTEM_ERROR, f"no consumer for this group, {header.group}")
        return Response(codes.SUCCESS, body=group.id_list())

    def on_check(self, header: None, command: Command, connection: Connection) -> Response:
        if not command.body:
            return OK  # there is nothing to check
        wanted = body_of(command, CheckClientRequestBody).subscription_data
        if wanted is not None:
            self.filters.check(wanted)
        return OK

    def _make_ready(self, consumers: list[ConsumerData]) -> bool:
        """Create the new groups, and the retry topics, each with one write of their file.

        Returns whether a topic was created.
        """
        self.groups.make([consumer.group_name for consumer in consumers])
        missing = {}
        for consumer in consumers:
            group = self.groups.get(consumer.group_name)
            name = RETRY_PREFIX + consumer.group_name
            if group is None:
                continue
            if name not in self.topics.targets:
                topics = [self.topics.get(data.topic) for data in consumer.subscription_data_set]
                order = any(topic is not None and topic.order for topic in topics)
                queues = max(0, group.retry_queue_nums)  # without any it is in the routes, too
                missing[name] = retry_config(name, queues, unit=consumer.unit_mode, order=order)
            else:
                self.topics.retries(name, group.retry_queue_nums)
        if missing:
            self.topics.put_all(list(missing.values()))
        return bool(missing)


def _proxied(header: Heartbeat) -> Proxied | None:
    if header.proxied_address is None:
        return None
    language = header.proxied_language.upper()
    # The language is a label of metrics, so it has to be one of a few.
    return Proxied(
        header.proxied_address[:ADDRESS_CHARS_MAX], language if language in LANGUAGES else "OTHER"
    )


async def _after(registered: Coroutine[Any, Any, None], heard: Response) -> Response:
    """The response, once the name servers know of the new topics or had their time."""
    await registered
    return heard
