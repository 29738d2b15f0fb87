"""`aerobee console`: the process that shows clusters in a browser."""

import argparse
import http.client
import os
import re
import socket
import ssl
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...conf.secret import secret_of
from ...conf.version import own_version
from ...protocol.aio.tls import server_context
from .. import console_users, logs, serving
from ..connecting import add_options, security
from ..console_users import default_users
from ..numbers import PORT_MAX
from ..output.command_error import CommandError
from ..serving import Stack

if TYPE_CHECKING:
    from ...console.access.access import Access
    from ...console.clusters.clusters import Clusters
    from ...console.clusters.lakes import Lakes
    from ...console.messages.protobuf import ProtobufTypes

PORT = 8082
PROXY_PORT = 8080
START_SECONDS = 30.0  # within which the console of `aerobee up` answers its first visitor
NICENESS = 10  # a broker on the same machine comes first
FIRST = "main"  # the name of the cluster of -n
BASE = re.compile(r"(/[A-Za-z0-9_.~-]+)*/?")
HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
NAME = re.compile(r"[\w.-]{1,64}")
LAKE = re.compile(r"https?://[^\s/?#@=]+/?")


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
    add("--bind", default="127.0.0.1", metavar="ADDR", help="the address to listen on (127.0.0.1)")
    add("--port", type=int, default=PORT, metavar="N", help=f"0: any free one ({PORT})")
    add("--base-path", default="", metavar="/PATH", help="the path before all pages")
    add(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that browsers may ask for, besides localhost; may be repeated",
    )
    add(
        "--proxy-port",
        type=int,
        default=PROXY_PORT,
        metavar="N",
        help="RocketMQ's proxies are asked for their clients at this port, their "
        f"remotingListenPort; 0: not asked ({PROXY_PORT})",
    )
    add(
        "--lake",
        action="append",
        default=[],
        metavar="URL",
        help="the HTTP port of aerobee lake run, for the page Lake: http://HOST:PORT, of another "
        "cluster NAME=http://HOST:PORT; may be repeated",
    )
    add(
        "--lake-token",
        default="",
        metavar="file:PATH",
        help="the httpToken of these lakes",
    )
    add(
        "--descriptors",
        type=Path,
        metavar="FILE",
        help="types of protobuf bodies, from protoc --include_imports --descriptor_set_out=FILE",
    )
    add(
        "--body",
        action="append",
        default=[],
        metavar="TOPIC=TYPE",
        help="the type of a topic's bodies, from the file of --descriptors; may be repeated",
    )
    # Of `aerobee up`: the number of a socket that listens, and that this process ends with it.
    add("--given-socket", type=int, help=argparse.SUPPRESS)
    add("--with-parent", action="store_true", help=argparse.SUPPRESS)
    add("what", nargs="?", choices=["user"], help="manage users instead")
    add(
        "--link",
        action="store_true",
        help="print a link that logs in once, of the console that runs at --port",
    )
    add("--read-only", action="store_true", help="nobody may do more than view")
    add(
        "--audit",
        type=Path,
        metavar="FILE",
        help="who did what, one JSON object a line (~/.local/state/aerobee/console-audit.jsonl)",
    )
    add(
        "--users",
        type=Path,
        metavar="FILE",
        help="the users that may log in (~/.config/aerobee/console-users.json if it is there; "
        "without users a link that logs in once is printed)",
    )
    add(
        "--cluster-users",
        action="store_true",
        help="the users of the clusters may log in, with their secrets (RocketMQ 5)",
    )
    add(
        "--behind-proxy",
        action="append",
        default=[],
        metavar="ADDR",
        help="answer only a proxy at this address or network, which speaks https; may be repeated",
    )
    add("--user-header", default="", metavar="NAME", help="the proxy names visitors in this header")
    add(
        "--user-header-right",
        choices=console_users.RIGHTS,
        default="viewer",
        help="what these visitors may do where there is no file of users (viewer)",
    )
    add("--tls-server-cert", metavar="FILE", help="speak https with this certificate, in PEM")
    add("--tls-server-key", metavar="FILE", help="the certificate's key, in PEM")
    add("--data", type=Path, metavar="DIR", help="keep the charts in this folder over a restart")
    add(
        "--metrics-port",
        type=int,
        metavar="N",
        help="serve the figures for Prometheus on this port, too; 0: any free one (none)",
    )
    add_options(parser)
    console_users.declare(parser)
    parser.set_defaults(run=console)


def console(options: argparse.Namespace) -> int:
    """The console by itself, until Ctrl-C; or a change of its users."""
    if options.what == "user":
        return console_users.users(options)
    if options.link:
        print(_link(options.bind, options.port))
        return 0
    servers = clusters_of(options)
    for name in ("port", "metrics_port", "proxy_port"):
        if not 0 <= (getattr(options, name) or 0) <= PORT_MAX:
            given = f"--{name.replace('_', '-')} is {getattr(options, name)}"
            raise CommandError(f"{given}; give 0 to {PORT_MAX}")
    if not BASE.fullmatch(options.base_path):
        raise CommandError(
            f"--base-path is {options.base_path!r}; give a path such as /console: / and letters, "
            "digits, and the signs _ . ~ -"
        )

    number: int | None = options.given_socket

    async def parts(stack: Stack) -> str:
        try:
            from ...console.access.guard import HostList
            from ...console.actions.registry import ActionRegistry
            from ...console.clusters.clusters import Clusters
            from ...console.clusters.metrics import metrics_text
            from ...console.metrics_port import MetricsPort
            from ...console.web.app import Console

        except ImportError as wrong:
            raise CommandError(
                f"the console needs the package jinja2, and {wrong.name} is not installed; run "
                "pip install 'aerobee[console]'"
            ) from None
        try:
            clusters = Clusters(
                servers,
                security(options),
                data=options.data,
                proxy_port=options.proxy_port,
                lakes=_lakes(options, servers),
            )
            access = _access(options, clusters)
            ours = Console(
                clusters,
                access,
                ActionRegistry(access.audit.path.parent / "redrives"),
                address=options.bind,
                port=options.port,
                base=options.base_path,
                tls=_tls(options),
                types=_types(options),
                given=None if number is None else socket.socket(fileno=number),
            )
        except ValueError as wrong:  # an address that is not safe
            raise CommandError(str(wrong)) from None
        await stack.start(ours)
        scraped = ""
        if options.metrics_port is not None:
            metrics = MetricsPort(
                options.bind,
                options.metrics_port,
                partial(metrics_text, clusters),
                setting="--metrics-port",
                check=HostList(options.host).check,
            )
            await stack.start(metrics)
            scraped = f"; metrics: {metrics.url}"
        logs.debug_at_signal()
        if hasattr(os, "nice"):  # not on Windows
            os.nice(NICENESS)
        if options.with_parent:
            serving.end_with_input()
        link = ours.new_link()
        how = f"log in at {ours.url}" if link is None else f"log in once: {link}"
        return f"the console of aerobee {own_version()} is ready; {how}{scraped}"

    return serving.run(parts)


def _link(address: str, port: int) -> str:
    """A link of the console that runs at a port; CommandError without one."""
    from ...console.access.link_socket import ask

    found = ask(port)
    if found is None and _visit(address, port):
        deadline = time.monotonic() + START_SECONDS
        while (found := ask(port)) is None and time.monotonic() < deadline:
            time.sleep(0.1)
    if found is None:
        raise CommandError(
            f"no console of this user runs at port {port} of this machine; name its --port, run "
            "this as the user that started it (in its container), or start one: aerobee console"
        )
    if found.link is None:
        raise CommandError(
            f"the console has users and no links; log in at {found.url} with name and password"
        )
    return found.link


def _visit(address: str, port: int) -> bool:
    """True if a console answers there: that of `aerobee up` starts with its first visitor."""
    connection = http.client.HTTPConnection(address, port, timeout=START_SECONDS)
    try:
        connection.request("GET", "/login")
        return connection.getresponse().status < 400
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _lakes(options: argparse.Namespace, servers: dict[str, str | None]) -> "dict[str, Lakes]":
    """The lakes by cluster name; CommandError for an address that can't be used."""
    from ...console.clusters.lakes import LAKES_MAX, Lakes

    urls: dict[str, list[str]] = {}
    for text in options.lake:
        name, _, url = text.rpartition("=")
        name = name or next(iter(servers))
        if name not in servers or not LAKE.fullmatch(url):
            raise CommandError(
                f"--lake is {text[:300]!r}; give http://HOST:PORT, with NAME= before it for one of "
                f"the clusters {', '.join(servers)}"
            )
        urls.setdefault(name, []).append(url.rstrip("/"))
        if len(urls[name]) > LAKES_MAX:
            raise CommandError(
                f"--lake is there {len(urls[name])} times for {name}, the limit is "
                f"{LAKES_MAX}; leave some out"
            )
    token = secret_of("--lake-token", options.lake_token)
    return {name: Lakes(found, token) for name, found in urls.items()}


def _types(options: argparse.Namespace) -> "ProtobufTypes | None":
    """The types of bodies, None without a file; CommandError for one that can't be used."""
    by_topic: dict[str, str] = {}
    for text in options.body:
        topic, _, name = text.partition("=")
        if not topic or not name:
            raise CommandError(f"--body is {text[:300]!r}; give TOPIC=TYPE")
        by_topic[topic] = name
    if options.descriptors is None:
        if by_topic:
            raise CommandError("--body is given without types; name their file by --descriptors")
        return None
    try:
        from ...console.messages.protobuf import ProtobufTypes
    except ImportError as wrong:
        raise CommandError(
            f"--descriptors needs the package protobuf, and {wrong.name} is not installed; run pip "
            "install 'aerobee[grpc]'"
        ) from None
    try:
        return ProtobufTypes(options.descriptors, by_topic)
    except ValueError as wrong:
        raise CommandError(f"--descriptors: {wrong}") from None


def _access(options: argparse.Namespace, clusters: "Clusters") -> "Access":
    """The access control of the console; CommandError for a file that can't be used."""
    from ...console.access.access import Access
    from ...console.access.audit import Audit, AuditFailed
    from ...console.access.reverse_proxy import ReverseProxy
    from ...console.access.user_file import RIGHTS, BadUsers, UserFile

    audit = Audit((options.audit or default_audit()).expanduser())
    file = UserFile((options.users or default_users()).expanduser())
    users: UserFile | None = None if options.cluster_users else file
    if options.cluster_users and (options.users is not None or options.user_header):
        raise CommandError(
            "--cluster-users is given with --users or --user-header; give one of them"
        )
    try:
        if not options.read_only:
            audit.check()
        if users is not None and not file.users():
            if options.users is not None:
                raise CommandError(
                    f"{options.users} has no users; add one: aerobee console user add NAME --users "
                    f"{options.users}"
                )
            users = None
    except (AuditFailed, BadUsers) as wrong:
        raise CommandError(str(wrong)) from None
    if options.user_header and not options.behind_proxy:
        raise CommandError(
            f"--user-header is {options.user_header}, and any visitor could send that; name the "
            "proxy's address with --behind-proxy"
        )
    if options.user_header and not HEADER.fullmatch(options.user_header):
        raise CommandError(
            f"--user-header is {options.user_header[:80]!r}; give the name of a header, such as "
            "X-Forwarded-User"
        )
    reverse_proxy = None
    if options.behind_proxy:
        right = RIGHTS[options.user_header_right]
        reverse_proxy = ReverseProxy(options.behind_proxy, header=options.user_header, right=right)
    return Access(
        audit,
        users=users,
        reverse_proxy=reverse_proxy,
        clusters=clusters.by_name if options.cluster_users else None,
        is_secure=reverse_proxy is not None or options.tls_server_cert is not None,
        hosts=options.host,
        is_read_only=options.read_only,
    )


def _tls(options: argparse.Namespace) -> ssl.SSLContext | None:
    """The context of https, None without it; CommandError for a file that can't be used."""
    cert, key = options.tls_server_cert, options.tls_server_key
    if cert is None and key is None:
        return None
    try:
        return server_context(cert or "", key or "", names="--tls-server-cert, --tls-server-key")
    except OSError as wrong:
        raise CommandError(str(wrong)) from None


def default_audit() -> Path:
    """The audit's file in the user's folder for state."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base, "aerobee", "console-audit.jsonl")


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
