"""Rebuilds the timer wheel from the timer log, and finds which messages have a unit there."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .timer_log import UNIT_BYTES, TimerLog
from .timer_wheel import TimerWheel


@dataclass(slots=True)
class Recovered:
    """The contents of the timer log.

    `last_place` is the log offset of the last unit's message, -1 without one. `earliest_ms` is the
    time of the first slot with a waiting message, 0 without one. `waiting` is the number of waiting
    messages.
    """

    last_place: int = -1
    earliest_ms: int = 0
    waiting: int = 0


def recover(timer_log: TimerLog, wheel: TimerWheel, read_ms: int, log_end: int) -> Recovered:
    """Find the end of the timer log, and fill an empty wheel with the units due from `read_ms` on.

    The timer log is cut at the first unit that is invalid, or whose message is not before
    `log_end`, the end of the commit log.
    """
    found = Recovered()
    end = timer_log.end
    wheel.rebuild()
    for position, units in timer_log.walk(log_end):
        end = position + len(units) * UNIT_BYTES
        found.last_place = int(units["log_offset"][-1])
        times = units["written_ms"] + units["delay_ms"]
        waiting = times >= read_ms
        if waiting.any():
            places = position + np.flatnonzero(waiting) * UNIT_BYTES
            found.waiting += wheel.add(places, units[waiting])
            first = int(times[waiting].min())
            found.earliest_ms = min(first, found.earliest_ms) if found.earliest_ms else first
    timer_log.cut(end)
    return found


class KnownPlaces:
    """The messages that have a unit, by their offsets in the commit log, from `first` on."""

    def __init__(self, timer_log: TimerLog, log_end: int, first: int) -> None:
        found = [np.array([], np.int64)]
        found += [
            units["log_offset"][units["log_offset"] >= first].astype(np.int64)
            for _, units in timer_log.walk(log_end)
        ]
        self._places: npt.NDArray[np.int64] = np.unique(np.concatenate(found))

    def __contains__(self, place: int) -> bool:
        at = int(np.searchsorted(self._places, place))
        return at < len(self._places) and bool(self._places[at] == place)

    def ends_before(self, place: int) -> bool:
        """True if no message from this log offset on has a unit."""
        return not len(self._places) or bool(self._places[-1] < place)
