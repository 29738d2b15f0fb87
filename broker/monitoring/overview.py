"""The overview of a broker: facts, topics with rates, groups with lag."""

from collections.abc import Generator
from operator import itemgetter
from typing import Any

from msgspec.structs import asdict

from ...protocol.command import VERSION_NAME
from ...protocol.names import DLQ_PREFIX, REPLY_TOPIC_SUFFIX, RETRY_PREFIX, is_system_topic
from ..roles.parts import Parts
from .metrics_lag import lags

Overview = dict[str, Any]


def overview(broker: Parts, *, with_system: bool = False) -> Generator[None, None, Overview]:
    """The steps of describing the broker as it is now: topics and groups may be many, and requests
    are served between two steps. `with_system` shows the topics of the system as well."""
    behind: dict[tuple[str, str], int] = {}
    for topic, group, lag in lags(broker):
        behind[group, topic] = lag
        yield
    topics = yield from _topics(broker, with_system=with_system)
    groups = yield from _groups(broker, behind)
    differing = []
    for one in broker.clients.differing():
        if one is not None:
            differing.append({"group": one[0], "who": one[1]})
        yield
    return {
        **_facts(broker, sum(behind.values())),
        "topics": topics,
        "groups": groups,
        "groups_that_subscribe_differently": sorted(differing, key=itemgetter("group", "who")),
        "slaves": list(map(asdict, broker.ha.info().ha_connection_info)),
    }


def fault(broker: Parts) -> str | None:
    """The fault of this broker itself, in one sentence; None when it is well."""
    return broker.store.refusal


def not_stored(broker: Parts) -> str | None:
    """The reason why messages are not accepted, or are accepted and not synced; None while all is
    well, as on a slave, which copies its master's."""
    store = broker.store
    reason = store.refusal or (None if store.is_following else store.pause_reason)
    if reason is not None:
        return f"it takes no messages: {reason}"
    want = broker.syncer.want
    return f"what it takes is not synced to the disk: {want}" if want else None


def note(broker: Parts) -> str | None:
    """A note for the operator about a broker that is well and ready; None for nothing."""
    others = broker.other_masters.addresses
    name = broker.config.broker_name
    reason = not_stored(broker)
    if reason is not None:
        return reason
    if others:
        where = " and ".join(others)
        return f"another master of {name} runs at {where}; stop one of them"
    return broker.role.note()


def not_ready(broker: Parts) -> str | None:
    """The reason why clients can't use this broker yet, in one sentence; None when they can."""
    registered = broker.registration.registered
    if registered and not any(registered.values()):
        return f"no name server has taken the registration: {', '.join(registered)}"
    return None


def _facts(broker: Parts, behind: int) -> Overview:
    config, stats = broker.config, broker.stats
    puts, gets = stats.broker_puts(), stats.broker_gets()
    # The first of the three rates is that over the last ten seconds.
    rate_in, rate_out = (round(stats.total_tps(counter)[0], 1) for counter in (puts, gets))
    return {
        "daemon": "broker",
        "name": config.broker_name,
        "cluster": config.broker_cluster_name,
        "messages_in_per_second": rate_in,
        "messages_out_per_second": rate_out,
        "messages_behind": behind,
        "connections": len(broker.server.connections),
        "messages_in": puts.messages,
        "messages_out": gets.messages,
        "other_masters": list(broker.other_masters.addresses),
        "takes_no_messages": broker.store.refusal or broker.store.pause_reason,
        **broker.role.facts(),
        "disk_ratio": round(broker.store.disk_ratio(), 3),
        "running_seconds": (broker.now_ms() - broker.started_ms) // 1000,
        "address": broker.address,
        "bind_address": config.bind_address,
        "port": broker.port,
        "fast_port": broker.fast_port,
        "name_servers_reached": dict(broker.registration.registered),
        "store": str(broker.root.absolute()),
        "version_for_clients": VERSION_NAME,
    }


def _topics(broker: Parts, *, with_system: bool) -> Generator[None, None, list[Overview]]:
    out: dict[str, float] = {}
    for (topic, group), _ in list(broker.stats.all_gets()):
        out[topic] = out.get(topic, 0.0) + broker.stats.get_tps(topic, group)
        yield
    found = []
    for name, config in sorted(broker.topics.all().items()):
        yield
        if not with_system and (is_system_topic(name) or name in _own_topics(broker)):
            continue
        store = broker.store
        stored = sum(  # a queue without a message yet begins at -1
            store.max_offset(name, queue) - max(0, store.min_offset(name, queue))
            for queue in range(max(config.read_queue_nums, config.write_queue_nums))
        )
        if not with_system and not stored and name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            continue  # every group has a retry topic; an empty one is not worth a line
        found.append(
            {
                "topic": name,
                "write_queues": config.write_queue_nums,
                "read_queues": config.read_queue_nums,
                "stored": stored,
                "messages_in": broker.stats.puts(name).messages,
                "in_per_second": round(broker.stats.put_tps(name), 1),
                "out_per_second": round(out.get(name, 0.0), 1),
            }
        )
    return found


def _groups(
    broker: Parts, behind: dict[tuple[str, str], int]
) -> Generator[None, None, list[Overview]]:
    """`behind` is by group and topic."""
    live = broker.clients.consumer_groups()
    pairs = dict(behind)
    for group in list(live.values()):
        for topic in group.subscriptions:
            pairs.setdefault((group.name, topic), 0)
        yield
    shown = []
    for (group_name, topic), lag in sorted(pairs.items()):
        yield
        if topic.startswith(RETRY_PREFIX) and not lag:
            continue
        found = live.get(group_name)
        shown.append(
            {
                "group": group_name,
                "topic": topic,
                "members": len(found.client_ids()) if found is not None else 0,
                "behind": lag,
                "out_per_second": round(broker.stats.get_tps(topic, group_name), 1),
            }
        )
    return shown


def _own_topics(broker: Parts) -> tuple[str, ...]:
    """Topics that bear the names of the cluster and the broker."""
    cluster = broker.config.broker_cluster_name
    return cluster, broker.config.broker_name, f"{cluster}{REPLY_TOPIC_SUFFIX}"
