"""The permissions that the requests of a broker need, for the rows of its request table.

They follow RocketMQ's DefaultAuthorizationContextBuilder and the annotations of its header classes.
RocketMQ allows some requests to every user that signs them, such as changing the broker's settings
or reading all offsets. Here each of these needs a permission for the cluster, a topic or a group
(`is_ours`).
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from ...protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupList
from ...protocol.bodies.heartbeat import HeartbeatData
from ...protocol.bodies.pop import BatchAckMessageRequestBody
from ...protocol.bodies.queues import LockBatchRequestBody
from ...protocol.bodies.topic import CreateTopicListRequestBody
from ...protocol.command import Command
from ...protocol.headers.clients import ConsumeMessageDirectly
from ...protocol.headers.send import ConsumerSendMsgBack
from ...protocol.headers.topics import ViewMessage
from ...protocol.message.message_id import parse_offset_message_id
from ...protocol.message.record import decode_record
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ...protocol.security.needs import (
    ANY_USER,
    CLUSTER_GET,
    CLUSTER_UPDATE,
    Actions,
    Fields,
    Needs,
    on_cluster,
)
from ...protocol.security.policies import (
    CLUSTER,
    CREATE,
    DELETE,
    GET,
    GROUP,
    PUB,
    SUB,
    TOPIC,
    UPDATE,
    Need,
)

__all__ = ["ANY_USER", "CLUSTER_GET", "CLUSTER_UPDATE"]  # for rows

# Gives the record at a log offset, None where there is none.
MessageAt = Callable[[int], bytes | None]

# Fields with several names in them, and the separator between the names.
_LISTS = {"topicList": ";", "filterGroups": ","}


def names(
    *actions: str,
    topics: tuple[str, ...] = (),
    groups: tuple[str, ...] = (),
    is_ours: bool = False,
) -> Needs:
    """One of these actions on each topic and group that these header fields name."""

    def find(command: Command, fields: Fields, cluster: str) -> list[Need]:
        found = [
            *(topic_need(one, actions) for one in _values(fields, topics)),
            *(Need(GROUP, one, actions) for one in _values(fields, groups)),
        ]
        # Without a name the request is for all topics or groups, so it needs the cluster.
        return found or [Need(CLUSTER, cluster, actions)]

    kinds = ((TOPIC, topics), (GROUP, groups))
    asks = tuple((kind, actions) for kind, named in kinds if named)
    return Needs(asks, find, is_ours=is_ours)


def topic_need(topic: str, actions: Actions) -> Need:
    """The permission for a topic; for a retry topic, the permission for its group."""
    if topic.startswith(RETRY_PREFIX):
        return Need(GROUP, topic.removeprefix(RETRY_PREFIX), actions)
    return Need(TOPIC, topic, actions)


def sending_needs(topic: str) -> list[Need]:
    """The permissions to send to a topic: PUB on it, or for a retry topic SUB on its group."""
    need = topic_need(topic, (PUB,))
    return [need if need.kind == TOPIC else Need(GROUP, need.name, (SUB,))]


def _values(fields: Fields, wanted: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for name in wanted:
        text = fields.get(name)
        if text is None:
            continue
        between = _LISTS.get(name)
        found += [text] if between is None else [one for one in text.split(between) if one]
    return found


def _bare(group: str) -> str:
    return group.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)


def _send(command: Command, fields: Fields, cluster: str) -> list[Need]:
    return sending_needs(fields.get("topic", ""))


def _send_short(command: Command, fields: Fields, cluster: str) -> list[Need]:
    return sending_needs(fields.get("b", ""))


def _pull(command: Command, fields: Fields, cluster: str) -> list[Need]:
    topic, group = fields.get("topic", ""), _bare(fields.get("consumerGroup", ""))
    return list(dict.fromkeys([*_reading(topic, group), Need(GROUP, group, (SUB,))]))


def _reading(topic: str, group: str) -> list[Need]:
    """The permissions to read a topic as a member of a group."""
    need = topic_need(topic, (SUB,))
    # The group's own retry topics, also those of pop, whose names end with the topic's name.
    is_own = need.kind == GROUP and need.name.startswith((f"{group}_", f"{group}+"))
    return [] if is_own else [need]


def _end_transaction(command: Command, fields: Fields, cluster: str) -> list[Need]:
    topic = fields.get("topic", "")  # clients before 5.0 don't send it
    return [Need(TOPIC, topic, (PUB,))] if topic.strip() else []


def _heartbeat(command: Command, fields: Fields, cluster: str) -> Iterable[Need]:
    for consumer in HeartbeatData.decode(command.body).consumer_data_set:
        yield Need(GROUP, _bare(consumer.group_name), (SUB,))
        for wanted in consumer.subscription_data_set:
            if not (wanted.topic or "").startswith(RETRY_PREFIX):
                yield Need(TOPIC, wanted.topic or "", (SUB,))


def _unregister(command: Command, fields: Fields, cluster: str) -> list[Need]:
    group = fields.get("consumerGroup", "")
    return [Need(GROUP, _bare(group), (SUB,))] if group.strip() else []


def _lock(command: Command, fields: Fields, cluster: str) -> Iterable[Need]:
    body = LockBatchRequestBody.decode(command.body)
    yield Need(GROUP, _bare(body.consumer_group), (SUB,))
    for topic in dict.fromkeys(queue.topic for queue in body.mq_set):
        if not topic.startswith(RETRY_PREFIX):
            yield Need(TOPIC, topic, (SUB,))


def _batch_ack(command: Command, fields: Fields, cluster: str) -> list[Need]:
    acks = BatchAckMessageRequestBody.decode(command.body).acks
    found = []
    for ack in acks:
        found += [topic_need(ack.topic, (SUB,)), Need(GROUP, ack.consumer_group, (SUB,))]
    return list(dict.fromkeys(found))


def _create_topics(command: Command, fields: Fields, cluster: str) -> list[Need]:
    configs = CreateTopicListRequestBody.decode(command.body).topic_config_list
    return [topic_need(config.topic_name or "", (CREATE,)) for config in configs]


def _create_group(command: Command, fields: Fields, cluster: str) -> list[Need]:
    config = SubscriptionGroupConfig.decode(command.body)
    return [Need(GROUP, config.group_name or "", (CREATE,))]


def _create_groups(command: Command, fields: Fields, cluster: str) -> list[Need]:
    configs = SubscriptionGroupList.decode(command.body).group_config_list
    return [Need(GROUP, config.group_name or "", (CREATE,)) for config in configs]


# --- for rows: what is named in the header, in the body, and in a message -------------------------

OUR_CLUSTER_GET = on_cluster(GET, is_ours=True)
OUR_CLUSTER_UPDATE = on_cluster(UPDATE, is_ours=True)

_TOPIC, _GROUP, _CONSUMERS = ("topic",), ("group",), ("consumerGroup",)
TOPIC_GET = names(GET, topics=_TOPIC)
TOPIC_READ = names(SUB, GET, topics=_TOPIC)
TOPIC_PUB = names(PUB, topics=_TOPIC)
TOPIC_CREATE = names(CREATE, topics=_TOPIC)
TOPIC_UPDATE = names(UPDATE, topics=_TOPIC)
TOPIC_DELETE = names(DELETE, topics=_TOPIC)
STATIC_TOPIC_CREATE = replace(TOPIC_CREATE, is_ours=True)
GROUP_GET = names(GET, groups=_GROUP)
GROUP_DELETE = names(DELETE, groups=("groupName",))
CONSUMERS_GET = names(GET, groups=_CONSUMERS)
CONSUMERS_READ = names(SUB, GET, groups=_CONSUMERS)
GROUP_IN_TOPIC_GET = names(GET, topics=_TOPIC, groups=_GROUP)
GROUP_IN_TOPIC_UPDATE = names(UPDATE, topics=_TOPIC, groups=_GROUP)
CONSUMERS_OF_TOPIC_GET = names(GET, topics=_TOPIC, groups=_CONSUMERS)
CONSUMERS_OF_TOPICS_GET = names(GET, topics=("topic", "topicList"), groups=_CONSUMERS)
OFFSET_READ = names(SUB, GET, topics=_TOPIC, groups=_CONSUMERS)
OFFSET_UPDATE = names(SUB, UPDATE, topics=_TOPIC, groups=_CONSUMERS)
OFFSETS_COMPARE = names(GET, topics=_TOPIC, groups=("filterGroups", "compareGroup"))
OFFSETS_CLONE = names(UPDATE, topics=_TOPIC, groups=("destGroup",))
POP = names(SUB, topics=_TOPIC, groups=_CONSUMERS)

_SENDING = ((TOPIC, (PUB,)),)
_CONSUMING = ((TOPIC, (SUB,)), (GROUP, (SUB,)))
SEND = Needs(_SENDING, _send)
SEND_SHORT = Needs(_SENDING, _send_short)
PULL = Needs(_CONSUMING, _pull)
LITE_PULL = replace(PULL, is_ours=True)
BATCH_ACK = Needs(_CONSUMING, _batch_ack, is_ours=True)
END_TRANSACTION = Needs(_SENDING, _end_transaction)
HEARTBEAT = Needs(_CONSUMING, _heartbeat)
UNREGISTER = Needs(((GROUP, (SUB,)),), _unregister)
LOCK = Needs(_CONSUMING, _lock)
TOPICS_CREATE = Needs(((TOPIC, (CREATE,)),), _create_topics, is_ours=True)
GROUP_CREATE = Needs(((GROUP, (CREATE,)),), _create_group, is_ours=True)
GROUPS_CREATE = Needs(((GROUP, (CREATE,)),), _create_groups, is_ours=True)


def view(message_at: MessageAt) -> Needs:
    """VIEW_MESSAGE_BY_ID: the topic of the message. RocketMQ checks the topic that the request
    names, or none: there every user can read every message."""

    def find(command: Command, fields: Fields, cluster: str) -> list[Need]:
        topic = _topic_at(command.header(ViewMessage).offset, message_at)
        topics = [*_values(fields, _TOPIC), *([] if topic is None else [topic])]
        return [topic_need(one, (GET,)) for one in topics]

    return Needs(((TOPIC, (GET,)),), find)


def send_back(message_at: MessageAt) -> Needs:
    """CONSUMER_SEND_MSG_BACK: the group, and the topic of the message."""
    group = names(SUB, groups=_GROUP)

    def find(command: Command, fields: Fields, cluster: str) -> list[Need]:
        place = command.header(ConsumerSendMsgBack).offset
        return _with_message(group, command, fields, cluster, _topic_at(place, message_at))

    return Needs(_CONSUMING, find)


def consume_directly(message_at: MessageAt) -> Needs:
    """CONSUME_MESSAGE_DIRECTLY: group, topic, and the topic of the message."""
    named = names(SUB, topics=_TOPIC, groups=_CONSUMERS)

    def find(command: Command, fields: Fields, cluster: str) -> list[Need]:
        try:
            place = parse_offset_message_id(command.header(ConsumeMessageDirectly).msg_id or "")[1]
        except ValueError:
            topic = None  # its handler refuses it
        else:
            topic = _topic_at(place, message_at)
        return _with_message(named, command, fields, cluster, topic)

    return Needs(_CONSUMING, find)


def _topic_at(place: int, message_at: MessageAt) -> str | None:
    record = message_at(place)
    return None if record is None else decode_record(record).topic


def _with_message(
    named: Needs, command: Command, fields: Fields, cluster: str, topic: str | None
) -> list[Need]:
    """The needs of a request's names, and the need to read the topic of the message in question."""
    found = named.of(command, fields, cluster)
    if topic is not None:
        group = fields.get("group") or fields.get("consumerGroup") or ""
        found += _reading(topic, _bare(group))
    return found
