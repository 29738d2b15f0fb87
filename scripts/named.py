"""Topics and groups that a user names: missing, unknown, or those that the system keeps."""

import argparse

from ..client.admin.admin import Admin
from ..protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from .output.command_error import Failed


def named(options: argparse.Namespace, what: str) -> str:
    """The name in the options; Failed without one."""
    if not options.name:
        raise Failed(f"which {what}? write: aerobee {options.command} {options.action} NAME")
    name: str = options.name
    return name


def only(options: argparse.Namespace, what: str, names: list[str]) -> list[str]:
    """The one that was named; Failed when it isn't there."""
    if options.name not in names:
        raise unknown(what, options.name)
    return [options.name]


def unknown(what: str, name: str) -> Failed:
    return Failed(f"there is no {what} {name}; `aerobee {what}s --all` lists those there are")


async def user_topics(admin: Admin) -> list[str]:
    """The topics that users made: none of the system, no retries, no dead letters."""
    info = await admin.cluster_info()
    own = {*info.broker_addr_table, *info.cluster_addr_table}
    own |= {f"{name}_REPLY_TOPIC" for name in info.cluster_addr_table}
    return [
        name
        for name in await admin.topics()
        if not (name in own or is_system_topic(name) or name.startswith((RETRY_PREFIX, DLQ_PREFIX)))
    ]
