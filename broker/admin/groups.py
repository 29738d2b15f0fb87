"""Requests about consumer groups and their members: 200, 201, 203, 204, 207, 225, 300, 328, 343,
345, 352, 353."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.aio.slices import LongResponse, Slices, reply_of
from ...protocol.bodies import clients as bodies
from ...protocol.bodies.body import body_of, filled
from ...protocol.bodies.group import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from ...protocol.bodies.topic import TopicList
from ...protocol.codec import fastjson
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers import admin
from ...protocol.headers.clients import ConsumerGroup, ProducerGroup
from ...protocol.headers.groups import DeleteGroup, GroupName, GroupTopic
from ...protocol.headers.topics import TopicName
from ...protocol.names import check_group, check_topic
from ..access import gates, needs
from ..groups.clients import Clients, Member
from ..groups.groups import Groups
from ..groups.offsets import Offsets
from ..runtime.stats import Stats

GROUPS_PER_REQUEST_MAX = 10_000


@dataclass(slots=True, eq=False)
class AdminGroupHandlers:
    """Manages consumer groups. `address` is this broker's, as clients see it.
    `forget_pops(group)` drops what pop counts of a group that is deleted."""

    groups: Groups
    offsets: Offsets
    clients: Clients
    stats: Stats
    address: str
    slices: Slices
    forget_pops: Callable[[str], None]

    def rows(self) -> list[Row]:
        return [
            Row(
                codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                None,
                self.on_update,
                needs.GROUP_CREATE,
                gates.TIMED_CHANGE,
            ),
            Row(
                codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
                None,
                self.on_update_list,
                needs.GROUPS_CREATE,
                gates.TIMED_CHANGE,
            ),
            Row(codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None, self.on_all, needs.ANY_USER),
            Row(codes.GET_SUBSCRIPTIONGROUP_CONFIG, GroupName, self.on_config, needs.GROUP_GET),
            Row(
                codes.DELETE_SUBSCRIPTIONGROUP,
                DeleteGroup,
                self.on_delete,
                needs.GROUP_DELETE,
                gates.CHANGE,
            ),
            Row(
                codes.UPDATE_AND_GET_GROUP_FORBIDDEN,
                admin.GroupForbidden,
                self.on_forbidden,
                needs.GROUP_IN_TOPIC_UPDATE,
                gates.CHANGE,
            ),
            Row(
                codes.GET_CONSUMER_CONNECTION_LIST,
                ConsumerGroup,
                self.on_consumers,
                needs.CONSUMERS_GET,
            ),
            Row(
                codes.GET_PRODUCER_CONNECTION_LIST,
                ProducerGroup,
                self.on_producers,
                needs.CLUSTER_GET,
            ),
            Row(codes.GET_ALL_PRODUCER_INFO, None, self.on_all_producers, needs.CLUSTER_GET),
            Row(
                codes.QUERY_TOPIC_CONSUME_BY_WHO,
                TopicName,
                self.on_groups_of_topic,
                needs.TOPIC_GET,
            ),
            Row(
                codes.QUERY_TOPICS_BY_CONSUMER, GroupName, self.on_topics_of_group, needs.GROUP_GET
            ),
            Row(
                codes.QUERY_SUBSCRIPTION_BY_CONSUMER,
                GroupTopic,
                self.on_subscription,
                needs.GROUP_IN_TOPIC_GET,
            ),
        ]

    # --- the groups' settings -------------------------------------------------------------------

    def on_update(self, header: None, command: Command, connection: Connection) -> Response:
        self.groups.put(self._checked(body_of(command, SubscriptionGroupConfig)))
        return OK

    def on_update_list(self, header: None, command: Command, connection: Connection) -> Response:
        wanted = body_of(command, SubscriptionGroupList).group_config_list
        if len(wanted) > GROUPS_PER_REQUEST_MAX:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"{len(wanted)} groups in one request, the limit is {GROUPS_PER_REQUEST_MAX}; "
                "send several",
            )
        if wanted:
            self.groups.put_all([self._checked(config) for config in wanted])
        return OK

    def on_all(self, header: None, command: Command, connection: Connection) -> LongResponse:
        return self.slices.respond(reply_of(self.groups.pieces()))

    def on_config(self, header: GroupName, command: Command, connection: Connection) -> Response:
        config = self.groups.find_quietly(header.group)
        if config is None:
            raise Refusal(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"No group in this broker: {header.group}; create it",
            )
        return Response(codes.SUCCESS, body=config.encode())

    def on_delete(self, header: DeleteGroup, command: Command, connection: Connection) -> Response:
        self.groups.delete(header.group)
        if header.clean_offset:
            self.offsets.delete_group(header.group)
            self.forget_pops(header.group)
        self.stats.delete_group(header.group)
        return OK

    def on_forbidden(
        self, header: admin.GroupForbidden, command: Command, connection: Connection
    ) -> Response:
        if header.readable is not None:
            if self.groups.get(header.group) is None:
                raise Refusal(
                    codes.SUBSCRIPTION_GROUP_NOT_EXIST,
                    f"Group {header.group} does not exist; create it first",
                )
            check_topic(header.topic)
            self.groups.set_readable(header.group, header.topic, header.readable)
        readable = not self.groups.forbids(header.group, header.topic)
        body = GroupForbidden(header.topic, header.group, readable)
        return Response(codes.SUCCESS, remark="", body=body.encode())

    # --- connected clients -----------------------------------------------------------------------

    def on_consumers(
        self, header: ConsumerGroup, command: Command, connection: Connection
    ) -> LongResponse:
        group = self.clients.consumer_group(header.group)
        if group is None:
            raise Refusal(
                codes.CONSUMER_NOT_ONLINE, f"the consumer group[{header.group}] not online"
            )
        body = bodies.ConsumerConnection(
            [],
            dict(group.subscriptions),
            group.consume_type,
            group.message_model,
            group.consume_from_where,
        )
        members = map(_connection, list(group.members.values()))
        return self.slices.respond(reply_of(filled(body, "connectionSet", members)))

    def on_producers(
        self, header: ProducerGroup, command: Command, connection: Connection
    ) -> LongResponse:
        members = self.clients.producer_group(header.group)
        if not members:
            raise Refusal(codes.SYSTEM_ERROR, f"the producer group[{header.group}] not exist")
        found = filled(
            bodies.ProducerConnection(), "connectionSet", map(_connection, members.values())
        )
        return self.slices.respond(reply_of(found))

    def on_all_producers(
        self, header: None, command: Command, connection: Connection
    ) -> LongResponse:
        groups = self._producers_by_group()
        return self.slices.respond(reply_of(filled(bodies.ProducerTableInfo(), "data", groups)))

    # --- groups and topics ----------------------------------------------------------------------

    def on_groups_of_topic(
        self, header: TopicName, command: Command, connection: Connection
    ) -> LongResponse:
        # Java 5.3.3 puts the topic's own name among the groups; that is its mistake, not a rule.
        live = self.clients.groups_of_topic(header.topic)
        names = sorted({*live, *self.offsets.groups_of(header.topic)})
        found = filled(bodies.GroupList(), "groupList", map(fastjson.dump, names))
        return self.slices.respond(reply_of(found))

    def on_topics_of_group(
        self, header: GroupName, command: Command, connection: Connection
    ) -> LongResponse:
        names = map(fastjson.dump, sorted(self.offsets.topics_of(header.group)))
        found = filled(TopicList([], self.address), "topicList", names)
        return self.slices.respond(reply_of(found))

    def on_subscription(
        self, header: GroupTopic, command: Command, connection: Connection
    ) -> Response:
        group = self.clients.consumer_group(header.group)
        data = None if group is None else group.subscriptions.get(header.topic or "")
        body = bodies.QuerySubscriptionResponseBody(data, header.group, header.topic)
        return Response(codes.SUCCESS, body=body.encode())

    # --- inside ---------------------------------------------------------------------------------

    def _producers_by_group(self) -> Iterator[bytes]:
        for group in sorted(self.clients.producer_names()):
            members = self.clients.producer_group(group)
            if not members:
                continue
            text = []
            for member in members.values():
                text.append(_producer(member).encode())
                yield b""
            yield b"%b:[%b]" % (fastjson.dump(group), b",".join(text))

    def _checked(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """The group with the attributes that it has; Refusal for a bad name or an attribute."""
        name = config.group_name or ""
        check_group(name)
        for key in config.attributes:
            raise Refusal(
                codes.SYSTEM_ERROR, f"unsupported key: {key[1:]}; groups have no attributes"
            )
        known = self.groups.get(name)
        if known is not None:
            config.attributes = known.attributes
        return config


def _connection(member: Member) -> bytes:
    return bodies.Connection(
        member.client_id, member.address, member.language, member.version
    ).encode()


def _producer(member: Member) -> bodies.ProducerInfo:
    return bodies.ProducerInfo(
        member.client_id,
        f"/{member.address}",  # as Java writes a socket's address
        member.language,
        member.version,
        member.last_ms,
    )
