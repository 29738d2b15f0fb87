"""The position of a member's log, as controllers compare it."""

from typing import NamedTuple


class LogPosition(NamedTuple):
    """The newest epoch, the end of the log, and how far the sync state set has confirmed it."""

    epoch: int
    end: int
    confirmed: int
