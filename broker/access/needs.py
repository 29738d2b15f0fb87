"""The permissions that each request needs, where authorization is on.

They follow RocketMQ's DefaultAuthorizationContextBuilder and the annotations of its header classes.
RocketMQ allows some requests to every user that signs them, such as changing the broker's settings
or reading all offsets. Here each of these needs a permission for the cluster, a topic or a group;
`SEEN_HERE_ALONE` lists them. A request that this file doesn't know needs UPDATE on the cluster.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...protocol import codes
from ...protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupList
from ...protocol.bodies.heartbeat import HeartbeatData
from ...protocol.bodies.pop import BatchAckMessageRequestBody
from ...protocol.bodies.queues import LockBatchRequestBody
from ...protocol.bodies.topic import CreateTopicListRequestBody
from ...protocol.command import Command
from ...protocol.errors import Refusal
from ...protocol.headers.clients import ConsumeMessageDirectly
from ...protocol.headers.send import ConsumerSendMsgBack
from ...protocol.headers.topics import ViewMessage
from ...protocol.message.message_id import parse_offset_message_id
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
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

Fields = dict[str, str]
Actions = tuple[str, ...]

# Allowed to every user that signs: requests about the user itself, and state that RocketMQ shows
# every user, such as the broker's and the settings of topics and groups.
FREE = frozenset(
    {
        codes.CHECK_CLIENT_CONFIG,
        codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        codes.GET_ALL_TOPIC_CONFIG,
        codes.GET_BROKER_RUNTIME_INFO,
        codes.QUERY_ASSIGNMENT,
        codes.SEND_REPLY_MESSAGE,
        codes.SEND_REPLY_MESSAGE_V2,
    }
)
CLUSTER_GET = frozenset(
    {
        codes.GET_PRODUCER_CONNECTION_LIST,
        codes.VIEW_BROKER_STATS_DATA,
        codes.GET_BROKER_CONSUME_STATS,
        codes.GET_ALL_PRODUCER_INFO,
        codes.AUTH_GET_USER,
        codes.AUTH_LIST_USER,
        codes.AUTH_GET_ACL,
        codes.AUTH_LIST_ACL,
    }
)
CLUSTER_UPDATE = frozenset(
    {
        codes.RESET_MASTER_FLUSH_OFFSET,
        codes.AUTH_CREATE_USER,
        codes.AUTH_UPDATE_USER,
        codes.AUTH_DELETE_USER,
        codes.AUTH_CREATE_ACL,
        codes.AUTH_UPDATE_ACL,
        codes.AUTH_DELETE_ACL,
    }
)
# The same for requests that RocketMQ doesn't check.
OWN_CLUSTER_GET = frozenset(
    {
        codes.GET_BROKER_CONFIG,
        codes.GET_ALL_CONSUMER_OFFSET,
        codes.GET_ALL_DELAY_OFFSET,
        codes.GET_TIMER_CHECK_POINT,
        codes.GET_TIMER_METRICS,
        codes.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        codes.GET_COLD_DATA_FLOW_CTR_INFO,
        codes.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        codes.GET_ALL_MESSAGE_REQUEST_MODE,
        codes.GET_BROKER_HA_STATUS,
        codes.GET_BROKER_EPOCH_CACHE,
        codes.EXCHANGE_BROKER_HA_INFO,
        codes.NOTIFY_BROKER_ROLE_CHANGED,
        codes.GET_TOPIC_SUMMARIES,
        codes.GET_GROUP_SUMMARIES,
        codes.NOTIFY_MIN_BROKER_ID_CHANGE,
    }
)
OWN_CLUSTER_UPDATE = frozenset(
    {
        codes.UPDATE_BROKER_CONFIG,
        codes.CLEAN_EXPIRED_CONSUMEQUEUE,
        codes.CLEAN_UNUSED_TOPIC,
        codes.DELETE_EXPIRED_COMMITLOG,
        codes.SET_MESSAGE_REQUEST_MODE,
        codes.POP_ROLLBACK,
        codes.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        codes.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        codes.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        codes.SET_COMMITLOG_READ_MODE,
        codes.HAND_OVER_QUEUE_LOCKS,
    }
)


class _Named(NamedTuple):
    """A request whose header fields name topics and groups."""

    actions: Actions
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


_TOPIC, _GROUP, _CONSUMERS = ("topic",), ("group",), ("consumerGroup",)
NAMED = {
    codes.QUERY_MESSAGE: _Named((SUB, GET), _TOPIC),
    codes.QUERY_CONSUMER_OFFSET: _Named((SUB, GET), _TOPIC, _CONSUMERS),
    codes.UPDATE_CONSUMER_OFFSET: _Named((SUB, UPDATE), _TOPIC, _CONSUMERS),
    codes.UPDATE_AND_CREATE_TOPIC: _Named((CREATE,), _TOPIC),
    codes.UPDATE_AND_CREATE_STATIC_TOPIC: _Named((CREATE,), _TOPIC),
    codes.SEARCH_OFFSET_BY_TIMESTAMP: _Named((GET,), _TOPIC),
    codes.GET_MAX_OFFSET: _Named((GET,), _TOPIC),
    codes.GET_MIN_OFFSET: _Named((GET,), _TOPIC),
    codes.GET_EARLIEST_MSG_STORETIME: _Named((GET,), _TOPIC),
    codes.CONSUMER_SEND_MSG_BACK: _Named((SUB,), (), _GROUP),
    codes.GET_CONSUMER_LIST_BY_GROUP: _Named((SUB, GET), (), _CONSUMERS),
    codes.GET_TOPIC_STATS_INFO: _Named((GET,), _TOPIC),
    codes.GET_CONSUMER_CONNECTION_LIST: _Named((GET,), (), _CONSUMERS),
    codes.DELETE_SUBSCRIPTIONGROUP: _Named((DELETE,), (), ("groupName",)),
    codes.GET_CONSUME_STATS: _Named((GET,), ("topic", "topicList"), _CONSUMERS),
    codes.DELETE_TOPIC_IN_BROKER: _Named((DELETE,), _TOPIC),
    codes.INVOKE_BROKER_TO_RESET_OFFSET: _Named((UPDATE,), _TOPIC, _GROUP),
    codes.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _Named((GET,), _TOPIC, _GROUP),
    codes.QUERY_TOPIC_CONSUME_BY_WHO: _Named((GET,), _TOPIC),
    codes.QUERY_CONSUME_TIME_SPAN: _Named((GET,), _TOPIC, _GROUP),
    codes.GET_CONSUMER_RUNNING_INFO: _Named((GET,), (), _CONSUMERS),
    codes.QUERY_CORRECTION_OFFSET: _Named((GET,), _TOPIC, ("filterGroups", "compareGroup")),
    codes.CONSUME_MESSAGE_DIRECTLY: _Named((SUB,), _TOPIC, _CONSUMERS),
    codes.CLONE_GROUP_OFFSET: _Named((UPDATE,), _TOPIC, ("destGroup",)),
    codes.QUERY_CONSUME_QUEUE: _Named((GET,), _TOPIC, _CONSUMERS),
    codes.RESUME_CHECK_HALF_MESSAGE: _Named((UPDATE,), _TOPIC),
    codes.QUERY_TOPICS_BY_CONSUMER: _Named((GET,), (), _GROUP),
    codes.QUERY_SUBSCRIPTION_BY_CONSUMER: _Named((GET,), _TOPIC, _GROUP),
    codes.GET_TOPIC_CONFIG: _Named((GET,), _TOPIC),
    codes.GET_SUBSCRIPTIONGROUP_CONFIG: _Named((GET,), (), _GROUP),
    codes.UPDATE_AND_GET_GROUP_FORBIDDEN: _Named((UPDATE,), _TOPIC, _GROUP),
    codes.RECALL_MESSAGE: _Named((PUB,), _TOPIC),
    codes.POP_MESSAGE: _Named((SUB,), _TOPIC, _CONSUMERS),
    codes.PEEK_MESSAGE: _Named((SUB,), _TOPIC, _CONSUMERS),
    codes.ACK_MESSAGE: _Named((SUB,), _TOPIC, _CONSUMERS),
    codes.CHANGE_MESSAGE_INVISIBLETIME: _Named((SUB,), _TOPIC, _CONSUMERS),
    codes.NOTIFICATION: _Named((SUB,), _TOPIC, _CONSUMERS),
    codes.POLLING_INFO: _Named((GET,), _TOPIC, _CONSUMERS),
}
# Fields above with several names in them, and the separator between the names.
_LISTS = {"topicList": ";", "filterGroups": ","}


def needs(command: Command, fields: Fields, cluster: str) -> list[Need]:
    """All permissions that a request needs. Refusal when its body doesn't name its resources."""
    code = command.code
    if code in FREE:
        return []
    named = NAMED.get(code)
    if named is not None:
        found = [
            *(topic_need(one, named.actions) for one in _values(fields, named.topics)),
            *(Need(GROUP, one, named.actions) for one in _values(fields, named.groups)),
        ]
        # Without a name the request is for all topics or groups, so it needs the cluster.
        return found or [Need(CLUSTER, cluster, named.actions)]
    special = _SPECIAL.get(code)
    if special is not None:
        try:
            return list(special(command, fields))
        except ValueError as wrong:
            text = f"parse authorization context error: {wrong}"
            raise Refusal(codes.NO_PERMISSION, text) from None
    action = GET if code in CLUSTER_GET or code in OWN_CLUSTER_GET else UPDATE
    return [Need(CLUSTER, cluster, (action,))]


def place_of(command: Command) -> int | None:
    """The log offset of the message that a request names by offset; None if it names none.

    Refusal when its header can't be read.
    """
    code = command.code
    if code == codes.VIEW_MESSAGE_BY_ID:
        return command.header(ViewMessage).offset
    if code == codes.CONSUMER_SEND_MSG_BACK:
        return command.header(ConsumerSendMsgBack).offset
    if code == codes.CONSUME_MESSAGE_DIRECTLY:
        try:
            return parse_offset_message_id(command.header(ConsumeMessageDirectly).msg_id or "")[1]
        except ValueError:
            return None  # its handler refuses it
    return None


def placed_needs(command: Command, fields: Fields, topic: str) -> list[Need]:
    """The permission for the topic of the message that the request names.

    RocketMQ checks the topic that the request names, or none: there every user can read every
    message.
    """
    if command.code == codes.VIEW_MESSAGE_BY_ID:
        return [topic_need(topic, (GET,))]
    group = fields.get("group") or fields.get("consumerGroup") or ""
    return _reading(topic, _bare(group))


def topic_need(topic: str, actions: Actions) -> Need:
    """The permission for a topic; for a retry topic, the permission for its group."""
    if topic.startswith(RETRY_PREFIX):
        return Need(GROUP, topic.removeprefix(RETRY_PREFIX), actions)
    return Need(TOPIC, topic, actions)


def _values(fields: Fields, names: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for name in names:
        text = fields.get(name)
        if text is None:
            continue
        between = _LISTS.get(name)
        found += [text] if between is None else [one for one in text.split(between) if one]
    return found


def sending_needs(topic: str) -> list[Need]:
    """The permissions to send to a topic: PUB on it, or for a retry topic SUB on its group."""
    need = topic_need(topic, (PUB,))
    return [need if need.kind == TOPIC else Need(GROUP, need.name, (SUB,))]


def _send(command: Command, fields: Fields) -> list[Need]:
    return sending_needs(fields.get("topic", ""))


def _send_short(command: Command, fields: Fields) -> list[Need]:
    return sending_needs(fields.get("b", ""))


def _pull(command: Command, fields: Fields) -> list[Need]:
    topic, group = fields.get("topic", ""), _bare(fields.get("consumerGroup", ""))
    return list(dict.fromkeys([*_reading(topic, group), Need(GROUP, group, (SUB,))]))


def _reading(topic: str, group: str) -> list[Need]:
    """The permissions to read a topic as a member of a group."""
    need = topic_need(topic, (SUB,))
    # The group's own retry topics, also those of pop, whose names end with the topic's name.
    is_own = need.kind == GROUP and need.name.startswith((f"{group}_", f"{group}+"))
    return [] if is_own else [need]


def _view(command: Command, fields: Fields) -> list[Need]:
    return [topic_need(one, (GET,)) for one in _values(fields, _TOPIC)]


def _end_transaction(command: Command, fields: Fields) -> list[Need]:
    topic = fields.get("topic", "")  # clients before 5.0 don't send it
    return [Need(TOPIC, topic, (PUB,))] if topic.strip() else []


def _heartbeat(command: Command, fields: Fields) -> Iterable[Need]:
    for consumer in HeartbeatData.decode(command.body).consumer_data_set:
        yield Need(GROUP, _bare(consumer.group_name), (SUB,))
        for wanted in consumer.subscription_data_set:
            if not (wanted.topic or "").startswith(RETRY_PREFIX):
                yield Need(TOPIC, wanted.topic or "", (SUB,))


def _unregister(command: Command, fields: Fields) -> list[Need]:
    group = fields.get("consumerGroup", "")
    return [Need(GROUP, _bare(group), (SUB,))] if group.strip() else []


def _lock(command: Command, fields: Fields) -> Iterable[Need]:
    body = LockBatchRequestBody.decode(command.body)
    yield Need(GROUP, _bare(body.consumer_group), (SUB,))
    for topic in dict.fromkeys(queue.topic for queue in body.mq_set):
        if not topic.startswith(RETRY_PREFIX):
            yield Need(TOPIC, topic, (SUB,))


def _batch_ack(command: Command, fields: Fields) -> list[Need]:
    acks = BatchAckMessageRequestBody.decode(command.body).acks
    found = []
    for ack in acks:
        found += [topic_need(ack.topic, (SUB,)), Need(GROUP, ack.consumer_group, (SUB,))]
    return list(dict.fromkeys(found))


def _create_topics(command: Command, fields: Fields) -> list[Need]:
    configs = CreateTopicListRequestBody.decode(command.body).topic_config_list
    return [topic_need(config.topic_name or "", (CREATE,)) for config in configs]


def _create_group(command: Command, fields: Fields) -> list[Need]:
    config = SubscriptionGroupConfig.decode(command.body)
    return [Need(GROUP, config.group_name or "", (CREATE,))]


def _create_groups(command: Command, fields: Fields) -> list[Need]:
    configs = SubscriptionGroupList.decode(command.body).group_config_list
    return [Need(GROUP, config.group_name or "", (CREATE,)) for config in configs]


def _bare(group: str) -> str:
    return group.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)


_SPECIAL: dict[int, Callable[[Command, Fields], Iterable[Need]]] = {
    codes.SEND_MESSAGE: _send,
    codes.SEND_MESSAGE_V2: _send_short,
    codes.SEND_BATCH_MESSAGE: _send_short,
    codes.PULL_MESSAGE: _pull,
    codes.LITE_PULL_MESSAGE: _pull,
    codes.END_TRANSACTION: _end_transaction,
    codes.VIEW_MESSAGE_BY_ID: _view,
    codes.HEART_BEAT: _heartbeat,
    codes.UNREGISTER_CLIENT: _unregister,
    codes.LOCK_BATCH_MQ: _lock,
    codes.UNLOCK_BATCH_MQ: _lock,
    codes.BATCH_ACK_MESSAGE: _batch_ack,
    codes.UPDATE_AND_CREATE_TOPIC_LIST: _create_topics,
    codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _create_group,
    codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _create_groups,
}
SEEN_HERE_ALONE = (
    OWN_CLUSTER_GET
    | OWN_CLUSTER_UPDATE
    | {
        codes.LITE_PULL_MESSAGE,
        codes.BATCH_ACK_MESSAGE,
        codes.UPDATE_AND_CREATE_TOPIC_LIST,
        codes.UPDATE_AND_CREATE_STATIC_TOPIC,
        codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    }
)
KNOWN = frozenset(
    {*FREE, *CLUSTER_GET, *CLUSTER_UPDATE, *NAMED, *_SPECIAL, *OWN_CLUSTER_GET, *OWN_CLUSTER_UPDATE}
)
