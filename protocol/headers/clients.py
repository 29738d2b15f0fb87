"""Headers about clients: groups, members, connections."""

from typing import ClassVar

from ..wire import Header, Int32, field


class Heartbeat(Header):
    """HEART_BEAT (34): fields of aerobee's proxy, for a client behind it.

    `proxied_address` is the client's "host:port". A broker that keeps such clients apart on one
    connection says so with the field PROXIED of its response; RocketMQ's don't.
    """

    proxied_address: str | None = field(name="proxiedAddress", default=None)
    proxied_language: str = field(name="proxiedLanguage", default="OTHER")


class UnregisterClient(Header):
    """UNREGISTER_CLIENT (35)."""

    may_miss: ClassVar = {"clientID": ""}

    client_id: str = field(name="clientID")
    producer_group: str | None = field(name="producerGroup", default=None)
    consumer_group: str | None = field(name="consumerGroup", default=None)


class ConsumerGroup(Header):
    """38, 203 and 40: one consumer group."""

    group: str = field(name="consumerGroup")


class ProducerGroup(Header):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    group: str = field(name="producerGroup")


class ConsumerRunningInfo(Header):
    """GET_CONSUMER_RUNNING_INFO (307)."""

    group: str = field(name="consumerGroup")
    client_id: str = field(name="clientId")
    jstack: bool = field(name="jstackEnable", default=False)


class ConsumeMessageDirectly(Header):
    """CONSUME_MESSAGE_DIRECTLY (309)."""

    group: str = field(name="consumerGroup")
    client_id: str | None = field(name="clientId", default=None)
    msg_id: str | None = field(name="msgId", default=None)
    broker_name: str | None = field(name="brokerName", default=None)
    topic: str | None = None
    topic_sys_flag: Int32 | None = field(name="topicSysFlag", default=None)
    group_sys_flag: Int32 | None = field(name="groupSysFlag", default=None)
