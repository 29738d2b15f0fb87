"""`aerobee topics`: lists, shows, creates, shrinks and deletes topics."""

import argparse
import asyncio
import sys
import time

from ...client.admin.admin import READ_WRITE, Admin
from ...client.admin.shrinking import ROUTES_RENEWED_SECONDS, Unread
from ...client.base.concurrent import each
from ...protocol.bodies.topic import PERM_READ, PERM_WRITE, TopicConfig
from ..connecting import add_admin
from ..named import named, only, unknown, user_topics
from ..output.command_error import CommandError
from ..output.sanitize import json_line
from ..output.table import Columns, Row, latest, objects, print_rows, table_lines
from .groups import progress

NEW_TOPIC_QUEUES = 4  # per broker, as many as a client gives a topic that makes itself
MESSAGE_TYPE = "message.type"  # the attribute, NORMAL without one
PERMISSIONS = {PERM_READ | PERM_WRITE: "read, write", PERM_READ: "read", PERM_WRITE: "write"}
ACTIONS = ["list", "show", "create", "shrink", "delete"]

LIST: Columns = ("TOPIC", "BROKERS", "QUEUES", "MESSAGES", "LAST MESSAGE")
BROKERS: Columns = ("BROKER", "TYPE", "PERMISSION", "ORDERED", "READ QUEUES", "WRITE QUEUES")
QUEUES: Columns = ("BROKER", "QUEUE", "FIRST", "END", "MESSAGES", "LAST MESSAGE")
GROUPS: Columns = ("GROUP", "MEMBERS", "BEHIND BY")

SAY_AGAIN_SECONDS = 10.0  # what keeps a topic from shrinking is said again, though it is the same

# The actions that take an option.
CREATE, SHRINK = ("create",), ("shrink",)
TAKEN_BY = {
    "queues": (*CREATE, *SHRINK),
    **dict.fromkeys(("read_queues", "retention_ms", "retention_bytes"), CREATE),
    **dict.fromkeys(("broker", "cluster"), CREATE),
    **dict.fromkeys(("settle", "timeout", "force"), SHRINK),
}


def declare(_: str, parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.epilog = (
        "shrink takes queues away without losing what is in them: from now on the topic takes "
        "messages in N queues, and once every group has read the others to their end, only N are "
        "read. Meanwhile it shows which groups keep it. Ctrl-C leaves the topic as it is then, and "
        "the same command goes on."
    )
    add = parser.add_argument
    add("action", nargs="?", choices=ACTIONS, default="list")
    add("name", nargs="?", metavar="TOPIC", help="to list alone, show, create, shrink or delete")
    add("--queues", type=int, metavar="N", help="of the topic, per broker (4); for shrink: fewer")
    add(
        "--read-queues",
        type=int,
        metavar="N",
        help="queues that are read; as many as --queues without it, which then only take messages",
    )
    add("--broker", metavar="NAME", help="for create: on the master of this name alone")
    add("--cluster", metavar="NAME", help="for create: on the masters of this cluster alone")
    add("--retention-ms", type=int, metavar="N", help="of the topic; the broker's without it")
    add("--retention-bytes", type=int, metavar="N", help="of each queue; no limit without it")
    add(
        "--settle",
        type=float,
        metavar="SECONDS",
        help=f"for shrink: wait so long at least ({ROUTES_RENEWED_SECONDS:g}), as clients with an "
        "older route still send; on RocketMQ's brokers more than the longest delay of a message",
    )
    add("--timeout", type=float, metavar="SECONDS", help="for shrink: give up then (never)")
    add(
        "--force",
        action="store_true",
        default=None,
        help="for shrink: although messages that no group reads get out of reach",
    )
    add("--all", action="store_true", help="also those of the system, retries, dead letters")
    add_admin(parser, topics)


async def topics(admin: Admin, options: argparse.Namespace) -> int:
    """All topics with their queues and messages; or shows, makes, shrinks or deletes one."""
    _check_options(options)
    if options.action == "list":
        names = await admin.topics() if options.all or options.name else await user_topics(admin)
        if options.name is not None:
            names = only(options, "topic", names)
        rows = await each(names, lambda name: _topic_row(admin, name))
        return print_rows(LIST, rows, as_json=options.json)
    name = named(options, "topic")
    exists = name in await admin.topics()
    if options.action == "create":
        await _create(admin, name, options, exists=exists)
        return 0
    if not exists:
        raise unknown("topic", name)
    if options.action == "show":
        return await _show(admin, name, as_json=options.json)
    if options.action == "shrink":
        await _shrink(admin, name, options)
        return 0
    await admin.delete_topic(name)
    print(f"deleted topic {name} and its messages")
    return 0


def _check_options(options: argparse.Namespace) -> None:
    """CommandError for an option of another action."""
    for option, actions in TAKEN_BY.items():
        if getattr(options, option) is not None and options.action not in actions:
            given = f"--{option.replace('_', '-')}"
            raise CommandError(
                f"{options.action} takes no {given}, which is for {' and '.join(actions)}; leave "
                "it out"
            )


async def _create(admin: Admin, name: str, options: argparse.Namespace, *, exists: bool) -> None:
    """Creates a topic, or changes its number of queues and its retention, and prints which.

    What is not given stays as it is on each broker.
    """
    attributes = {
        key: str(value)
        for key, value in (
            ("retention.ms", options.retention_ms),
            ("retention.bytes", options.retention_bytes),
        )
        if value is not None
    }
    masters = await admin.masters(cluster=options.cluster, broker=options.broker)
    configs = await admin.topic_config(name) if exists else {}
    known = {broker: config for broker, config in configs.items() if broker in masters}
    queues, reads = options.queues, options.read_queues
    is_resized = queues is not None or reads is not None
    if known and not is_resized and not attributes:
        print(f"topic {name} exists already; --queues N gives it another number of queues")
        return
    for broker in masters if is_resized or not known else known:
        await _put(admin, name, broker, known.get(broker), options, attributes)
    if known and attributes:
        print(f"topic {name} has {', '.join(map('='.join, attributes.items()))} now")
        return
    place = "on each broker"
    if options.broker is not None:
        place = f"on broker {options.broker}"
    elif options.cluster is not None:
        place += f" of cluster {options.cluster}"
    if queues is None and known:
        print(f"topic {name} has {reads} queues to read {place} now")
        return
    size = f"{NEW_TOPIC_QUEUES if queues is None else queues} queues"
    size += "" if reads is None else f", {reads} to read,"
    if known:
        print(f"topic {name} has {size} {place} now")
    else:
        print(f"created topic {name} with {size} {place}")


async def _put(
    admin: Admin,
    name: str,
    broker: str,
    known: TopicConfig | None,
    options: argparse.Namespace,
    attributes: dict[str, str],
) -> None:
    """Makes the topic on one broker, or changes there what the options name."""
    queues, reads = options.queues, options.read_queues
    if queues is None:
        queues = NEW_TOPIC_QUEUES if known is None else known.write_queue_nums
        reads = known.read_queue_nums if known is not None and reads is None else reads
    await admin.create_topic(
        name,
        queues,
        read_queues=reads,
        perm=READ_WRITE if known is None else known.perm,
        order=known is not None and known.order,
        attributes=attributes,
        broker=broker,
    )


async def _shrink(admin: Admin, name: str, options: argparse.Namespace) -> None:
    """Takes queues away from a topic, and prints meanwhile what keeps them."""
    queues: int | None = options.queues
    if queues is None:
        raise CommandError(f"to how many? write: aerobee topics shrink {name} --queues N")
    again = f"aerobee topics shrink {name} --queues {queues}"
    settle_s = ROUTES_RENEWED_SECONDS if options.settle is None else options.settle
    said, said_at, began = "", 0.0, False

    def looked(keeping: list[Unread]) -> None:
        nonlocal said, said_at, began
        if not began:
            print(
                f"topic {name} takes messages in {queues} queues on each broker now; the others "
                f"are read to their end, which is waited for, {settle_s:g} s at least",
                flush=True,
            )
            began = True
        now = time.monotonic()
        text = _waiting(name, keeping)
        if text != said or now - said_at >= SAY_AGAIN_SECONDS:
            print(text, flush=True)
            said, said_at = text, now

    try:
        await admin.shrink_topic(
            name,
            queues,
            force=bool(options.force),
            settle_s=settle_s,
            timeout_s=options.timeout,
            looked=looked,
        )
    except asyncio.CancelledError:
        if began:
            print(
                f"topic {name} is left as it is: it takes messages in {queues} queues, and is read "
                f"in all; go on with: {again}",
                file=sys.stderr,
            )
        raise
    print(f"topic {name} has {queues} queues on each broker now")


def _waiting(topic: str, keeping: list[Unread]) -> str:
    """The text about what keeps a topic from shrinking; says what to do about groups without
    members."""
    if not keeping:
        return "nothing is left in them; waiting for producers with an older route"
    text = f"waiting for {', '.join(map(str, keeping))}"
    for one in keeping:
        if one.group and not one.members:
            text += (
                f"\n  nobody reads for group {one.group}: start it, or have it skip what is there: "
                f"aerobee groups reset {one.group} --topic {topic} --to latest"
            )
    return text


async def _show(admin: Admin, name: str, *, as_json: bool) -> int:
    """Print a topic's settings on each broker, its queues, and the groups that read it."""
    brokers = [
        _broker_row(broker, config)
        for broker, config in sorted((await admin.topic_config(name)).items())
    ]
    stats = await admin.topic_stats(name)
    queues: list[Row] = [
        (
            queue.broker_name,
            queue.queue_id,
            max(0, one.min_offset),
            one.max_offset,
            one.max_offset - max(0, one.min_offset),
            latest([one.last_update_timestamp]),
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
    return (name, brokers, queues, stored, latest(one.last_update_timestamp for one in stats))
