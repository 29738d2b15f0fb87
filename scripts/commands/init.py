"""`aerobee init`: writes the files of an installation. Each kind of files has a module."""

import argparse

from ..init import secure, systemd


def declare(command: str, parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    kinds = parser.add_mutually_exclusive_group(required=True)
    systemd.add_options(parser, kinds)
    secure.add_options(parser, kinds)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    return systemd.run(options) if options.systemd is not None else secure.run(options)
