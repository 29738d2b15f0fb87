"""`--processes` of `aerobee broker` and `aerobee up`: a group of brokers in place of one."""

import argparse
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import logs
from ..serving import Stack

if TYPE_CHECKING:
    from ...broker.settings.config import BrokerConfig
    from ...client.base.security import Security

log = logging.getLogger(__name__)

# Clients ask for routes every 30 s. So long a member is back before the next one stops.
RESTART_PAUSE_SECONDS = 35.0
REASONS_MAX = 3
NO_NAME_SERVER = "127.0.0.1:9876"  # a member is asked at its address, without one


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of a command that can start a group."""
    parser.add_argument(
        "--processes",
        metavar="N|auto",
        help="start a group of N brokers, one process each; auto: one for each processor",
    )
    parser.add_argument(
        "--restart-pause",
        type=float,
        default=RESTART_PAUSE_SECONDS,
        metavar="SECONDS",
        help="SIGHUP restarts a group's members in turn, with this pause between two "
        f"({RESTART_PAUSE_SECONDS:g}, which is longer than clients keep a route)",
    )


def _security(config: "BrokerConfig") -> "Security":
    """The access with which the supervisor asks a leaving member for its unread messages."""
    from ...broker.settings.access_settings import credentials_of
    from ...client.base.security import Security

    own = credentials_of(config.inner_client_authentication_credentials)
    keys = ("", "") if own is None else (own.access_key, own.secret_key)
    # The members are its own children, on this machine.
    return Security(*keys, tls_insecure=config.tls_server_mode == "enforcing")


async def start_group(
    stack: Stack,
    config: "BrokerConfig",
    settings: Sequence[str],
    options: argparse.Namespace,
    file: Path | None = None,
) -> str:
    """Start a group of brokers with these settings, and its endpoint; its part of the ready line.

    CommandError for settings or ports that a group can't have, before anything starts.
    """
    from ...client.admin.admin import Admin
    from .broker_group import BrokerGroup
    from .group_page import GroupPage
    from .plan import check_ports, cores, count_of, plan

    count = count_of(options.processes)
    plans = plan(config, count, file=file, settings=settings, environ=os.environ)
    own_page = None if config.http_port is None else (config.http_bind_address, config.http_port)
    check_ports(plans, own_page)
    if count > cores():
        log.warning(
            "%d processes are more than the %d processors that this process may use; they share "
            "them, which makes none of them faster",
            count,
            cores(),
        )
    words = [word for each in settings for word in ("--set", each)] + logs.words(options, config)
    if file is not None:
        words += ["-c", str(file)]
    security = _security(config)

    async def what_keeps(address: str) -> str:
        async with Admin(config.namesrv_addr or NO_NAME_SERVER, security=security) as admin:
            left = [one for one in await admin.left_to_read(address) if one.is_waited_for]
        return "; ".join(f"{one.messages} of {one}" for one in left[:REASONS_MAX])

    group = BrokerGroup(plans, words, restart_pause=options.restart_pause, what_keeps=what_keeps)
    await stack.start(group)
    endpoint = GroupPage(group, config).endpoint()
    await stack.start(endpoint)
    where = ", ".join(
        f"{member.plan.name} on {member.address}" for member in group.members if member.is_serving
    )
    page = f", HTTP {endpoint.url}" if endpoint.url else ""
    missing = "".join(f"; {note}" for note in group.notes())
    return f"{where}, store {config.store_dir}{page}{missing}"
