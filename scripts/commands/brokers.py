"""`aerobee cluster`: the brokers of a cluster, what they run and how busy they are."""

import argparse

from ...client.admin.admin import Admin
from ...client.admin.brokers import AEROBEE_VERSION
from ...client.base.concurrent import each
from ...protocol.bodies.route import MASTER_ID
from ..connecting import add_options, run_admin
from ..output.table import Columns, Row, print_rows

# VERSION is RocketMQ's, which clients go by; AEROBEE that of the program, "-" for a Java broker.
COLUMNS: Columns = (
    *("CLUSTER", "BROKER", "ROLE", "ADDRESS", "VERSION", "AEROBEE"),
    *("IN/S", "OUT/S"),
)


def declare(_: str, parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--json", action="store_true", help="one object a line instead of a table")
    add_options(parser)
    parser.set_defaults(run=lambda options: run_admin(cluster, options))


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
