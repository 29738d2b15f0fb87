"""`aerobee dlq`: dead letters, the messages that a consumer group gave up after its last try.

They stay in a topic of the group until retention deletes them. `resend` delivers them to the group
once more, with all retries; they also stay, so that the same command sends them again.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator

from ...client.admin.admin import Admin
from ...client.admin.dead_letters import origin_of
from ...client.base.concurrent import each
from ...client.base.words import counted
from ...client.pull.reader import Reader
from ...protocol import codes
from ...protocol.message import properties as props
from ...protocol.message.record import Record, decode_all
from ...protocol.names import DLQ_PREFIX
from ..connecting import add_options, security
from ..numbers import whole
from ..output.command_error import CommandError
from ..output.message_object import body_of, id_of, object_of
from ..output.sanitize import json_line
from ..output.table import Cell, Columns, Row, latest, print_rows

LIST: Columns = ("GROUP", "MESSAGES", "LAST MESSAGE")
SHOW: Columns = ("ID", "TOPIC", "GIVEN UP", "TRIES", "KEYS", "BODY")
PULL_MESSAGES = 256
SHOWN = 20
SHOWN_MAX = 10_000  # are kept in memory
SHOWN_COUNT = whole(f"is no number from 1 to {SHOWN_MAX:,}", 1, SHOWN_MAX)
BODY_CHARS = 60  # of a body in the table


def declare(_: str, parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.epilog = (
        "resend gives them to this group alone, through its retry topic; with --original it sends "
        "them to the topic they came from, where every group gets them."
    )
    add = parser.add_argument
    add("action", nargs="?", choices=["list", "show", "resend"], default="list")
    add("group", nargs="?", metavar="GROUP", help="whose dead letters")
    add("ids", nargs="*", metavar="ID", help="of the messages to send again")
    add("--all", action="store_true", help="send all of them again")
    add("--original", action="store_true", help="to the topic they came from")
    add("--last", type=SHOWN_COUNT, default=SHOWN, metavar="N", help=f"how many to show ({SHOWN})")
    add("--json", action="store_true", help="one object a line instead of a table")
    add_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Lists the groups with dead letters, shows those of one, or sends some again."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    if options.action != "list" and not options.group:
        raise CommandError(f"which group? write: aerobee dlq {options.action} GROUP")
    if options.action == "resend" and bool(options.ids) == options.all:
        raise CommandError(
            f"which messages? write: aerobee dlq resend {options.group} ID ID, or --all for every "
            f"one; `aerobee dlq show {options.group}` lists them"
        )
    secured = security(options)
    async with (
        Admin(options.namesrv, security=secured) as admin,
        Reader(options.namesrv, security=secured) as reader,
    ):
        if options.action == "list":
            return await _list(admin, options)
        if options.group not in await _groups(admin):
            raise CommandError(
                f"group {options.group} has no dead letters; "
                "`aerobee dlq` lists groups with dead letters"
            )
        if options.action == "show":
            return await _show(reader, options)
        return await _resend(admin, reader, options)


async def _groups(admin: Admin) -> list[str]:
    names = await admin.topics()
    return [name.removeprefix(DLQ_PREFIX) for name in names if name.startswith(DLQ_PREFIX)]


async def _list(admin: Admin, options: argparse.Namespace) -> int:
    async def row(group: str) -> Row:
        stats = (await admin.topic_stats(DLQ_PREFIX + group)).offset_table.values()
        stored = sum(one.max_offset - max(0, one.min_offset) for one in stats)
        return (group, stored, latest(one.last_update_timestamp for one in stats))

    groups = [options.group] if options.group else await _groups(admin)
    return print_rows(LIST, await each(groups, row), as_json=options.json)


async def _show(reader: Reader, options: argparse.Namespace) -> int:
    """The last ones of each queue, the oldest first."""
    found = [one async for one in _letters(reader, options.group, options.last)]
    found = sorted(found, key=lambda one: one.store_ms)[-options.last :]
    if options.json:
        for record in found:
            print(json_line(object_of(record) | {"origin": origin_of(record, options.group)}))
        return 0
    rows = [_row(record, options.group) for record in found]
    return print_rows(SHOW, rows, as_json=False)


def _row(record: Record, group: str) -> tuple[Cell, ...]:
    body = body_of(record).decode(errors="backslashreplace")
    body = body if len(body) <= BODY_CHARS else f"{body[: BODY_CHARS - 1]}…"
    return (
        id_of(record),
        origin_of(record, group),
        latest([record.store_ms]),
        record.reconsume_times,
        record.properties.get(props.KEYS, "") or "-",
        body,
    )


async def _resend(admin: Admin, reader: Reader, options: argparse.Namespace) -> int:
    wanted = set(options.ids)
    sent: dict[str, int] = {}
    missing = set(wanted)
    async for record in _letters(reader, options.group):
        names = {id_of(record), record.offset_id}
        if options.all or names & wanted:
            topic = await admin.resend(record, options.group, original=options.original)
            sent[topic] = sent.get(topic, 0) + 1
            missing -= names
    for topic, count in sorted(sent.items()):
        print(f"sent {counted(count, 'message')} to {topic}")
    if missing:
        raise CommandError(
            f"group {options.group} has no dead letter {', '.join(sorted(missing))}; "
            f"`aerobee dlq show {options.group}` lists them"
        )
    if not sent:
        print(f"group {options.group} has no dead letters now")
    return 0


async def _letters(reader: Reader, group: str, last: int | None = None) -> AsyncIterator[Record]:
    """The dead letters there are now, queue by queue; with `last` only that many of each queue."""
    for queue in await reader.queues(DLQ_PREFIX + group):
        end, offset = await reader.max_offset(queue), await reader.min_offset(queue)
        if last is not None:
            offset = max(offset, end - last)
        while offset < end:
            pulled = await reader.pull(queue, offset, PULL_MESSAGES)
            for record in decode_all(pulled.body):
                if record.queue_offset < end:
                    yield record
            if pulled.code != codes.SUCCESS and pulled.next_offset <= offset:
                break
            offset = pulled.next_offset
