"""The command `aerobee`: its first argument names a command; each family of commands has a module.

Only the module of that command is imported, so that a daemon starts without the client and
`aerobee --help` without either. An error that a user can fix is one sentence on standard error and
exit code 1; a traceback means a bug in aerobee.
"""

import argparse
import gc
import logging
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import NoReturn

from . import logs
from .output.command_error import INTERRUPTED, CommandError
from .output.sanitize import SanitizingFormatter, sanitize

# Command -> its module in `commands`, and its description.
COMMANDS = {
    "up": ("daemons", "start a name server and a broker in one go"),
    "namesrv": ("daemons", "start a name server"),
    "broker": ("daemons", "start a broker"),
    "controller": ("controller", "start a controller, which elects the masters of brokers"),
    "proxy": ("proxy", "start a proxy, which serves clients of RocketMQ 5 by gRPC"),
    "init": ("init", "write units for systemd and settings"),
    "pub": ("pub", "send messages, one a line"),
    "sub": ("sub", "show the messages of a topic as they come"),
    "topics": ("topics", "list, show, create, shrink and delete topics"),
    "groups": ("groups", "list consumer groups, reset one to a time, or delete one"),
    "cluster": ("brokers", "list the brokers and what they do"),
    "drain": ("brokers", "empty a broker: no new messages, read to the end by all groups"),
    "lag": ("groups", "show how far consumer groups are behind"),
    "message": ("messages", "show a message by its id"),
    "dlq": ("dlq", "list, show and send again what consumer groups gave up"),
    "users": ("users", "list, create and delete users, and what they may do"),
    "doctor": ("doctor", "look for what makes messages stay unread without a word"),
    "console": ("console", "show clusters in a browser"),
    "store": ("store", "check a store folder, show what is in it, or rebuild its queues"),
    "backup": ("backup", "back up a store, also while its broker runs"),
    "restore": ("backup", "restore a backup, whole or up to a moment"),
    "mirror": ("mirror", "copy topics, messages and offsets from one cluster to another"),
    "lake": ("lake", "keep topics as Iceberg tables, every message a row, once"),
    "sql": ("sql", "query topics, their tables and what came since"),
    "ingest": ("ingest", "write a topic to Parquet, JSON or CSV files, through Spark"),
}
# Objects between two runs of the garbage collector: with Python's 700 it takes a fifteenth of the
# start of a daemon, since imports make hundreds of thousands of objects and few cycles.
COLLECT_OBJECTS = 100_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns 0 for success, 1 for failure, 2 for unknown arguments."""
    gc.set_threshold(COLLECT_OBJECTS)
    words = list(sys.argv[1:] if argv is None else argv)
    if logging.lastResort is not None:  # it writes the warnings of a command without a log
        logging.lastResort.setFormatter(SanitizingFormatter())
    try:
        options = _options(words)
        if "log_default" in options:
            logs.start(options)
        code: int = options.run(options)
        if sys.stdout is not None:  # as where a shell has closed it: aerobee topics >&-
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe. Python would complain again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as wrong:
        sentence = _sentence(wrong)
        if sentence is None:
            raise
        sentence = " ".join(sentence.splitlines())  # a broker's remark may have several lines
        print(f"aerobee {words[0]}: {sanitize(sentence)}", file=sys.stderr)
        return 1


def _options(words: list[str]) -> argparse.Namespace:
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if not words or words[0] not in COMMANDS:
        _explain(words)
    command = words[0]
    file, does = COMMANDS[command]
    parser = argparse.ArgumentParser(
        prog=f"aerobee {command}", description=f"{does[0].upper()}{does[1:]}."
    )
    import_module(f".commands.{file}", __package__).declare(command, parser)
    # Arguments and options in any order, as in `aerobee pub TOPIC -n ADDR FILE`.
    return parser.parse_intermixed_args(words[1:], argparse.Namespace(command=command))


def _explain(words: list[str]) -> NoReturn:
    """Print help, or the mistake, and exit."""
    overview = _overview()
    if words and not words[0].startswith("-"):
        near = get_close_matches(words[0], COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
        overview.error(f"there is no command {words[0]!r}; {hint}")
    overview.parse_args(words or ["--help"])
    raise AssertionError("argparse ends a program that names no command")


def _overview() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aerobee",
        description="A message broker and name server that speak RocketMQ's protocol.",
        epilog="Begin with `aerobee up`; `aerobee COMMAND --help` explains a command.",
    )
    from ..conf.version import own_version

    parser.add_argument("--version", action="version", version=f"aerobee {own_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (_, does) in COMMANDS.items():
        commands.add_parser(name, help=does)
    return parser


def _sentence(wrong: Exception) -> str | None:
    """The sentence for the user; None for a bug."""
    from ..client.errors import AerobeeError
    from ..conf.sources import ConfigError
    from ..protocol.errors import reason_of
    from ..store.base.errors import StoreError

    if isinstance(wrong, CommandError | ConfigError | StoreError | AerobeeError):
        return str(wrong)
    if isinstance(wrong, OSError):
        reason = wrong.strerror or reason_of(wrong)
        return f"{wrong.filename}: {reason}" if wrong.filename else reason
    return None


if __name__ == "__main__":
    sys.exit(main())
