"""`aerobee doctor`: examines a cluster for silent reasons why messages are not sent or not read.

`console/findings` asks and judges.
"""

import argparse
import json

from ...client.admin.admin import Admin
from ...console.findings.examine import controlled, examine
from ..connecting import add_admin
from ..output.sanitize import sanitize
from .grpc_findings import of_proxies


def declare(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.epilog = "Exit code 0 when nothing was found, 1 when something was."
    add = parser.add_argument
    add("--json", action="store_true", help="one object a line, for each finding")
    add(
        "--grpc",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="look at a gRPC proxy as well, as its clients dial it; may be repeated",
    )
    add_admin(parser, doctor, json_help=None)


async def doctor(admin: Admin, options: argparse.Namespace) -> int:
    """Prints the broker names in controller mode, then the findings, or that there are none."""
    lines, of_sets = await controlled(admin)
    found = sorted({*await examine(admin), *of_sets, *await of_proxies(admin, options.grpc)})
    if not options.json:
        if lines:
            print("in controller mode, as they are:")
        for line in lines:
            print(f"  {sanitize(line)}")
        if lines and found:
            print("found:")
    for finding in found:
        if options.json:
            print(json.dumps({one: getattr(finding, one) for one in ("where", "what", "do")}))
        else:
            print(sanitize(str(finding)))
    if not found and not options.json:
        print("nothing found")
    return 1 if found else 0
