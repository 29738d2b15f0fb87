"""The requests of a name server: the table that names their handlers, and the handlers.

A handler reads its header, asks the route table or the key-value config, and returns the response.
Remarks and the presence of header fields are those of a Java name server.
"""

import logging
import zlib
from collections.abc import Callable
from pathlib import Path

from ..conf import changes, log_levels
from ..protocol import codes
from ..protocol.aio.connection import Connection, Row
from ..protocol.aio.slices import LongResponse, Slices, reply_of
from ..protocol.bodies.body import body_of, filled
from ..protocol.bodies.cluster import GetBrokerMemberGroupResponseBody, KVTable
from ..protocol.bodies.data_version import DataVersion
from ..protocol.bodies.register import RegisterBrokerBody
from ..protocol.bodies.route import TopicRouteData
from ..protocol.bodies.topic import (
    SYS_FLAG_UNIT,
    SYS_FLAG_UNIT_SUB,
    TopicConfigSerializeWrapper,
    TopicList,
)
from ..protocol.codec import fastjson
from ..protocol.command import Command, Response
from ..protocol.errors import Refusal
from ..protocol.headers import namesrv as headers
from ..protocol.security.needs import ANYONE, CLUSTER_GET
from ..protocol.security.policies import CREATE, DELETE
from .access import of_broker, of_topic
from .config import NamesrvConfig
from .master_changes import MasterChanges
from .registration import Notice, Registration
from .routes import Names, RouteTable, only_zone
from .settings import ORDER_TOPIC_CONFIG, Settings, store

log = logging.getLogger(__name__)

VERSION_WITH_REGISTER_BODY = 37  # V3_0_11: older brokers send the topics alone
VERSION_WITH_STANDARD_JSON = 401  # V4_9_4: older clients get numeric keys without quotes
CRC_MASK = 0x7FFFFFFF
ZLIB_FIRST_BYTE = 0x78  # of a stream with the usual window
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class Handlers:
    """The requests of one name server.

    `now_ms` is a steady clock. `notify` is called with each notice for brokers. `slices` is to be
    set before the first request.
    """

    slices: Slices

    def __init__(
        self,
        routes: RouteTable,
        settings: Settings,
        config: NamesrvConfig,
        now_ms: Callable[[], int],
        notify: Callable[[Notice], None],
    ) -> None:
        self.config = config
        self._routes = routes
        self._settings = settings
        self._now_ms = now_ms
        self._notify = notify
        self._started_ms = now_ms()
        self.master_changes = MasterChanges()

    def rows(self) -> list[Row]:
        """The request table."""
        registration = of_broker(self._cluster_of)
        return [
            Row(codes.PUT_KV_CONFIG, headers.KVConfigItem, self.on_put_kv),
            Row(codes.GET_KV_CONFIG, headers.KVConfigItem, self.on_get_kv, ANYONE),
            Row(codes.DELETE_KV_CONFIG, headers.KVConfigItem, self.on_delete_kv),
            Row(codes.GET_KVLIST_BY_NAMESPACE, headers.KVNamespace, self.on_list_kv, ANYONE),
            Row(codes.REGISTER_BROKER, headers.RegisterBroker, self.on_register, registration),
            Row(codes.UNREGISTER_BROKER, headers.BrokerIdentity, self.on_unregister, registration),
            Row(
                codes.QUERY_DATA_VERSION,
                headers.BrokerIdentity,
                self.on_query_data_version,
                registration,
            ),
            Row(
                codes.BROKER_HEARTBEAT,
                headers.BrokerHeartbeat,
                self.on_broker_heartbeat,
                registration,
            ),
            Row(codes.GET_ROUTEINFO_BY_TOPIC, headers.GetRoute, self.on_route, ANYONE),
            Row(codes.GET_BROKER_CLUSTER_INFO, None, self.on_cluster_info, ANYONE),
            Row(codes.GET_BROKER_MEMBER_GROUP, headers.MemberGroup, self.on_member_group, ANYONE),
            Row(codes.WIPE_WRITE_PERM_OF_BROKER, headers.BrokerName, self.on_wipe_write_perm),
            Row(codes.ADD_WRITE_PERM_OF_BROKER, headers.BrokerName, self.on_add_write_perm),
            Row(
                codes.REGISTER_TOPIC_IN_NAMESRV,
                headers.RegisterTopic,
                self.on_register_topic,
                of_topic(CREATE),
            ),
            Row(
                codes.DELETE_TOPIC_IN_NAMESRV,
                headers.DeleteTopicInNamesrv,
                self.on_delete_topic,
                of_topic(DELETE),
            ),
            Row(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None, self.on_all_topics, ANYONE),
            Row(codes.GET_TOPICS_BY_CLUSTER, headers.TopicsByCluster, self.on_by_cluster, ANYONE),
            Row(codes.GET_SYSTEM_TOPIC_LIST_FROM_NS, None, self.on_system_topics, ANYONE),
            Row(codes.GET_UNIT_TOPIC_LIST, None, self.on_unit_topics, ANYONE),
            Row(codes.GET_HAS_UNIT_SUB_TOPIC_LIST, None, self.on_unit_sub_topics, ANYONE),
            Row(codes.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, None, self.on_ununit_topics, ANYONE),
            Row(codes.UPDATE_NAMESRV_CONFIG, None, self.on_update_config),
            Row(codes.GET_NAMESRV_CONFIG, None, self.on_get_config, CLUSTER_GET),
        ]

    def _cluster_of(self, broker_name: str) -> str:
        """The cluster of a registered broker name, "" for an unknown one."""
        broker = self._routes.brokers.get(broker_name)
        return "" if broker is None else broker.cluster or ""

    # --- brokers --------------------------------------------------------------------------------

    def on_register(
        self, header: headers.RegisterBroker, command: Command, connection: Connection
    ) -> Response:
        if header.body_crc32 and header.body_crc32 != zlib.crc32(command.body or b"") & CRC_MASK:
            log.warning("registration from %s: crc32 not match", connection.address)
            return Response(codes.SYSTEM_ERROR, {}, "crc32 not match")
        found = self._routes.register(
            _registration(header, command),
            self._now_ms(),
            connection,
            delete_missing=self.config.delete_topic_with_broker_registration,
        )
        if found is None:
            log.warning(
                "%s (%s, id %d) registers one topic before it has registered all of them",
                header.broker_name,
                header.broker_addr,
                header.broker_id,
            )
            return Response(codes.SYSTEM_ERROR, {}, "register broker failed")
        if found.notice is not None:
            self._notify(found.notice)
        if found.other_masters:
            self.master_changes.note(
                header.broker_name, header.broker_addr, found.other_masters, self._now_ms()
            )
        answer = headers.RegisterBrokerResponse(found.ha_addr, found.master_addr)
        body = None
        if self.config.return_order_topic_config_to_broker:
            ordered = self._settings.namespace(ORDER_TOPIC_CONFIG)
            body = None if ordered is None else KVTable(ordered).encode()
        return Response(codes.SUCCESS, answer.to_fields(), None, body)

    def on_unregister(
        self, header: headers.BrokerIdentity, command: Command, connection: Connection
    ) -> Response:
        removed = self._routes.unregister(
            header.cluster, header.broker_addr, header.broker_name, header.broker_id
        )
        for notice in removed.notices:
            self._notify(notice)
        return Response()

    def on_query_data_version(
        self, header: headers.BrokerIdentity, command: Command, connection: Connection
    ) -> Response:
        theirs = body_of(command, DataVersion)
        self._routes.heard(header.cluster, header.broker_addr, self._now_ms())
        ours = self._routes.version_of(header.cluster, header.broker_addr)
        answer = headers.QueryDataVersionResponse(ours != theirs)
        body = None if ours is None else ours.encode()
        return Response(codes.SUCCESS, answer.to_fields(), None, body)

    def on_broker_heartbeat(
        self, header: headers.BrokerHeartbeat, command: Command, connection: Connection
    ) -> Response:
        self._routes.heard(header.cluster, header.broker_addr, self._now_ms())
        return Response()

    def on_wipe_write_perm(
        self, header: headers.BrokerName, command: Command, connection: Connection
    ) -> Response:
        topics = self._routes.wipe_write_perm(header.broker_name)
        log.info(
            "%s: %s is not to be written to, %d topics",
            connection.address,
            header.broker_name,
            topics,
        )
        return Response(fields=headers.WipeWritePermResponse(topics).to_fields())

    def on_add_write_perm(
        self, header: headers.BrokerName, command: Command, connection: Connection
    ) -> Response:
        topics = self._routes.add_write_perm(header.broker_name)
        log.info(
            "%s: %s may be written to, %d topics", connection.address, header.broker_name, topics
        )
        return Response(fields=headers.AddWritePermResponse(topics).to_fields())

    # --- routes ---------------------------------------------------------------------------------

    def on_route(
        self, header: headers.GetRoute, command: Command, connection: Connection
    ) -> Response:
        config = self.config
        if config.need_wait_for_service:
            wait_ms = config.wait_seconds_for_service * 1_000
            if self._now_ms() - self._started_ms < wait_ms:
                return Response(
                    codes.SYSTEM_ERROR,
                    remark="name server not ready: it waits for brokers "
                    f"{config.wait_seconds_for_service} s (needWaitForService); ask again later",
                )
        found = self._routes.route(header.topic, acting_master=config.support_acting_master)
        if found is None:
            topic = "null" if header.topic is None else header.topic
            return Response(
                codes.TOPIC_NOT_EXIST,
                remark=f"No topic route info in name server for the topic: {topic}{FAQ}",
            )
        if config.order_message_enable:
            found.order_topic_conf = self._settings.get(ORDER_TOPIC_CONFIG, header.topic)
        if header.zone_mode and header.zone and header.zone.strip():
            # Java filters the finished response and encodes it again, in its default form.
            return Response(body=only_zone(found, header.zone).encode())
        standard = bool(header.standard_json) or command.version >= VERSION_WITH_STANDARD_JSON
        return Response(body=found.encode(standard=standard))

    def on_cluster_info(self, header: None, command: Command, connection: Connection) -> Response:
        return Response(body=self._routes.cluster_info().encode())

    def on_member_group(
        self, header: headers.MemberGroup, command: Command, connection: Connection
    ) -> Response:
        group = self._routes.member_group(header.cluster, header.broker_name)
        return Response(body=GetBrokerMemberGroupResponseBody(group).encode())

    # --- topics ---------------------------------------------------------------------------------

    def on_register_topic(
        self, header: headers.RegisterTopic, command: Command, connection: Connection
    ) -> Response:
        if command.body:
            queues = body_of(command, TopicRouteData).queue_datas
            self._routes.register_topic(header.topic, queues)
        return Response()

    def on_delete_topic(
        self, header: headers.DeleteTopicInNamesrv, command: Command, connection: Connection
    ) -> Response:
        self._routes.delete_topic(header.topic, header.cluster)
        return Response()

    def on_all_topics(self, header: None, command: Command, connection: Connection) -> LongResponse:
        if not self.config.enable_all_topic_list:
            raise Refusal(codes.SYSTEM_ERROR, "disable: enableAllTopicList is false")
        return self._list(self._routes.all_topics())

    def on_by_cluster(
        self, header: headers.TopicsByCluster, command: Command, connection: Connection
    ) -> LongResponse:
        self._check_topic_list()
        return self._list(self._routes.topics_of_cluster(header.cluster))

    def on_system_topics(self, header: None, command: Command, connection: Connection) -> Response:
        return Response(body=self._routes.system_topics().encode())

    def on_unit_topics(
        self, header: None, command: Command, connection: Connection
    ) -> LongResponse:
        self._check_topic_list()
        return self._list(self._routes.topics_by_flag(SYS_FLAG_UNIT))

    def on_unit_sub_topics(
        self, header: None, command: Command, connection: Connection
    ) -> LongResponse:
        self._check_topic_list()
        return self._list(self._routes.topics_by_flag(SYS_FLAG_UNIT_SUB))

    def on_ununit_topics(
        self, header: None, command: Command, connection: Connection
    ) -> LongResponse:
        self._check_topic_list()
        return self._list(self._routes.topics_by_flag(SYS_FLAG_UNIT_SUB, SYS_FLAG_UNIT))

    # --- key-value config and settings ----------------------------------------------------------

    def on_put_kv(
        self, header: headers.KVConfigItem, command: Command, connection: Connection
    ) -> Response:
        if header.namespace is None or header.key is None:
            return Response(
                codes.SYSTEM_ERROR,
                remark=f"namespace or key is null: {_java(header.namespace)}, {_java(header.key)}; "
                "send both",
            )
        if header.value is None:  # RocketMQ keeps a null then, which it does not find again
            self._settings.delete(header.namespace, header.key)
        else:
            self._settings.put(header.namespace, header.key, header.value)
        return Response()

    def on_get_kv(
        self, header: headers.KVConfigItem, command: Command, connection: Connection
    ) -> Response:
        value = self._settings.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {_java(header.namespace)} Key: "
            return Response(codes.QUERY_NOT_FOUND, {}, remark + _java(header.key))
        return Response(fields=headers.KVConfigResponse(value).to_fields())

    def on_delete_kv(
        self, header: headers.KVConfigItem, command: Command, connection: Connection
    ) -> Response:
        self._settings.delete(header.namespace, header.key)
        return Response()

    def on_list_kv(
        self, header: headers.KVNamespace, command: Command, connection: Connection
    ) -> Response:
        found = self._settings.namespace(header.namespace)
        if found is None:
            remark = f"No config item, Namespace: {_java(header.namespace)}"
            return Response(codes.QUERY_NOT_FOUND, remark=remark)
        return Response(body=KVTable(found).encode())

    def on_update_config(self, header: None, command: Command, connection: Connection) -> Response:
        if not command.body:
            return Response()
        changed = changes.requested(self.config, NamesrvConfig, command.body, connection.address)
        if changed.config_store_path:
            store(Path(changed.config_store_path), changed.to_properties().encode())
        if changed.log_level != self.config.log_level:
            log_levels.use(changed.log_level)
        self.config = changed
        return Response()

    def on_get_config(self, header: None, command: Command, connection: Connection) -> Response:
        return Response(body=self.config.to_properties(own=False).encode())

    def _list(self, topics: Names) -> LongResponse:
        names = (fastjson.dump(topic) if topic is not None else b"" for topic in topics)
        return self.slices.respond(reply_of(filled(TopicList(), "topicList", names)))

    def _check_topic_list(self) -> None:
        if not self.config.enable_topic_list:
            raise Refusal(codes.SYSTEM_ERROR, "disable: enableTopicList is false")


def _registration(header: headers.RegisterBroker, command: Command) -> Registration:
    body = _register_body(header.compressed, command)
    wrapper = body.topic_config_serialize_wrapper
    return Registration(
        cluster=header.cluster,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        addr=header.broker_addr,
        topics=wrapper.topic_config_table,
        version=wrapper.data_version,
        ha_addr=header.ha_addr,
        zone=header.zone,
        timeout_ms=header.timeout_ms,
        acting_master=header.acting_master,
        filter_servers=body.filter_server_list,
        mappings=wrapper.topic_queue_mapping_info_map,
    )


def _register_body(compressed: bool, command: Command) -> RegisterBrokerBody:
    """The body of whatever age; an absent one has no topics."""
    body = RegisterBrokerBody()
    if command.version < VERSION_WITH_REGISTER_BODY:
        body.filter_server_list = None
        if command.body:
            topics = body_of(command, TopicConfigSerializeWrapper)
            wrapper = body.topic_config_serialize_wrapper
            wrapper.topic_config_table = topics.topic_config_table
            wrapper.data_version = topics.data_version
        return body
    if not command.body:
        return body
    # Java brokers set to compress say compressed=false all the same; no JSON begins with an x.
    if not compressed and command.body[0] != ZLIB_FIRST_BYTE:
        return body_of(command, RegisterBrokerBody)
    try:
        return RegisterBrokerBody.decode_compressed(command.body, command.version)
    except ValueError as wrong:
        raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None


def _java(text: str | None) -> str:
    return "null" if text is None else text
