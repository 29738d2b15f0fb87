"""The running info of a consumer, for brokers that request it for an administrator (307)."""

import asyncio
from collections.abc import Mapping

from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.heartbeat import ConsumerData
from ...protocol.bodies.running import ConsumerRunningInfo, ProcessQueueInfo
from ...protocol.command import VERSION_NAME
from ..cluster.cluster import Cluster
from .consume_stats import ConsumeStats


def running_info(
    cluster: Cluster,
    data: ConsumerData,
    queues: Mapping[MessageQueue, ProcessQueueInfo],
    stats: ConsumeStats,
    *,
    ordered: bool,
    started_ms: int,
    strategy: str = "",
) -> ConsumerRunningInfo:
    """The running info, with the properties that mqadmin reads, as strings, and two of ours: the
    name of the strategy, where there is one, and the queues of each topic as they are divided."""
    routes = {one.topic: cluster.known_route(one.topic) for one in data.subscription_data_set}
    sizes = {topic: len(route.subscribe) for topic, route in routes.items() if route is not None}
    now = asyncio.get_running_loop().time()
    return ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": "".join(f"{one};" for one in cluster.name_servers.addresses),
            "PROP_CONSUME_TYPE": data.consume_type or "",
            "PROP_CONSUMEORDERLY": "true" if ordered else "false",
            "PROP_THREADPOOL_CORE_SIZE": "1",
            "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
            "PROP_CLIENT_VERSION": VERSION_NAME,
            "consumerGroup": data.group_name,
            "messageModel": data.message_model or "",
            "consumeFromWhere": data.consume_from_where or "",
            "allocateMessageQueueStrategy": strategy,
            "topicSubscribeInfoTable": ";".join(f"{one}={sizes[one]}" for one in sorted(sizes)),
        },
        subscription_set=list(data.subscription_data_set),
        mq_table=dict(queues),
        status_table={
            each.topic: stats.status(each.topic, now) for each in data.subscription_data_set
        },
    )
