"""The version of this program; RocketMQ's, which clients go by, is `protocol.command.VERSION`."""

from functools import cache


@cache
def own_version() -> str:
    """The version of the installed package; "unknown" for a bare folder of sources."""
    from importlib.metadata import PackageNotFoundError, version  # slow, and a daemon is to start

    try:
        return version("aerobee")
    except PackageNotFoundError:
        return "unknown"
