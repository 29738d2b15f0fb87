"""The status page of a broker: facts, topics with rates, groups with lag."""

from collections.abc import Generator, Sequence

from ...protocol.command import VERSION_NAME
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from .metrics_lag import lags
from .view import BrokerView

Cell = str | int | float
# A table is its title, its columns and its rows; an overview its title, its facts and its tables.
Table = tuple[str, Sequence[str], Sequence[Sequence[Cell]]]
Overview = tuple[str, Sequence[tuple[str, Cell]], Sequence[Table]]


def overview(broker: BrokerView, *, with_system: bool = False) -> Generator[None, None, Overview]:
    """The steps of looking at the broker as it is now: topics and groups may be many, and requests
    are served between two steps. `with_system` shows the topics of the system as well."""
    title = f"aerobee broker {broker.config.broker_name}"
    behind: dict[tuple[str, str], int] = {}
    for topic, group, lag in lags(broker):
        behind[group, topic] = lag
        yield
    topics = yield from _topics(broker, with_system=with_system)
    groups = yield from _groups(broker, behind)
    tables = [topics, groups]
    if broker.ha.slaves:
        tables.append(_slaves(broker))
    differing = []
    for one in broker.clients.differing():
        if one is not None:
            differing.append(one)
        yield
    if differing:
        columns = ("Group", "Who")
        tables.append(("Groups whose members subscribe differently", columns, sorted(differing)))
    return title, _facts(broker, sum(behind.values())), tables


def fault(broker: BrokerView) -> str | None:
    """The fault of this broker itself, in one sentence; None when it is well."""
    return broker.store.refusal


def not_stored(broker: BrokerView) -> str | None:
    """Why messages are not taken, or are taken and not synced; None while all is well, as on a
    slave, which takes its master's."""
    store = broker.store
    reason = store.refusal or (None if store.is_following else store.pause_reason)
    if reason is not None:
        return f"it takes no messages: {reason}"
    want = broker.syncer.want
    return f"what it takes is not synced to the disk: {want}" if want else None


def note(broker: BrokerView) -> str | None:
    """What an operator should know of a broker that is well and ready; None for nothing."""
    others = broker.other_masters.addresses
    name = broker.config.broker_name
    reason = not_stored(broker)
    if reason is not None:
        return reason
    if others:
        where = " and ".join(others)
        return f"another master of {name} runs at {where}; stop one of them"
    return broker.role.note()


def not_ready(broker: BrokerView) -> str | None:
    """Why clients can't use this broker yet, in one sentence; None when they can."""
    registered = broker.registration.registered
    if registered and not any(registered.values()):
        return f"no name server has taken the registration: {', '.join(registered)}"
    return None


def _facts(broker: BrokerView, behind: int) -> list[tuple[str, Cell]]:
    config, stats = broker.config, broker.stats
    servers = broker.registration.registered
    names = [name if taken else f"{name} (not reached)" for name, taken in servers.items()]
    puts, gets = stats.broker_puts(), stats.broker_gets()
    # The first of the three rates is that over the last ten seconds.
    rates = [round(stats.total_tps(counter)[0], 1) for counter in (puts, gets)]
    others = broker.other_masters.addresses
    return [
        ("Messages in a second", rates[0]),
        ("Messages out a second", rates[1]),
        ("Messages behind, all groups", behind),
        ("Connections", len(broker.server.connections)),
        ("Messages in since start", puts.messages),
        ("Messages out since start", gets.messages),
        *([("Split brain", note(broker) or "")] if others else []),
        ("Takes messages", broker.store.refusal or broker.store.pause_reason or "yes"),
        *broker.role.facts(),
        ("Disk of the commit log", f"{broker.store.disk_ratio():.0%} used"),
        ("Running for", _duration((broker.now_ms() - broker.started_ms) // 1000)),
        ("Cluster", config.broker_cluster_name),
        ("Address for clients", broker.address),
        ("Listens on", f"{config.bind_address}:{broker.port}, fast port {broker.fast_port}"),
        ("Name servers", ", ".join(names) or "none"),
        ("Store", str(broker.root.absolute())),
        ("Version for clients", VERSION_NAME),
    ]


def _slaves(broker: BrokerView) -> Table:
    columns = ("Slave", "Has the log up to", "Bytes behind", "In sync", "Bytes a second")
    rows = [
        (
            slave.addr or "",
            slave.slave_ack_offset,
            slave.diff,
            "yes" if slave.in_sync else "no",
            slave.transferred_byte_in_second,
        )
        for slave in broker.ha.info().ha_connection_info
    ]
    return "Slaves", columns, rows


def _topics(broker: BrokerView, *, with_system: bool) -> Generator[None, None, Table]:
    columns = ("Topic", "Queues", "Stored", "In since start", "In a second", "Out a second")
    out: dict[str, float] = {}
    for (topic, group), _ in list(broker.stats.all_gets()):
        out[topic] = out.get(topic, 0.0) + broker.stats.get_tps(topic, group)
        yield
    rows: list[tuple[Cell, ...]] = []
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
            continue  # every group has a retry topic; an empty one is not worth a row
        queues = str(config.write_queue_nums)
        if config.read_queue_nums != config.write_queue_nums:
            queues = f"{config.write_queue_nums} write, {config.read_queue_nums} read"
        puts = broker.stats.puts(name).messages
        rate_in = round(broker.stats.put_tps(name), 1)
        rows.append((name, queues, stored, puts, rate_in, round(out.get(name, 0.0), 1)))
    return "Topics", columns, rows


def _groups(broker: BrokerView, behind: dict[tuple[str, str], int]) -> Generator[None, None, Table]:
    """`behind` is by group and topic."""
    columns = ("Group", "Topic", "Members", "Behind by", "Out a second")
    live = broker.clients.consumer_groups()
    pairs = dict(behind)
    for group in list(live.values()):
        for topic in group.subscriptions:
            pairs.setdefault((group.name, topic), 0)
        yield
    rows: list[tuple[Cell, ...]] = []
    for (group_name, topic), lag in sorted(pairs.items()):
        yield
        found = live.get(group_name)
        members = len(found.client_ids()) if found is not None else 0
        if topic.startswith(RETRY_PREFIX) and not lag:
            continue
        rows.append(
            (group_name, topic, members, lag, round(broker.stats.get_tps(topic, group_name), 1))
        )
    return "Consumer groups", columns, rows


def _own_topics(broker: BrokerView) -> tuple[str, ...]:
    """Topics that bear the names of the cluster and the broker."""
    cluster = broker.config.broker_cluster_name
    return cluster, broker.config.broker_name, f"{cluster}_REPLY_TOPIC"


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    named = [f"{value} {unit}" for value, unit in parts if value]
    return " ".join(named[:2]) or "0 s"
