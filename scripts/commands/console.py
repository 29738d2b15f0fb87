"""`aerobee console`: the process that shows clusters in a browser."""

import argparse
import re

from ...conf.version import own_version
from .. import serving
from ..connecting import add_options, security
from ..output.command_error import CommandError
from ..serving import Stack

PORT = 8082
PORT_MAX = 65_535
FIRST = "main"  # the name of the cluster of -n
BASE = re.compile(r"(/[A-Za-z0-9_.~-]+)*/?")
NAME = re.compile(r"[\w.-]{1,64}")


def declare(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add = parser.add_argument
    add(
        "--cluster",
        action="append",
        default=[],
        metavar="NAME=ADDR;ADDR",
        help="another cluster by its name servers; may be repeated",
    )
    add("--bind", default="127.0.0.1", metavar="ADDR", help="a loopback address (127.0.0.1)")
    add("--port", type=int, default=PORT, metavar="N", help=f"0: any free one ({PORT})")
    add("--base-path", default="", metavar="/PATH", help="the path before all pages")
    add(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that browsers may ask for, besides localhost; may be repeated",
    )
    add_options(parser)
    parser.set_defaults(run=console)


def console(options: argparse.Namespace) -> int:
    """The console by itself, until Ctrl-C."""
    servers = clusters_of(options)
    if not 0 <= options.port <= PORT_MAX:
        raise CommandError(f"--port is {options.port}; give 0 to {PORT_MAX}")
    if not BASE.fullmatch(options.base_path):
        raise CommandError(
            f"--base-path is {options.base_path!r}; give a path such as /console: / and letters, "
            "digits, and the signs _ . ~ -"
        )

    async def parts(stack: Stack) -> str:
        try:
            from ...console.clusters.clusters import Clusters
            from ...console.web.app import Console
        except ImportError as wrong:
            raise CommandError(
                f"the console needs the package jinja2, and {wrong.name} is not installed; run "
                "pip install 'aerobee[console]'"
            ) from None
        try:
            ours = Console(
                Clusters(servers, security(options)),
                address=options.bind,
                port=options.port,
                base=options.base_path,
                hosts=options.host,
            )
        except ValueError as wrong:  # an address beyond the loopback
            raise CommandError(str(wrong)) from None
        await stack.start(ours)
        return f"the console of aerobee {own_version()} is ready: {ours.url}; it only reads"

    return serving.run(parts)


def clusters_of(options: argparse.Namespace) -> dict[str, str | None]:
    """The name servers by cluster name; CommandError for a name that can't be used."""
    found: dict[str, str | None] = {}
    if options.namesrv is not None or not options.cluster:
        found[FIRST] = options.namesrv
    for text in options.cluster:
        name, _, address = text.partition("=")
        if not NAME.fullmatch(name) or not address:
            raise CommandError(
                f"--cluster is {text!r}; give NAME=ADDR, the name of up to 64 letters, digits and "
                "the signs _ . -"
            )
        if name in found:
            raise CommandError(f"--cluster {name} is given twice; give each cluster its own name")
        found[name] = address
    return found
