"""`aerobee topics`: lists, shows, creates and deletes topics."""

import argparse
from collections.abc import Iterable
from datetime import datetime

from ...client.admin.admin import Admin
from ...client.base.concurrent import each
from ...protocol.bodies.topic import PERM_READ, PERM_WRITE, TopicConfig
from ..connecting import add_options, run_admin
from ..named import named, only, unknown, user_topics
from ..output.command_error import CommandError
from ..output.sanitize import json_line
from ..output.table import Columns, Row, objects, print_rows, table_lines
from .groups import progress

NEW_TOPIC_QUEUES = 4  # per broker, as many as a client gives a topic that makes itself
MESSAGE_TYPE = "message.type"  # the attribute, NORMAL without one
PERMISSIONS = {PERM_READ | PERM_WRITE: "read, write", PERM_READ: "read", PERM_WRITE: "write"}

LIST: Columns = ("TOPIC", "BROKERS", "QUEUES", "MESSAGES", "LAST MESSAGE")
BROKERS: Columns = ("BROKER", "TYPE", "PERMISSION", "ORDERED", "READ QUEUES", "WRITE QUEUES")
QUEUES: Columns = ("BROKER", "QUEUE", "FIRST", "END", "MESSAGES", "LAST MESSAGE")
GROUPS: Columns = ("GROUP", "MEMBERS", "BEHIND BY")


def declare(_: str, parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = parser.add_argument
    add("action", nargs="?", choices=["list", "show", "create", "delete"], default="list")
    add("name", nargs="?", metavar="TOPIC", help="to list alone, show, create or delete")
    add("--queues", type=int, metavar="N", help="of the topic, per broker (4)")
    add("--retention-ms", type=int, metavar="N", help="of the topic; the broker's without it")
    add("--retention-bytes", type=int, metavar="N", help="of each queue; no limit without it")
    add("--all", action="store_true", help="also those of the system, retries, dead letters")
    add("--json", action="store_true", help="one object a line instead of a table")
    add_options(parser)
    parser.set_defaults(run=lambda options: run_admin(topics, options))


async def topics(admin: Admin, options: argparse.Namespace) -> int:
    """All topics with their queues and messages; or shows one, makes one, deletes one."""
    for option in ("queues", "retention_ms", "retention_bytes"):
        if getattr(options, option) is not None and options.action != "create":
            given = f"--{option.replace('_', '-')}"
            raise CommandError(
                f"{given} is for create; write: aerobee topics create NAME {given} N"
            )
    if options.action == "list":
        names = await admin.topics() if options.all or options.name else await user_topics(admin)
        if options.name is not None:
            names = only(options, "topic", names)
        rows = await each(names, lambda name: _topic_row(admin, name))
        return print_rows(LIST, rows, as_json=options.json)
    name = named(options, "topic")
    exists = name in await admin.topics()
    if options.action == "create":
        attributes = {
            key: str(value)
            for key, value in (
                ("retention.ms", options.retention_ms),
                ("retention.bytes", options.retention_bytes),
            )
            if value is not None
        }
        await _create(admin, name, options.queues, attributes, exists=exists)
        return 0
    if not exists:
        raise unknown("topic", name)
    if options.action == "show":
        return await _show(admin, name, as_json=options.json)
    await admin.delete_topic(name)
    print(f"deleted topic {name} and its messages")
    return 0


async def _create(
    admin: Admin, name: str, queues: int | None, attributes: dict[str, str], *, exists: bool
) -> None:
    """Creates a topic, or changes its number of queues and its retention, and prints which."""
    if exists and attributes:
        for broker, config in (await admin.topic_config(name)).items():
            await admin.create_topic(
                name,
                config.write_queue_nums if queues is None else queues,
                perm=config.perm,
                order=config.order,
                attributes=attributes,
                broker=broker,
            )
        print(f"topic {name} has {', '.join(map('='.join, attributes.items()))} now")
        return
    if exists and queues is None:
        print(f"topic {name} exists already; --queues N gives it another number of queues")
        return
    queues = NEW_TOPIC_QUEUES if queues is None else queues
    await admin.create_topic(name, queues, attributes=attributes)
    if exists:
        print(f"topic {name} has {queues} queues on each broker now")
    else:
        print(f"created topic {name} with {queues} queues on each broker")


async def _show(admin: Admin, name: str, *, as_json: bool) -> int:
    """Its settings on each broker, its queues, and the groups that read it."""
    brokers = [
        _broker_row(broker, config)
        for broker, config in sorted((await admin.topic_config(name)).items())
    ]
    stats = await admin.topic_stats(name)
    queues: list[Row] = [
        (
            *(queue.broker_name, queue.queue_id, max(0, one.min_offset), one.max_offset),
            *(one.max_offset - max(0, one.min_offset), _time([one.last_update_timestamp])),
        )
        for queue, one in sorted(stats.offset_table.items())
    ]
    names = await admin.groups_of_topic(name)
    groups = await each(names, lambda group: _group_row(admin, group, name))
    tables = ((BROKERS, brokers), (QUEUES, queues), (GROUPS, groups))
    if as_json:
        titles = ("brokers", "queues", "groups")
        parts = {title: list(objects(*table)) for title, table in zip(titles, tables, strict=True)}
        print(json_line({"topic": name, **parts}))
        return 0
    for columns, rows in tables:
        if columns is not BROKERS:
            print()
        if columns is GROUPS and not rows:
            print("no group reads it, or has read it")
            continue
        for line in table_lines(columns, rows):
            print(line)
    return 0


def _broker_row(broker: str, config: TopicConfig) -> Row:
    perm = config.perm & (PERM_READ | PERM_WRITE)
    return (
        broker,
        config.attributes.get(MESSAGE_TYPE, "NORMAL"),
        f"{config.perm} ({PERMISSIONS.get(perm, 'none')})",
        "yes" if config.order else "no",
        config.read_queue_nums,
        config.write_queue_nums,
    )


async def _group_row(admin: Admin, group: str, topic: str) -> Row:
    online = await admin.consumer_connection(group)
    behind = sum(
        one.broker_offset - one.consumer_offset
        for queue, one in (await progress(admin, group)).items()
        if queue.topic == topic
    )
    return (group, len(online.connection_set) if online is not None else 0, behind)


async def _topic_row(admin: Admin, name: str) -> Row:
    route = await admin.route(name)
    queues = sum(one.write_queue_nums for one in route.queue_datas)
    stats = (await admin.topic_stats(name)).offset_table.values()
    stored = sum(one.max_offset - max(0, one.min_offset) for one in stats)
    brokers = ",".join(sorted(one.broker_name or "" for one in route.broker_datas))
    return (name, brokers, queues, stored, _time(one.last_update_timestamp for one in stats))


def _time(times_ms: Iterable[int]) -> str:
    """The latest of these times."""
    last_ms = max(times_ms, default=0)
    return datetime.fromtimestamp(last_ms / 1000).isoformat(" ", "seconds") if last_ms else "never"
