"""`aerobee users`: the users of brokers with access control, and their permissions.

Passwords are never shown, and never arguments, which other users can see: a new one is the first
line of standard input, or is typed at a prompt.
"""

import argparse

from ...client.admin.admin import Admin
from ..connecting import add_admin
from ..output.command_error import CommandError
from ..output.table import Columns, Row, print_rows
from ..passwords import new_password

ACTIONS = "Pub,Sub,Create,Update,Delete,Get,List,All"
LIST: Columns = ("USER", "TYPE", "STATUS", "BROKERS")
SHOW: Columns = ("RESOURCE", "DECISION", "ACTIONS", "FROM", "BROKERS")


def declare(_: str, parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.epilog = (
        "A resource is Topic:orders, Group:shop* (all that begin so), Cluster:NAME, or *. "
        "create reads the password from standard input: "
        "`aerobee users create shop < secret.txt`."
    )
    actions = ["list", "show", "create", "delete", "allow", "disallow"]
    add = parser.add_argument
    add("action", nargs="?", choices=actions, default="list")
    add("name", nargs="?", metavar="USER")
    add("resources", nargs="*", metavar="RESOURCE", help="for allow and disallow")
    add("--super", action="store_true", dest="is_super", help="for create: may do everything")
    add("--actions", default="Pub,Sub", metavar="A,B", help=f"for allow (Pub,Sub): of {ACTIONS}")
    add("--source-ip", action="append", default=[], metavar="CIDR", help="for allow: from there")
    add("--deny", action="store_true", help="for allow: forbid it instead")
    add_admin(parser, users)


async def users(admin: Admin, options: argparse.Namespace) -> int:
    """Lists or shows users, or changes one."""
    action, name = options.action, options.name
    if action == "list" and not name:
        return await _list(admin, options)
    if not name:
        raise CommandError(f"which user? write: aerobee users {action} NAME")
    if options.resources and action not in ("allow", "disallow"):
        raise CommandError(
            f"resources are for allow and disallow; write: aerobee users {action} {name}"
        )
    if action == "create":
        await admin.create_user(name, new_password(name), is_super=options.is_super)
        may = "may do everything" if options.is_super else "may do nothing yet: see `users allow`"
        print(f"created user {name}, who {may}")
        return 0
    if name not in await _known(admin):
        raise CommandError(f"there is no user {name}; `aerobee users` lists those there are")
    if action in ("list", "show"):
        return await _show(admin, name, options)
    if action == "delete":
        await admin.delete_user(name)
        print(f"deleted user {name} with all permissions")
        return 0
    return await _permit(admin, name, options)


async def _permit(admin: Admin, name: str, options: argparse.Namespace) -> int:
    """Adds a rule that allows or denies, or removes it."""
    resources = options.resources
    if not resources:
        raise CommandError(
            f"which resources? write: aerobee users {options.action} {name} Topic:orders Group:shop"
        )
    listed = ", ".join(resources)
    if options.action == "disallow":
        await admin.disallow(name, resources)
        print(f"user {name} has no rule about {listed} any more")
        return 0
    actions = [one.strip() for one in options.actions.split(",") if one.strip()]
    given = options.source_ip
    await admin.allow(name, resources, actions, source_ips=given, deny=options.deny)
    origin = f" from {', '.join(given)}" if given else ""
    may = "may not" if options.deny else "may"
    print(f"user {name} {may} {', '.join(actions)} on {listed}{origin}")
    return 0


async def _list(admin: Admin, options: argparse.Namespace) -> int:
    """A row per user, with the brokers when these differ."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for broker, infos in (await admin.users()).items():
        for info in infos:
            status = info.user_status or "enable"
            key = (info.username or "", info.user_type or "Normal", status)
            found.setdefault(key, []).append(broker)
    rows: list[Row] = [(*key, ",".join(brokers)) for key, brokers in sorted(found.items())]
    return print_rows(LIST, rows, as_json=options.json)


async def _show(admin: Admin, name: str, options: argparse.Namespace) -> int:
    """A row for each rule about the user."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for broker, lists in (await admin.permissions(name)).items():
        for entry in (
            entry
            for one in lists
            if one.subject == f"User:{name}"
            for policy in one.policies or ()
            for entry in policy.entries or ()
        ):
            actions = ",".join(entry.actions or ())
            origin = ",".join(entry.source_ips or ()) or "anywhere"
            key = (entry.resource or "", entry.decision or "", actions, origin)
            found.setdefault(key, []).append(broker)
    rows: list[Row] = [(*key, ",".join(brokers)) for key, brokers in sorted(found.items())]
    if not rows and not options.json:
        print(f"user {name} has no rules")
        return 0
    return print_rows(SHOW, rows, as_json=options.json)


async def _known(admin: Admin) -> set[str]:
    return {info.username or "" for infos in (await admin.users()).values() for info in infos}
