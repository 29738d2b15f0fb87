"""The command `aerobee`: one word picks a command, each family of commands has its file.

Only the file of the command at hand is imported, so that a daemon starts without the client and
`aerobee --help` without either. What goes wrong for a reason that a user can do something about is
one plain sentence on standard error and exit code 1; a traceback means a bug of ours.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import NoReturn

from . import logs
from .output.command_error import Failed
from .output.sanitize import PlainFormatter, plain

# Command -> the file it lives in, and what it does.
COMMANDS = {
    "up": ("daemons", "start a name server and a broker in one go"),
    "namesrv": ("daemons", "start a name server"),
    "broker": ("daemons", "start a broker"),
    "controller": ("controller", "start a controller, which elects the masters of brokers"),
    "pub": ("pub", "send messages, one a line"),
    "sub": ("sub", "show the messages of a topic as they come"),
    "topics": ("topics", "list, show, create and delete topics"),
    "groups": ("groups", "list consumer groups, reset one to a time, or delete one"),
    "cluster": ("brokers", "list the brokers and what they do"),
    "lag": ("groups", "show how far consumer groups are behind"),
    "message": ("messages", "show a message by its id"),
    "dlq": ("dlq", "list, show and send again what consumer groups gave up"),
    "users": ("users", "list, create and delete users, and what they may do"),
    "doctor": ("doctor", "look for what makes messages stay unread without a word"),
    "store": ("store", "check a store folder, show what is in it, or rebuild its queues"),
    "ingest": ("ingest", "write a topic to Parquet, JSON or CSV files, through Spark"),
}
INTERRUPTED = 130  # what a shell expects after Ctrl-C


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it did what was asked, 1 when not, 2 for words it doesn't know."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = _options(words)
    if logging.lastResort is not None:  # who writes the warnings of a command without a log
        logging.lastResort.setFormatter(PlainFormatter())
    try:
        if "log_default" in options:
            logs.start(options)
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain once more while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as wrong:
        sentence = _sentence(wrong)
        if sentence is None:
            raise
        sentence = plain(" ".join(sentence.splitlines()))  # a broker's remark may have several
        print(f"aerobee {options.command}: {sentence}", file=sys.stderr)
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
    # Words and options in any order, as in `aerobee pub TOPIC -n ADDR FILE`.
    return parser.parse_intermixed_args(words[1:], argparse.Namespace(command=command))


def _explain(words: list[str]) -> NoReturn:
    """Help, or say what is wrong, and end the program."""
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
    """What to tell the user; None for what should not have happened."""
    from ..client.errors import AerobeeError
    from ..conf.sources import ConfigError
    from ..protocol.errors import reason_of
    from ..store.base.errors import StoreError

    if isinstance(wrong, Failed | ConfigError | StoreError | AerobeeError):
        return str(wrong)
    if isinstance(wrong, OSError):
        reason = wrong.strerror or reason_of(wrong)
        return f"{wrong.filename}: {reason}" if wrong.filename else reason
    return None


if __name__ == "__main__":
    sys.exit(main())
