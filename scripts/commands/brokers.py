"""`aerobee cluster` and `aerobee drain`: the brokers of a cluster, and how one of them is emptied.

A drained broker takes no new messages and is read to its end, before it goes.
"""

import argparse
import asyncio
import time

from ...client.admin.admin import Admin
from ...client.admin.brokers import AEROBEE_VERSION
from ...client.admin.drain import Left
from ...client.base.concurrent import each
from ...protocol.bodies.route import MASTER_ID
from ...protocol.bodies.topic import PERM_READ, PERM_WRITE
from ..connecting import add_admin
from ..output.command_error import CommandError
from ..output.table import Columns, Row, print_rows

# VERSION is RocketMQ's, which clients go by; AEROBEE that of the program, "-" for a Java broker.
COLUMNS: Columns = (
    "CLUSTER",
    "BROKER",
    "ROLE",
    "ADDRESS",
    "VERSION",
    "AEROBEE",
    "IN/S",
    "OUT/S",
)
LEFT: Columns = ("WHAT", "GROUP", "TOPIC", "QUEUE", "MESSAGES", "KEEPS IT")
PERMISSION = "brokerPermission"
# Clients ask for routes every 30 s, and send to the broker until then.
STALE_SECONDS = 35.0
POLL_SECONDS = 2.0


def declare(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of one of the two."""
    if command == "drain":
        _declare_drain(parser)
        return
    add_admin(parser, cluster)


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
        versions = (found.get("brokerVersionDesc", ""), found.get(AEROBEE_VERSION, "-"))
        return (broker[0], broker[1], role, broker[3], *versions, *rates)

    return print_rows(COLUMNS, await each(brokers, row), as_json=options.json)


def _first(text: str) -> float:
    """The first of several numbers: RocketMQ's rates over 10 s, 1 min and 10 min."""
    words = text.split()
    return round(float(words[0]), 1) if words else 0.0


def _declare_drain(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit code 0 when the broker is empty, 1 while something keeps it. Messages that no group "
        "reads, and dead letters, are shown but don't keep it."
    )
    add = parser.add_argument
    add("broker", metavar="BROKER", help="the name of a broker, or its address")
    add("--wait", action="store_true", help="until it is empty; shows what keeps it meanwhile")
    add("--undo", action="store_true", help="it takes messages again")
    add("--look", action="store_true", help="change nothing, show what keeps it")
    add(
        "--settle",
        type=float,
        default=STALE_SECONDS,
        metavar="SECONDS",
        help=f"with --wait: look so long at least ({STALE_SECONDS:g}), as clients with an older "
        "route still send",
    )
    add_admin(parser, drain)


async def drain(admin: Admin, options: argparse.Namespace) -> int:
    """Closes a broker for new messages and shows what is left in it; or opens it again."""
    if options.undo and (options.wait or options.look):
        raise CommandError("--undo opens the broker again; leave --wait and --look out")
    name, address = await _broker(admin, options.broker)
    if options.undo:
        await admin.update_broker_config(address, {PERMISSION: PERM_READ | PERM_WRITE})
        print(f"{name} ({address}) takes messages again")
        return 0
    if not options.look:
        await admin.update_broker_config(address, {PERMISSION: PERM_READ})
    began = time.monotonic()
    left = await admin.left_to_read(address)
    if options.wait:
        left = await _waited(admin, address, left, began + options.settle, options)
    print_rows(LEFT, [_left_row(one) for one in left], as_json=options.json)
    kept = sum(one.messages for one in left if one.is_waited_for)
    if not options.json:
        closed = "" if options.look else " takes no new messages and"
        state = "is empty: every group has read it to its end"
        if kept:
            state = f"still has {kept} messages to hand out"
        print(f"{name} ({address}){closed} {state}")
    return 1 if kept else 0


async def _waited(
    admin: Admin, address: str, left: list[Left], earliest: float, options: argparse.Namespace
) -> list[Left]:
    """Wait until the broker is empty; show each change."""
    shown: list[Left] = []
    while any(one.is_waited_for for one in left) or time.monotonic() < earliest:
        if left != shown:
            print_rows(LEFT, [_left_row(one) for one in left], as_json=options.json)
            shown = left
        await asyncio.sleep(min(POLL_SECONDS, options.settle or POLL_SECONDS))
        left = await admin.left_to_read(address)
    return left


def _left_row(left: Left) -> Row:
    queue = left.queue if left.queue >= 0 else "all"
    keeps = "yes" if left.is_waited_for else "no"
    return (left.what, left.group or "-", left.topic or "-", str(queue), left.messages, keeps)


async def _broker(admin: Admin, text: str) -> tuple[str, str]:
    """Name and address of a master, given by either."""
    masters = await admin.masters()
    for name, address in masters.items():
        if text in (name, address):
            return name, address
    raise CommandError(
        f"there is no master {text}; the name server knows "
        + ", ".join(f"{name} ({address})" for name, address in masters.items())
    )
