"""Logging of a command: level by module, text or JSON, to standard error or to a file.

A full log file is renamed to FILE.1 and a new one begins; `OLD_FILES` old ones are kept.
"""

import argparse
import logging
import time
from logging.handlers import RotatingFileHandler
from typing import Any

from .output.sanitize import PlainFormatter, json_line

LEVELS = ("debug", "info", "warning", "error")
FULL = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MESSAGE_ALONE = "%(message)s"  # for commands used at a terminal
FILE_MIB = 64
FILE_MIB_MAX = 4_096
OLD_FILES = 4


def add_options(parser: argparse.ArgumentParser, level: str, form: str) -> None:
    """Adds the log options, with the defaults `level` and `form`."""
    group = parser.add_argument_group("log")
    add = group.add_argument
    add(
        "--log-level",
        action="append",
        type=_levels,
        metavar="LEVEL|MODULE=LEVEL",
        help=f"{', '.join(LEVELS)} ({level}); for a module: aerobee.store=debug; may be repeated",
    )
    add("--log-format", choices=("text", "json"), default="text", help="json: an object a line")
    add("--log-file", metavar="FILE", help="write the log there, not to standard error")
    add(
        "--log-file-mib",
        type=_mib,
        default=FILE_MIB,
        metavar="N",
        help=f"begin a new file at this size ({FILE_MIB}); {OLD_FILES} old ones stay",
    )
    parser.set_defaults(log_default=(level, form))


def start(options: argparse.Namespace) -> None:
    """Set up logging by the options. OSError when the file can't be written."""
    level, form = options.log_default
    levels: dict[str, str] = {"": level}
    for given in options.log_level or ():
        levels |= given
    if form == MESSAGE_ALONE and (options.log_level or options.log_file):
        form = FULL
    handler: logging.Handler
    if options.log_file is None:
        handler = logging.StreamHandler()
    else:
        handler = RotatingFileHandler(
            options.log_file,
            maxBytes=options.log_file_mib << 20,
            backupCount=OLD_FILES,
            encoding="utf-8",
        )
    handler.setFormatter(JsonFormatter() if options.log_format == "json" else PlainFormatter(form))
    logging.basicConfig(level=levels.pop("").upper(), handlers=[handler])
    for module, one in levels.items():
        logging.getLogger(module).setLevel(one.upper())


class JsonFormatter(logging.Formatter):
    """An object a line: time (UTC), level, logger, message, and with an error its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        found: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json_line(found)


def _levels(text: str) -> dict[str, str]:
    """Levels by module, "" for all others."""
    found = {}
    for part in text.split(","):
        module, _, level = part.strip().rpartition("=")
        if level.lower() not in LEVELS:
            raise argparse.ArgumentTypeError(
                f"{part.strip()!r} is no level; write one of {', '.join(LEVELS)}, or "
                "MODULE=LEVEL as in aerobee.store=debug"
            )
        found[module.strip()] = level.lower()
    return found


def _mib(text: str) -> int:
    if not (text.isdecimal() and 0 < int(text) <= FILE_MIB_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is no size from 1 to {FILE_MIB_MAX} MiB")
    return int(text)
