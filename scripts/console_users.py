"""`aerobee console user`: the users of a console's file.

A password is never an argument, which other users can see: it is the first line of standard input,
or is typed at a prompt.
"""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from .output.command_error import CommandError
from .output.table import Columns, Row, print_rows
from .passwords import new_password

if TYPE_CHECKING:
    from ..console.access.user_file import UserFile

COLUMNS: Columns = ("USER", "RIGHT", "TOPICS", "GROUPS", "BODIES", "PASSWORD")
RIGHTS = ("viewer", "operator", "admin")
BODIES = ("shown", "masked", "hidden")


def declare(parser: argparse.ArgumentParser) -> None:
    """The options of `aerobee console user`, beside those of the console."""
    parser.epilog = (
        "`aerobee console user add` reads the password from standard input: "
        "`aerobee console user add ann --right operator < secret.txt`."
    )
    add = parser.add_argument
    add("action", nargs="?", choices=["add", "remove", "list"], help="for user (list)")
    add("name", nargs="?", metavar="USER", help="for user add and user remove")
    add = parser.add_argument_group("for user add").add_argument
    add("--right", choices=RIGHTS, default="viewer", help="what the user may do (viewer)")
    only = "with * at the end for all that begin so; may be repeated"
    for option, what in (("--topic", "topics"), ("--group", "groups")):
        add(option, action="append", metavar="PATTERN", help=f"only these {what}, {only}")
    add("--bodies", choices=BODIES, default="shown", help="what the user sees of messages (shown)")
    add("--no-password", action="store_true", help="the user only comes by the header of a proxy")


def default_users() -> Path:
    """The file in the user's folder for configuration."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base, "aerobee", "console-users.json").expanduser()


def users(options: argparse.Namespace) -> int:
    """Lists the users, or changes one."""
    from ..console.access.user_file import BadUsers, UserFile

    file = UserFile((options.users or default_users()).expanduser())
    try:
        if options.action in (None, "list"):
            return _list(file)
        if not options.name:
            raise CommandError(f"which user? write: aerobee console user {options.action} NAME")
        return _add(file, options) if options.action == "add" else _remove(file, options.name)
    except BadUsers as wrong:
        raise CommandError(str(wrong)) from None


def _list(file: "UserFile") -> int:
    from ..console.access.user_file import NAMES

    rows: list[Row] = [
        (
            user.name,
            NAMES[user.right],
            ",".join(user.topics),
            ",".join(user.groups),
            str(user.bodies),
            "none" if user.password is None else "set",
        )
        for _, user in sorted(file.users().items())
    ]
    return print_rows(COLUMNS, rows, as_json=False)


def _add(file: "UserFile", options: argparse.Namespace) -> int:
    from ..console.access.passwords import hash_password
    from ..console.access.rights import Bodies
    from ..console.access.user_file import RIGHTS as FOUND
    from ..console.access.user_file import USERS_MAX, User, checked

    known = dict(file.users())
    try:
        user = User(
            options.name,
            FOUND[options.right],
            tuple(options.topic or ["*"]),
            tuple(options.group or ["*"]),
            Bodies(options.bodies),
            None if options.no_password else hash_password(new_password(options.name)),
        )
        known[user.name] = checked(user)
    except ValueError as wrong:
        raise CommandError(str(wrong)) from None
    if len(known) > USERS_MAX:
        raise CommandError(f"{file.path} has {USERS_MAX} users, which is the limit; remove one")
    file.write(known)
    print(f"user {user.name} is {options.right} in {file.path}")
    return 0


def _remove(file: "UserFile", name: str) -> int:
    known = dict(file.users())
    if known.pop(name, None) is None:
        raise CommandError(f"there is no user {name} in {file.path}; list shows those there are")
    file.write(known)
    print(f"user {name} is removed from {file.path}; open sessions end")
    return 0
