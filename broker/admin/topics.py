"""Requests that create, delete and describe topics: 17, 18, 21, 202, 215, 305, 351, 513.

Remarks and checks follow RocketMQ, in its order. Values without any meaning (a negative number of
queues, a name that could leave the store's folder) are refused here, though Java accepts them.
"""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.aio.slices import LongResponse, Slices, reply_of
from ...protocol.bodies.body import MessageQueue, body_of, filled
from ...protocol.bodies.stats import TopicOffset, TopicStatsTable
from ...protocol.bodies.topic import (
    CreateTopicListRequestBody,
    TopicConfig,
    TopicConfigAndQueueMapping,
    TopicList,
)
from ...protocol.bodies.topic_queue_mapping import TopicQueueMappingDetail
from ...protocol.codec import fastjson
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.topics import GetTopicConfig, TopicName, UpdateTopic
from ...protocol.names import (
    REPLY_TOPIC_SUFFIX,
    RETRY_PREFIX,
    SYSTEM_TOPICS,
    check_topic,
    is_system_topic,
)
from ...store.base.errors import StoreError
from ...store.engine.store import MessageStore
from ..access import gates, needs
from ..groups.offsets import Offsets
from ..runtime.stats import Stats
from ..settings.config import BrokerConfig
from ..topics.attributes import MESSAGE_TYPE, MIXED, changed, parse_change
from ..topics.topics import Topics

REGISTERED_S_MAX = 3.0  # how long the creation of a topic waits for the name servers
FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
PERM_MAX = 7
TOPICS_PER_REQUEST_MAX = 10_000

# The remark of a Java response that no handler has set one for; its tools accept it.
DONE = Response(codes.SUCCESS, remark="not set any response code")


def system_topics(config: BrokerConfig) -> frozenset[str]:
    """The topics of this broker itself: no request may change or delete them."""
    cluster, broker = config.broker_cluster_name, config.broker_name
    own = {
        cluster,
        broker,
        f"{cluster}{REPLY_TOPIC_SUFFIX}",
        f"rmq_sys_REVIVE_LOG_{cluster}",
        f"rmq_sys_SYNC_BROKER_MEMBER_{broker}",
        "rmq_sys_wheel_timer",
    }
    if config.trace_topic_enable:
        own.add(config.msg_trace_topic_name)
    return SYSTEM_TOPICS | own


def delete_topic(
    topic: str,
    store: MessageStore,
    topics: Topics,
    offsets: Offsets,
    stats: Stats,
    forget_pops: Callable[[str], None],
) -> None:
    """Delete a topic and what belongs to it in these tables; StoreError for a file that stays.

    `forget_pops(name)` drops what pop counts of it. The file of the offsets is the caller's to
    write.
    """
    for name in [topic, *_pop_retry_topics(topic, topics, offsets)]:
        store.delete_topic(name)
        topics.delete(name)
        offsets.delete_topic(name)
        stats.delete_topic(name)
        forget_pops(name)


def _pop_retry_topics(topic: str, topics: Topics, offsets: Offsets) -> list[str]:
    """The topics in which pop kept what groups of this topic have to see again."""
    names = (
        f"{RETRY_PREFIX}{group}{divider}{topic}"
        for group in offsets.groups_of(topic)
        for divider in "+_"
    )
    return [name for name in names if topics.get(name) is not None]


async def _after(registered: Coroutine[Any, Any, None]) -> Response:
    """After the response the client may look up the topic's route at once."""
    await registered
    return DONE


@dataclass(slots=True, eq=False)
class AdminTopicHandlers:
    """Manages topics. `save_offsets()` writes the offsets to their file and tells whether that
    succeeded. `forget_pops(topic)` drops what pop counts of a topic."""

    config: BrokerConfig
    store: MessageStore
    topics: Topics
    offsets: Offsets
    stats: Stats
    slices: Slices
    save_offsets: Callable[[], Awaitable[bool]]
    forget_pops: Callable[[str], None]
    _system: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._system = system_topics(self.config)

    def rows(self) -> list[Row]:
        return [
            Row(
                codes.UPDATE_AND_CREATE_TOPIC,
                UpdateTopic,
                self.on_update,
                needs.TOPIC_CREATE,
                gates.TIMED_CHANGE,
            ),
            Row(
                codes.UPDATE_AND_CREATE_TOPIC_LIST,
                None,
                self.on_update_list,
                needs.TOPICS_CREATE,
                gates.TIMED_CHANGE,
            ),
            Row(
                codes.UPDATE_AND_CREATE_STATIC_TOPIC,
                UpdateTopic,
                self.on_update_static,
                needs.STATIC_TOPIC_CREATE,
                gates.CHANGE,
            ),
            Row(codes.GET_ALL_TOPIC_CONFIG, None, self.on_all, needs.ANY_USER),
            Row(codes.GET_TOPIC_STATS_INFO, TopicName, self.on_stats, needs.TOPIC_GET),
            Row(
                codes.DELETE_TOPIC_IN_BROKER,
                TopicName,
                self.on_delete,
                needs.TOPIC_DELETE,
                gates.CHANGE,
            ),
            Row(
                codes.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
                None,
                self.on_system_list,
                needs.OUR_CLUSTER_GET,
            ),
            Row(codes.GET_TOPIC_CONFIG, GetTopicConfig, self.on_config, needs.TOPIC_GET),
        ]

    def on_update(
        self, header: UpdateTopic, command: Command, connection: Connection
    ) -> Response | Coroutine[Any, Any, Response]:
        self._check_name(header.topic)
        try:
            change = parse_change(header.attributes)
        except ValueError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
        config = TopicConfig(
            header.topic,
            header.read_queues,
            header.write_queues,
            header.perm,
            header.filter_type,
            header.sys_flag or 0,
            header.order,
            change,
        )
        return self._put([self._checked(config)])

    def on_update_list(
        self, header: None, command: Command, connection: Connection
    ) -> Response | Coroutine[Any, Any, Response]:
        wanted = body_of(command, CreateTopicListRequestBody).topic_config_list
        if len(wanted) > TOPICS_PER_REQUEST_MAX:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"{len(wanted)} topics in one request, the limit is {TOPICS_PER_REQUEST_MAX}; "
                "send several",
            )
        for config in wanted:
            self._check_name(config.topic_name or "")
        return self._put([self._checked(config) for config in wanted])

    def on_update_static(
        self, header: UpdateTopic, command: Command, connection: Connection
    ) -> Response | Coroutine[Any, Any, Response]:
        """A topic with logical queues, as `mqadmin updateStaticTopic` and `remappingStaticTopic`
        make and move them. What moves where, they work out themselves."""
        detail = body_of(command, TopicQueueMappingDetail)
        self._check_name(header.topic)
        if detail.topic != header.topic:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"the header names topic {header.topic}, the mapping {detail.topic}; name the same",
            )
        config = self._checked(
            TopicConfig(
                header.topic,
                header.read_queues,
                header.write_queues,
                header.perm,
                header.filter_type,
                header.sys_flag or 0,
            )
        )
        self.topics.static.check(detail, force=bool(header.force))
        try:
            # In this order, and both in any case: name servers take a mapping over when the version
            # of the topics has changed.
            self.topics.put(config)
            self.topics.static.put(detail)
        except StoreError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
        return self._done()

    def on_all(self, header: None, command: Command, connection: Connection) -> LongResponse:
        return self.slices.respond(reply_of(self.topics.pieces(), {}))

    def on_config(
        self, header: GetTopicConfig, command: Command, connection: Connection
    ) -> Response:
        config = self.topics.get(header.topic)
        if config is None:
            raise Refusal(
                codes.TOPIC_NOT_EXIST,
                f"No topic in this broker. topic: {header.topic}; create it, or ask a broker of "
                "its route",
            )
        mapping = self.topics.static.table.get(header.topic) if header.lo else None
        if mapping is not None:
            fields = msgspec.structs.asdict(config)
            config = TopicConfigAndQueueMapping(**fields, mapping_detail=mapping)
        return Response(codes.SUCCESS, body=config.encode())

    def on_stats(self, header: TopicName, command: Command, connection: Connection) -> LongResponse:
        name = header.topic
        config = self.topics.get(name)
        if config is None:
            raise Refusal(codes.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        queues = max(config.read_queue_nums, config.write_queue_nums)
        body = TopicStatsTable({}, self.stats.put_tps(name))
        entries = (self._stats_of(name, queue_id) for queue_id in range(queues))
        return self.slices.respond(reply_of(filled(body, "offsetTable", entries)))

    def on_delete(
        self, header: TopicName, command: Command, connection: Connection
    ) -> Response | Coroutine[Any, Any, Response]:
        self._check_name(header.topic)
        try:
            delete_topic(
                header.topic, self.store, self.topics, self.offsets, self.stats, self.forget_pops
            )
        except StoreError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
        return self._saved() if self.offsets.changed else OK

    def on_system_list(self, header: None, command: Command, connection: Connection) -> Response:
        return Response(codes.SUCCESS, body=TopicList(sorted(self._system)).encode())

    # --- inside ---------------------------------------------------------------------------------

    async def _saved(self) -> Response:
        """A topic of that name may come again, and its groups are not to pass it over: the answer
        waits until their offsets are gone from the file, too."""
        try:
            is_saved = await self.save_offsets()
        except StoreError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
        if not is_saved:
            raise Refusal(
                codes.SYSTEM_ERROR,
                "the topic is deleted, but what its groups consumed is still in "
                "consumerOffset.json: the store takes no writes any more; restart this broker and "
                "delete the topic again",
            )
        return OK

    def _stats_of(self, topic: str, queue_id: int) -> bytes:
        """The entry of one queue in the answer to 202."""
        store = self.store
        least = max(0, store.min_offset(topic, queue_id))
        most = max(0, store.max_offset(topic, queue_id))
        last_ms = store.store_ms_at(topic, queue_id, most - 1) if most else 0
        queue = MessageQueue(topic, self.config.broker_name, queue_id)
        return fastjson.dump({queue: TopicOffset(least, most, last_ms)})[1:-1]

    def _check_name(self, name: str) -> None:
        """Refusal when this can't be the name of a user's topic."""
        check_topic(name)
        if not self.config.validate_system_topic_when_update_topic:
            return
        if name in self._system or is_system_topic(name):
            raise Refusal(
                codes.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic."
            )

    def _checked(self, wanted: TopicConfig) -> TopicConfig:
        """The topic as it is to become, its attributes' change carried out; Refusal if it may not.
        Nothing is changed yet."""
        name, change = wanted.topic_name or "", wanted.attributes
        if wanted.topic_filter_type not in FILTER_TYPES:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"topicFilterType of topic {name} is {wanted.topic_filter_type!r}; it must be "
                f"{' or '.join(FILTER_TYPES)}",
            )
        if min(wanted.read_queue_nums, wanted.write_queue_nums) < 0:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"topic {name} would have {wanted.read_queue_nums} read and "
                f"{wanted.write_queue_nums} write queues; a number can't be below 0",
            )
        if not 0 <= wanted.perm <= PERM_MAX:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"perm of topic {name} is {wanted.perm}; it must be from 0 to {PERM_MAX}: the sum "
                "of 4 read, 2 write, 1 inherit",
            )
        mixed = change.get(f"+{MESSAGE_TYPE}") == MIXED
        if mixed and not self.config.enable_mixed_message_type:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"MIXED message type is not supported. Topic {name} asks for it, and "
                "enableMixedMessageType is false; switch it on, or choose another type",
            )
        known = self.topics.get(name)
        try:
            attributes = changed(None if known is None else known.attributes, change)
        except ValueError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
        return TopicConfig(
            name,
            wanted.read_queue_nums,
            wanted.write_queue_nums,
            wanted.perm,
            wanted.topic_filter_type,
            wanted.topic_sys_flag,
            wanted.order,
            attributes,
        )

    def _done(self) -> Response | Coroutine[Any, Any, Response]:
        """The response to a change of topics, sent when the name servers know of it."""
        wait = self.topics.wait_registered
        return DONE if wait is None else _after(wait(REGISTERED_S_MAX))

    def _put(self, configs: list[TopicConfig]) -> Response | Coroutine[Any, Any, Response]:
        # The same again is no news for the name servers.
        news = [one for one in configs if self.topics.get(one.topic_name or "") != one]
        if not news:
            return DONE
        self.topics.put_all(news)
        return self._done()
