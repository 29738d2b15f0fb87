"""Options that the commands of all daemons have, and the settings that they make."""

import argparse
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from ...conf.described import DEFAULT, Described
from ...conf.load import Keys, load
from ..output.command_error import CommandError
from ..output.sanitize import json_line, sanitize
from ..output.table import print_rows

log = logging.getLogger(__name__)

Config = TypeVar("Config", bound=msgspec.Struct)


def add_file(parser: argparse.ArgumentParser, *names: str, kinds: str) -> None:
    """The option for a file of settings; `kinds` says which formats it may have."""
    parser.add_argument(
        *names, dest="file", type=Path, metavar="FILE", help=f"settings: {kinds} or YAML"
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The option for single settings."""
    parser.add_argument(
        "--set",
        "-s",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="a setting by its RocketMQ name; may be repeated",
    )


def add_print_config(parser: argparse.ArgumentParser) -> None:
    """The option that shows settings instead of starting anything."""
    parser.add_argument(
        "--print-config",
        nargs="?",
        choices=("all", "changed", "json"),
        const="all",
        help="show all settings (* marks yours), yours with their origin, or all as JSON",
    )


def setting(key: str, value: object) -> list[str]:
    """The setting that an option of its own gives; none without that option."""
    return [] if value is None else [f"{key}={value}"]


def loaded(keys: Keys[Config], file: Path | None, settings: Sequence[str]) -> Config:
    """The settings of a file, the environment and these; CommandError for a wrong one."""
    try:
        config, warnings = load(keys, file=file, options=settings, environ=os.environ)
    except ValueError as wrong:
        raise CommandError(str(wrong)) from wrong
    warn(warnings)
    return config


def warn(warnings: Iterable[str]) -> None:
    """Log what the settings say that has no effect."""
    for warning in warnings:
        log.warning("%s", warning)


def print_config(rows: Sequence[Described], how: str) -> int:
    """Settings as lines; the given ones as a table; or an object a line."""
    if how == "json":
        for row in rows:
            print(json_line(row._asdict()))
        return 0
    if how == "changed":
        columns = ("KEY", "VALUE", "DEFAULT", "FROM", "STATE")
        return print_rows(columns, [row for row in rows if row.origin != DEFAULT], as_json=False)
    for row in rows:
        state = row.state if row.origin == DEFAULT else f"{row.state} *"
        print(sanitize(f"{state:<26}{row.key}={row.value}"))
    return 0
