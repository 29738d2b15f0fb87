"""The connection of a command to a cluster: options for name servers, TLS and log; the client."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from ..client.admin.admin import Admin
from ..client.base.security import Security
from . import logs


def add_options(
    parser: argparse.ArgumentParser, namesrv_action: type[argparse.Action] | None = None
) -> None:
    """The options that every command with a client takes."""
    add_connection(parser, namesrv_action)
    logs.add_options(parser, "warning", logs.MESSAGE_ALONE)


def add_admin(
    parser: argparse.ArgumentParser,
    work: Callable[[Admin, argparse.Namespace], Awaitable[int]],
    json_help: str | None = "one object a line instead of a table",
) -> None:
    """The options of a command that has `work` done with a client for its name servers.

    `json_help` explains `--json`; None: the command has declared it.
    """
    if json_help is not None:
        parser.add_argument("--json", action="store_true", help=json_help)
    add_options(parser)
    parser.set_defaults(run=lambda options: _run_admin(work, options))


def add_connection(
    parser: argparse.ArgumentParser, namesrv_action: type[argparse.Action] | None = None
) -> None:
    """The options for name servers and TLS."""
    group = parser.add_argument_group("connection")
    more = {} if namesrv_action is None else {"action": namesrv_action}
    group.add_argument(
        "-n",
        "--namesrv",
        metavar="ADDR;ADDR",
        help="name servers ($NAMESRV_ADDR, or 127.0.0.1:9876)",
        **more,  # type: ignore[arg-type]
    )
    add = group.add_argument
    add(
        "--tls",
        action="store_true",
        help="speak TLS and check the server's certificate ($AEROBEE_TLS=true)",
    )
    add("--tls-ca", default="", metavar="FILE", help="trust these authorities, in PEM; with TLS")
    add(
        "--tls-insecure",
        action="store_true",
        help="speak TLS and check no certificate: anybody may pretend to be the server",
    )


def security(options: argparse.Namespace) -> Security:
    """The security settings: keys from the environment, TLS from options or environment."""
    return Security.from_environment(
        tls=options.tls, tls_ca=options.tls_ca, tls_insecure=options.tls_insecure
    )


def _run_admin(
    work: Callable[[Admin, argparse.Namespace], Awaitable[int]], options: argparse.Namespace
) -> int:
    """Run `work` with a client for the name servers of the options; returns the exit code."""

    async def with_admin() -> int:
        async with Admin(options.namesrv, security=security(options)) as admin:
            return await work(admin, options)

    return asyncio.run(with_admin())
