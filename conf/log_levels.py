"""Log levels as one text, such as `info,aerobee.store=debug`: of all loggers, or from one down."""

import logging
from importlib.util import find_spec
from pkgutil import iter_modules

from .sources import ConfigError

LEVELS = ("debug", "info", "warning", "error")
CHARS_MAX = 1_024  # of the text
OWN = __name__.partition(".")[0]

# The loggers with a level by `use`, each with the level that it had before.
_before: dict[str, int] = {}


def parse(text: str) -> dict[str, str]:
    """The levels by logger, "" for all others; ConfigError for any other text.

    A logger is a module of aerobee, or a package beside it: the loggers that a process can be
    asked to make are limited by the modules that there are.
    """
    if len(text) > CHARS_MAX:
        raise ConfigError(
            f"logLevel has {len(text)} characters, the limit is {CHARS_MAX}; name fewer loggers"
        )
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, level = part.rpartition("=")
        name, level = name.strip(), level.strip().lower()
        if level not in LEVELS:
            raise ConfigError(
                f"logLevel has the part {part!r}, which is no level; write one of "
                f"{', '.join(LEVELS)}, or LOGGER=LEVEL as in {OWN}.store=debug"
            )
        if name and not _is_logger(name):
            raise ConfigError(
                f"logLevel names the logger {name!r}, but must name a module of {OWN}, as in "
                f"{OWN}.store, or an installed package; correct it"
            )
        found[name] = level
    return found


def use(text: str) -> None:
    """Give loggers these levels from now on; a logger that the text before named, and this one
    doesn't, gets back the level that it had. ConfigError as in `parse`."""
    levels = parse(text)
    for name in _before.keys() - levels.keys():
        logging.getLogger(name).setLevel(_before.pop(name))
    for name, level in levels.items():
        logger = logging.getLogger(name)
        _before.setdefault(name, logger.level)
        logger.setLevel(level.upper())


def _is_logger(name: str) -> bool:
    top, *rest = name.split(".")
    if top != OWN:
        return not rest and top.isidentifier() and find_spec(top) is not None
    package = find_spec(OWN)
    places = None if package is None else package.submodule_search_locations
    for part in rest:
        there = {each.name: each for each in iter_modules(places)}
        if part not in there:
            return False
        places = [f"{place}/{part}" for place in places or ()] if there[part].ispkg else []
    return True
