"""The timer wheel made again from the timer log, and what of the queue is in the log already."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .timer_log import UNIT_BYTES, TimerLog
from .timer_wheel import TimerWheel


@dataclass(slots=True)
class Recovered:
    """What the timer log has: the place of the last unit's message (-1 without one), the time of
    the first slot with something that waits (0 without one), and how many messages wait."""

    last_place: int = -1
    earliest_ms: int = 0
    waiting: int = 0


def recover(timer_log: TimerLog, wheel: TimerWheel, read_ms: int, log_end: int) -> Recovered:
    """Find the end of the timer log and fill the wheel again with what is due from `read_ms` on.

    Units whose message the commit log, which ends at `log_end`, has lost are cut off.
    """
    found = Recovered()
    end = timer_log.end
    wheel.make_anew()
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
    """The messages that have a unit: their places in the commit log, from `first` on."""

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
        """Whether no message from this place on has a unit."""
        return not len(self._places) or bool(self._places[-1] < place)
