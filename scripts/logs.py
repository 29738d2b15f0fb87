"""Logging of a command: level by module, text or JSON, to standard error or to a file.

A full log file is renamed to FILE.1 and a new one begins; `OLD_FILES` old ones are kept. All
daemons but the console have the same as settings: `logLevel`, `logFormat`, `logFile`,
`logFileMib`. An option replaces its setting. Lines about connections are limited (`log_limit.py`).
"""

import argparse
import asyncio
import logging
import signal
import time
from logging.handlers import RotatingFileHandler
from typing import Any, Protocol

from ..conf import log_levels
from ..conf.kinds import LOG_FILE_MIB
from ..conf.log_levels import LEVELS
from .log_limit import LogLimit
from .numbers import whole
from .output.sanitize import SanitizingFormatter, json_line, sanitize

log = logging.getLogger(__name__)

FULL = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MESSAGE_ALONE = "%(message)s"  # for commands used at a terminal
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
        dest="log_levels",
        metavar="LEVEL|MODULE=LEVEL",
        help=f"{', '.join(LEVELS)} ({level}); for a module: aerobee.store=debug; may be repeated",
    )
    add("--log-format", choices=("text", "json"), help="json: an object a line (text)")
    add("--log-file", metavar="FILE", help="write the log there, not to standard error")
    add(
        "--log-file-mib",
        type=whole(f"is no size from 1 to {FILE_MIB_MAX} MiB", 1, FILE_MIB_MAX),
        metavar="N",
        help=f"begin a new file at this size ({LOG_FILE_MIB}); {OLD_FILES} old ones stay",
    )
    parser.set_defaults(log_default=(level, form))


class LogSettings(Protocol):
    """The settings of a daemon for its log; `logLevel` is applied by the daemon."""

    @property
    def log_level(self) -> str: ...
    @property
    def log_format(self) -> str: ...
    @property
    def log_file(self) -> str: ...
    @property
    def log_file_mib(self) -> int: ...


def settings(options: argparse.Namespace) -> list[str]:
    """The `key=value` texts that the given options stand for."""
    found = {
        "logLevel": ",".join(options.log_levels or ()) or None,
        "logFormat": options.log_format,
        "logFile": options.log_file,
        "logFileMib": options.log_file_mib,
    }
    return [f"{key}={value}" for key, value in found.items() if value is not None]


def start(options: argparse.Namespace, settings: LogSettings | None = None) -> None:
    """Set up logging by the options, or by the settings, which have them. OSError when the file
    can't be written."""
    level, form = options.log_default
    levels = {"": level} | _parsed(",".join(options.log_levels or ()))
    if form == MESSAGE_ALONE and (options.log_levels or options.log_file):
        form = FULL
    file, mib = options.log_file, options.log_file_mib or LOG_FILE_MIB
    is_json = options.log_format == "json"
    if settings is not None:
        file, mib = settings.log_file, settings.log_file_mib
        is_json = settings.log_format == "json"
    handler: logging.Handler
    if file:
        handler = RotatingFileHandler(
            file, maxBytes=mib << 20, backupCount=OLD_FILES, encoding="utf-8"
        )
    else:
        handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if is_json else LineFormatter(form))
    handler.addFilter(LogLimit(handler.handle))
    root = logging.getLogger()
    for before in list(root.handlers):
        if any(isinstance(one, LogLimit) for one in before.filters):
            root.removeHandler(before)  # of a start before, in the same process
            before.close()
    logging.basicConfig(level=levels.pop("").upper(), handlers=[handler])
    for module, one in levels.items():
        logging.getLogger(module).setLevel(one.upper())


def debug_at_signal() -> None:
    """Let SIGUSR1 turn aerobee's own lines of level debug on, and the next SIGUSR1 off: for a
    daemon without a file of settings. Call it inside the running loop."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _switch_debug)


def _switch_debug() -> None:
    if log.isEnabledFor(logging.DEBUG):
        log.debug("levels of the log as at the start")
        log_levels.use("")
    else:
        log_levels.use(f"{log_levels.OWN}=debug")
        log.debug("the log has lines of level debug until the next SIGUSR1")


def words(options: argparse.Namespace, config: LogSettings) -> list[str]:
    """The arguments with which a child logs in the same way, to standard error."""
    levels = ",".join(filter(None, (options.log_default[0], config.log_level)))
    return [
        "--set",
        f"logLevel={levels}",
        "--set",
        f"logFormat={config.log_format}",
        "--set",
        "logFile=",
    ]


def copy(member: str, line: str) -> None:
    """Write a line that a child logged, with its name, as it is."""
    record = logging.LogRecord(member, logging.NOTSET, "", 0, line, None, None)
    record.of_member = True
    logging.getLogger().handle(record)


class LineFormatter(SanitizingFormatter):
    """A line of text; one of a child begins with its name."""

    def format(self, record: logging.LogRecord) -> str:
        if hasattr(record, "of_member"):
            return f"{record.name} {sanitize(record.getMessage())}"
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """An object a line: time (UTC), level, logger, message, and with an error its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        if hasattr(record, "of_member") and record.getMessage().startswith("{"):
            return f'{{"member": {json_line(record.name)}, {record.getMessage()[1:]}'
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        found: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if hasattr(record, "of_member"):  # not by its log: a traceback of the interpreter
            found |= {"level": "error", "logger": "stderr", "member": record.name}
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json_line(found)


def _levels(text: str) -> str:
    _parsed(text)
    return text


def _parsed(text: str) -> dict[str, str]:
    """Levels by module, "" for all others."""
    found = {}
    for part in filter(None, text.split(",")):
        module, _, level = part.strip().rpartition("=")
        if level.lower() not in LEVELS:
            raise argparse.ArgumentTypeError(
                f"{part.strip()!r} is no level; write one of {', '.join(LEVELS)}, or "
                "MODULE=LEVEL as in aerobee.store=debug"
            )
        found[module.strip()] = level.lower()
    return found
