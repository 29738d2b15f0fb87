"""Examining a cluster: the requests whose answers `rules` judges.

Brokers, topics and groups are asked concurrently, with a limit. A broker that doesn't respond is a
finding, not an error.
"""

from collections.abc import Mapping
from datetime import datetime

from ...client.admin.admin import Admin
from ...client.base.concurrent import each
from ...client.base.identity import now_ms
from ...client.errors import AerobeeError, ClientError
from ...protocol.aio.peers import Peers
from ...protocol.bodies.cluster import ClusterInfo
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.bodies.route import MASTER_ID
from ...protocol.codec import java_properties
from ...protocol.names import SYSTEM_GROUPS, is_system_group, is_system_topic
from ..texts import Text
from .open_servers import CONTROLLER, NAME_SERVER, of_open_servers
from .replicas import replicas_of, told
from .rules import (
    Finding,
    no_broker,
    no_controller,
    no_master,
    no_response,
    of_broker,
    of_clock,
    of_group,
    of_replicas,
    of_retention,
    of_slaves,
    of_topic,
    on_one_broker,
    other_masters,
    slaves_needed,
)


async def controlled(admin: Admin) -> tuple[list[Text], list[Finding]]:
    """A line for each broker name in controller mode, and the findings about them."""
    info = await admin.cluster_info()
    lines: list[Text] = []
    found: list[Finding] = []
    all_controllers: set[str] = set()
    own = admin.security
    peers = Peers(tls=own.context, sign=own.sign if own.signs else None)
    try:
        for name, one in sorted(info.broker_addr_table.items()):
            if not one.broker_addrs:
                continue
            address = one.broker_addrs[min(one.broker_addrs)]  # the master where there is one
            try:
                settings = java_properties.parse(await admin.broker_config(address))
                if settings.get("enableControllerMode") != "true":
                    continue
                runtime = await admin.broker_runtime(address)
            except AerobeeError:
                continue  # `examine` tells that it does not respond
            words = settings.get("controllerAddr", "").replace(",", ";").split(";")
            controllers = list(filter(None, map(str.strip, words)))
            all_controllers.update(controllers)
            try:
                replicas = await replicas_of(peers, controllers, name)
            except ClientError as wrong:
                found.append(no_controller(name, wrong))
                continue
            since = _time(runtime.get("bootTimestamp", ""))
            lines.append(told(name, replicas, since if MASTER_ID in one.broker_addrs else ""))
            found += of_replicas(name, replicas)
    finally:
        await peers.close()
    return lines, [*found, *await of_open_servers(CONTROLLER, all_controllers, admin.security)]


def _time(ms: str) -> str:
    """The local time of these milliseconds since 1970; empty without a number."""
    if not ms.isdecimal():
        return ""
    return datetime.fromtimestamp(int(ms) / 1_000).astimezone().isoformat(" ", "seconds")


async def examine(admin: Admin) -> list[Finding]:
    """All findings of a cluster. Checks that need every broker are skipped if one is silent."""
    info = await admin.cluster_info()
    brokers = {name: one.broker_addrs for name, one in sorted(info.broker_addr_table.items())}
    if not brokers:
        return [no_broker()]
    parts = await each(brokers.items(), lambda one: _broker(admin, *one))
    found = [finding for findings, _ in parts for finding in findings]
    servers = await admin.namesrv_addresses()
    found += await of_open_servers(NAME_SERVER, servers, admin.security)
    has_master = any(MASTER_ID in addresses for addresses in brokers.values())
    if not has_master or not all(answers for _, answers in parts):
        return found
    groups: dict[str, SubscriptionGroupConfig] = {}
    for one in (await admin.groups()).values():
        groups |= one.subscription_group_table
    own = {*info.broker_addr_table, *info.cluster_addr_table}
    own |= {f"{name}_REPLY_TOPIC" for name in info.cluster_addr_table}
    names = [one for one in await admin.topics() if one not in own and not is_system_topic(one)]
    users = [one for one in groups if one not in SYSTEM_GROUPS and not is_system_group(one)]
    stats = dict(zip(names, await each(names, admin.topic_stats), strict=True))
    progress = dict(zip(users, await each(users, admin.consume_stats), strict=True))
    online = dict(zip(users, await each(users, admin.consumer_connection), strict=True))
    routes = await each(names, admin.route)
    readers: dict[str, list[str]] = {}
    for group in users:
        topics = {queue.topic for queue in progress[group].offset_table}
        members = online[group]
        if members is not None:
            topics |= set(members.subscription_table)
        for topic in topics:
            readers.setdefault(topic, []).append(group)
    clusters = _masters_by_cluster(info)
    for name, route in zip(names, routes, strict=True):
        found += on_one_broker(name, route.queue_datas, clusters)
        found += of_topic(name, route.queue_datas, stats[name], readers.get(name, ()))
    for group in users:
        found += of_group(group, groups[group], online[group], progress[group], stats)
    return found


def _masters_by_cluster(info: ClusterInfo) -> dict[str, list[str]]:
    return {
        cluster: [name for name in names if MASTER_ID in info.broker_addr_table[name].broker_addrs]
        for cluster, names in info.cluster_addr_table.items()
    }


async def _broker(
    admin: Admin, name: str, addresses: Mapping[int, str]
) -> tuple[list[Finding], bool]:
    """The findings of a master and its slaves, and whether it answers."""
    address = addresses.get(MASTER_ID, "")
    if not address:
        return [no_master(name, addresses)], True
    slaves = len(addresses) - 1
    found: list[Finding] = []
    try:
        before_ms = now_ms()
        runtime = await admin.broker_runtime(address)
        found += of_clock(name, runtime, before_ms, now_ms())
        settings = java_properties.parse(await admin.broker_config(address))
        if slaves or slaves_needed(settings):
            info = await admin.ha_status(address)
            found += of_slaves(name, settings, slaves, info)
        topics = (await admin.topic_configs(address)).topic_config_table
        for topic, config in sorted(topics.items()):
            found += of_retention(topic, config.attributes, settings, name)
    except AerobeeError as wrong:
        return [no_response(name, address, wrong)], False
    found += other_masters(name, address, runtime)
    return [*of_broker(name, runtime, settings), *found], True
