"""The topic or group that a command names: missing, unknown, or the system's own."""

import argparse

from ..client.admin.admin import Admin
from ..client.admin.base import application_topics
from .output.command_error import CommandError


def named(options: argparse.Namespace, what: str) -> str:
    """The name given in the options; CommandError if it is missing."""
    if not options.name:
        raise CommandError(f"which {what}? write: aerobee {options.command} {options.action} NAME")
    name: str = options.name
    return name


def only(options: argparse.Namespace, what: str, names: list[str]) -> list[str]:
    """A list of the given name; CommandError if it is not in `names`."""
    if options.name not in names:
        raise unknown(what, options.name)
    return [options.name]


def unknown(what: str, name: str) -> CommandError:
    return CommandError(f"there is no {what} {name}; `aerobee {what}s --all` lists those there are")


async def user_topics(admin: Admin) -> list[str]:
    """The topics of users: no system topics, retry topics or dead letter topics."""
    return application_topics(await admin.topics(), await admin.cluster_info())
