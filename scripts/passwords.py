"""A new password: never an argument, which other users can see."""

import getpass
import sys

from .output.command_error import CommandError

PASSWORD_CHARS_MAX = 1_024


def new_password(name: str) -> str:
    """The first line of standard input, or what is typed on a terminal."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"password of {name}: ")
    else:
        password = sys.stdin.readline(PASSWORD_CHARS_MAX + 1).rstrip("\r\n")
    if not password:
        raise CommandError(f"the password of {name} is empty; write it on standard input")
    if len(password) > PASSWORD_CHARS_MAX:
        raise CommandError(f"the password of {name} has over {PASSWORD_CHARS_MAX} characters")
    return password
