"""`aerobee groups` and `lag`: consumer groups, their progress, and resetting their offsets.

`reset` sets a group's offsets to a time; connected members continue from there.
"""

import argparse
import asyncio

from ...client.admin.admin import Admin
from ...client.admin.groups import NOW
from ...client.base.concurrent import each
from ...client.base.start_from import FIRST, LAST, StartFrom
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.stats import OffsetWrapper
from ...protocol.names import RETRY_PREFIX, SYSTEM_GROUPS
from ..connecting import add_admin
from ..named import named, only, unknown
from ..output.command_error import CommandError
from ..output.table import Columns, Row, print_rows

LIST: Columns = ("GROUP", "MEMBERS", "TOPICS", "BEHIND BY")
RESET: Columns = ("TOPIC", "BROKER", "QUEUE", "WAS", "NOW", "BEHIND BY")
LAG: Columns = ("GROUP", "TOPIC", "BEHIND BY")
LAG_OF_ONE: Columns = ("TOPIC", "BROKER", "QUEUE", "CONSUMED", "END", "BEHIND BY")


def declare(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of one of the two."""
    add = parser.add_argument
    if command == "groups":
        add("action", nargs="?", choices=["list", "delete", "reset"], default="list")
        add("name", nargs="?", metavar="GROUP", help="to list alone, reset, or delete with offsets")
        add("--all", action="store_true", help="also those of the system")
        add(
            "--to",
            metavar="WHERE",
            help="for reset: earliest, latest, ms since the epoch, or a time like 2030-01-31T12:00",
        )
        add("--topic", metavar="TOPIC", help="for reset: this topic alone (all that it has read)")
    else:
        add("group", nargs="?", metavar="GROUP", help="queue by queue, of this group")
    add_admin(parser, groups if command == "groups" else lag)


async def groups(admin: Admin, options: argparse.Namespace) -> int:
    """All consumer groups with their members; or resets one, or deletes one."""
    if options.action != "reset" and (options.to or options.topic):
        raise CommandError(
            "--to and --topic are for reset; write: aerobee groups reset NAME --to WHERE"
        )
    if options.action == "list":
        names = await group_names(admin, everything=options.all or options.name is not None)
        if options.name is not None:
            names = only(options, "group", names)
        rows = await each(names, lambda name: _group_row(admin, name))
        return print_rows(LIST, rows, as_json=options.json)
    name = named(options, "group")
    if options.action == "reset" and not options.to:
        raise CommandError(
            f"where to? write: aerobee groups reset {name} --to earliest, latest, or a time"
        )
    known = await group_names(admin, everything=True)
    if name not in known and not await progress(admin, name):
        raise unknown("group", name)
    if options.action == "reset":
        return await _reset(admin, name, options)
    await admin.delete_group(name, clean_offsets=True)
    print(f"deleted group {name} and its progress")
    return 0


async def _reset(admin: Admin, name: str, options: argparse.Namespace) -> int:
    """Sets the group's offsets in one topic, or in all topics that it reads or has read."""
    start = StartFrom.read(int(options.to) if options.to.isdecimal() else options.to)
    ms = {FIRST: 0, LAST: NOW}.get(start.where, start.ms)
    before = await progress(admin, name)
    topics = [options.topic] if options.topic else sorted(await _topics_read(admin, name, before))
    if not topics:
        raise CommandError(f"group {name} has read no topic yet; name one with --topic")
    moved: dict[MessageQueue, int] = {}
    for topic in topics:
        moved |= await admin.reset_offsets(name, topic, ms)
    after = await progress(admin, name)
    rows: list[Row] = []
    for queue, offset in sorted(moved.items()):
        was, now = before.get(queue), after.get(queue)
        end = now.broker_offset if now is not None else offset
        consumed = str(was.consumer_offset) if was is not None else "-"
        place = (queue.topic, queue.broker_name, queue.queue_id)
        rows.append((*place, consumed, offset, max(0, end - offset)))
    return print_rows(RESET, rows, as_json=options.json)


async def lag(admin: Admin, options: argparse.Namespace) -> int:
    """The lag of each group by topic; of one group by queue."""
    if options.group is not None:
        table = await progress(admin, options.group)
        if not table:
            raise CommandError(f"group {options.group} has consumed nothing yet, or does not exist")
        rows: list[Row] = [
            (
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                one.consumer_offset,
                one.broker_offset,
                one.broker_offset - one.consumer_offset,
            )
            for queue, one in sorted(table.items())
        ]
        return print_rows(LAG_OF_ONE, rows, as_json=options.json)
    names = await group_names(admin, everything=False)
    tables = await each(names, lambda name: progress(admin, name))
    sums: dict[tuple[str, str], int] = {}
    for name, found in zip(names, tables, strict=True):
        for queue, one in found.items():
            key = name, queue.topic
            sums[key] = sums.get(key, 0) + one.broker_offset - one.consumer_offset
    rows = [(*key, behind) for key, behind in sorted(sums.items())]
    return print_rows(LAG, rows, as_json=options.json)


async def group_names(admin: Admin, *, everything: bool) -> list[str]:
    """The groups that the brokers know, sorted; with `everything` also the system's."""
    found = {
        name for one in (await admin.groups()).values() for name in one.subscription_group_table
    }
    return sorted(found if everything else found.difference(SYSTEM_GROUPS))


async def progress(admin: Admin, group: str) -> dict[MessageQueue, OffsetWrapper]:
    """The progress of a group by queue."""
    return (await admin.consume_stats(group)).offset_table


async def _group_row(admin: Admin, name: str) -> Row:
    online, table = await asyncio.gather(admin.consumer_connection(name), progress(admin, name))
    members = len(online.connection_set) if online is not None else 0
    topics = ",".join(sorted(await _topics_read(admin, name, table)))
    behind = sum(one.broker_offset - one.consumer_offset for one in table.values())
    return (name, members, topics or "-", behind)


async def _topics_read(
    admin: Admin, name: str, table: dict[MessageQueue, OffsetWrapper]
) -> set[str]:
    """The topics that a group subscribes to or has offsets in, without its retry topic."""
    online = await admin.consumer_connection(name)
    found = {queue.topic for queue in table}
    if online is not None:
        found |= set(online.subscription_table)
    return {topic for topic in found if not topic.startswith(RETRY_PREFIX)}
