"""`aerobee topics`, `groups`, `cluster` and `lag`: looks at a running cluster, as tables or JSON.

Each command asks what it needs side by side, with a limit on how much at a time, and prints one
table. What changes something (create, delete) says what it did.
"""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from ..client.admin import Admin
from ..client.security import Security
from ..protocol.bodies.body import MessageQueue
from ..protocol.bodies.route import MASTER_ID
from ..protocol.bodies.stats import OffsetWrapper
from ..protocol.names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_GROUPS, is_system_topic
from .failed import Failed
from .table import Columns, Row, table_lines

ASKED_AT_ONCE = 16
NEW_TOPIC_QUEUES = 4  # per broker, as many as a client gives a topic that makes itself

One = TypeVar("One")
Answer = TypeVar("Answer")


def declare(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of one of the four."""
    add = parser.add_argument
    if command == "topics":
        add("action", nargs="?", choices=["list", "create", "delete"], default="list")
        add("name", nargs="?", metavar="TOPIC", help="to list alone, create or delete")
        add("--queues", type=int, metavar="N", help="of the topic, per broker (4)")
        add("--all", action="store_true", help="also those of the system, retries, dead letters")
    if command == "groups":
        add("action", nargs="?", choices=["list", "delete"], default="list")
        add("name", nargs="?", metavar="GROUP", help="to list alone, or delete with its progress")
        add("--all", action="store_true", help="also those of the system")
    if command == "lag":
        add("group", nargs="?", metavar="GROUP", help="queue by queue, of this group")
    add(
        "-n",
        "--namesrv",
        metavar="ADDR;ADDR",
        help="name servers ($NAMESRV_ADDR, or 127.0.0.1:9876)",
    )
    add("--json", action="store_true", help="one object a line instead of a table")
    work = {"topics": topics, "groups": groups, "cluster": cluster, "lag": lag}[command]
    parser.set_defaults(run=lambda options: asyncio.run(with_admin(work, options)))


async def topics(admin: Admin, options: argparse.Namespace) -> int:
    """All topics with their queues and messages; or makes one, or deletes one."""
    if options.action != "list":
        name = _named(options, "topic")
        exists = name in await admin.topics()
        if options.action == "create":
            await _create(admin, name, options.queues, exists=exists)
        elif exists:
            await admin.delete_topic(name)
            print(f"deleted topic {name} and its messages")
        else:
            raise _unknown("topic", name)
        return 0
    if options.queues is not None:
        raise Failed("--queues is for create; write: aerobee topics create NAME --queues N")
    names = await admin.topics()
    if options.name is not None:
        names = _only(options, "topic", names)
    elif not options.all:
        info = await admin.cluster_info()
        own = {*info.broker_addr_table, *info.cluster_addr_table}
        own |= {f"{name}_REPLY_TOPIC" for name in info.cluster_addr_table}
        hidden = (RETRY_PREFIX, DLQ_PREFIX)
        names = [
            name
            for name in names
            if not (name in own or is_system_topic(name) or name.startswith(hidden))
        ]
    return _print(
        ("TOPIC", "BROKERS", "QUEUES", "MESSAGES", "LAST MESSAGE"),
        await each(names, lambda name: _topic_row(admin, name)),
        options,
    )


async def _create(admin: Admin, name: str, queues: int | None, *, exists: bool) -> None:
    """Makes a topic, or gives one as many queues as are asked for, and says which it was."""
    if exists and queues is None:
        print(f"topic {name} exists already; --queues N gives it another number of queues")
        return
    queues = NEW_TOPIC_QUEUES if queues is None else queues
    await admin.create_topic(name, queues)
    if exists:
        print(f"topic {name} has {queues} queues on each broker now")
    else:
        print(f"created topic {name} with {queues} queues on each broker")


async def groups(admin: Admin, options: argparse.Namespace) -> int:
    """All consumer groups with their members; or deletes one."""
    if options.action != "list":
        name = _named(options, "group")
        known = await _group_names(admin, everything=True)
        if name not in known and not await _progress(admin, name):
            raise _unknown("group", name)
        await admin.delete_group(name, clean_offsets=True)
        print(f"deleted group {name} and its progress")
        return 0
    names = await _group_names(admin, everything=options.all or options.name is not None)
    if options.name is not None:
        names = _only(options, "group", names)
    rows = await each(names, lambda name: _group_row(admin, name))
    return _print(("GROUP", "MEMBERS", "TOPICS", "BEHIND BY"), rows, options)


async def cluster(admin: Admin, options: argparse.Namespace) -> int:
    """All brokers with what they do."""
    info = await admin.cluster_info()
    brokers = [
        (data.cluster or "", name, number, address)
        for name, data in sorted(info.broker_addr_table.items())
        for number, address in sorted(data.broker_addrs.items())
    ]

    async def row(broker: tuple[str, str, int, str]) -> Row:
        found = await admin.broker_runtime(broker[3])
        role = "master" if broker[2] == MASTER_ID else f"slave {broker[2]}"
        rates = [_first(found.get(key, "")) for key in ("putTps", "getTransferredTps")]
        version = found.get("brokerVersionDesc", "")
        return (broker[0], broker[1], role, broker[3], version, *rates)

    columns = ("CLUSTER", "BROKER", "ROLE", "ADDRESS", "VERSION", "IN/S", "OUT/S")
    return _print(columns, await each(brokers, row), options)


async def lag(admin: Admin, options: argparse.Namespace) -> int:
    """How far each group is behind, by topic; of one group by queue."""
    if options.group is not None:
        table = await _progress(admin, options.group)
        if not table:
            raise Failed(f"group {options.group} has consumed nothing yet, or does not exist")
        rows: list[Row] = [
            (
                *(queue.topic, queue.broker_name, queue.queue_id),
                *(one.consumer_offset, one.broker_offset, one.broker_offset - one.consumer_offset),
            )
            for queue, one in sorted(table.items())
        ]
        columns: Columns = ("TOPIC", "BROKER", "QUEUE", "CONSUMED", "END", "BEHIND BY")
        return _print(columns, rows, options)
    names = await _group_names(admin, everything=False)
    tables = await each(names, lambda name: _progress(admin, name))
    sums: dict[tuple[str, str], int] = {}
    for name, found in zip(names, tables, strict=True):
        for queue, one in found.items():
            key = name, queue.topic
            sums[key] = sums.get(key, 0) + one.broker_offset - one.consumer_offset
    rows = [(*key, behind) for key, behind in sorted(sums.items())]
    return _print(("GROUP", "TOPIC", "BEHIND BY"), rows, options)


async def with_admin(
    work: Callable[[Admin, argparse.Namespace], Awaitable[int]], options: argparse.Namespace
) -> int:
    """Does the work with a client for the name servers of the options; the exit code."""
    async with Admin(options.namesrv, security=Security.from_environment()) as admin:
        return await work(admin, options)


async def _topic_row(admin: Admin, name: str) -> Row:
    route = await admin.route(name)
    queues = sum(one.write_queue_nums for one in route.queue_datas)
    stats = (await admin.topic_stats(name)).offset_table.values()
    stored = sum(one.max_offset - max(0, one.min_offset) for one in stats)
    last_ms = max((one.last_update_timestamp for one in stats), default=0)
    last = datetime.fromtimestamp(last_ms / 1000).isoformat(" ", "seconds") if last_ms else "never"
    brokers = ",".join(sorted(one.broker_name or "" for one in route.broker_datas))
    return (name, brokers, queues, stored, last)


async def _group_row(admin: Admin, name: str) -> Row:
    online, progress = await asyncio.gather(admin.consumer_connection(name), _progress(admin, name))
    read = {queue.topic for queue in progress}
    if online is not None:
        read |= set(online.subscription_table)
    members = len(online.connection_set) if online is not None else 0
    topics = ",".join(sorted(topic for topic in read if not topic.startswith(RETRY_PREFIX)))
    behind = sum(one.broker_offset - one.consumer_offset for one in progress.values())
    return (name, members, topics or "-", behind)


async def _group_names(admin: Admin, *, everything: bool) -> list[str]:
    found = {
        name for one in (await admin.groups()).values() for name in one.subscription_group_table
    }
    return sorted(found if everything else found.difference(SYSTEM_GROUPS))


async def _progress(admin: Admin, group: str) -> dict[MessageQueue, OffsetWrapper]:
    return (await admin.consume_stats(group)).offset_table


async def each(things: Iterable[One], ask: Callable[[One], Awaitable[Answer]]) -> list[Answer]:
    """The answers in the order of the things, a limited number asked at a time."""
    room = asyncio.Semaphore(ASKED_AT_ONCE)

    async def one(thing: One) -> Answer:
        async with room:
            return await ask(thing)

    return await asyncio.gather(*(one(thing) for thing in things))


def _named(options: argparse.Namespace, what: str) -> str:
    if not options.name:
        raise Failed(f"which {what}? write: aerobee {options.command} {options.action} NAME")
    name: str = options.name
    return name


def _only(options: argparse.Namespace, what: str, names: list[str]) -> list[str]:
    """The one that was named; Failed when it isn't there."""
    if options.name not in names:
        raise _unknown(what, options.name)
    return [options.name]


def _unknown(what: str, name: str) -> Failed:
    return Failed(f"there is no {what} {name}; `aerobee {what}s --all` lists those there are")


def _first(text: str) -> float:
    """The first of several numbers: RocketMQ's rates over 10 s, 1 min and 10 min."""
    words = text.split()
    return round(float(words[0]), 1) if words else 0.0


def _print(columns: Columns, rows: Sequence[Row], options: argparse.Namespace) -> int:
    if options.json:
        names = [name.lower().replace(" ", "_").replace("/", "_per_") for name in columns]
        for row in rows:
            print(json.dumps(dict(zip(names, row, strict=True))))
        return 0
    for line in table_lines(columns, rows):
        print(line)
    return 0
