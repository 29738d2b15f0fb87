"""One slot of the timer wheel while it is delivered: its units in order, and its recalls.

The timer log leads from the newest unit of a slot to the oldest; they are delivered in the other
direction. A slot may hold a million units, so it is read in parts, and a unit is kept in 21 bytes.
The order is the same each time, so a number is enough for the progress in a slot.
"""

import logging
from array import array
from collections import Counter

from ...protocol.message import properties
from ...protocol.message.record import decode_record
from ...store.engine.store import MessageStore
from ...store.timer.timer_log import IS_RECALL, IS_ROLLED, IS_TIMER, NO_UNIT, TimerLog

log = logging.getLogger(__name__)

UNITS_PER_PART = 2_048  # followed in one part, where they lie side by side
RUNS_PER_PART = 8  # the same where they don't
RECALLS_PER_PART = 50  # messages read in one part


class ExpiringSlot:
    """The slot of a time in ms. `last` is the position of its last unit.

    `recalls` holds "TOPIC+UNIQ_KEY" of each message to be recalled, with the number of requests.
    """

    def __init__(self, slot_ms: int, last: int) -> None:
        self.slot_ms = slot_ms
        self.recalls: Counter[str] = Counter()
        self._used: dict[int, str] = {}  # the keys of units that are taken back
        self._position = last
        self._recall_places = array("q")  # commit log offsets
        # Of each unit, newest first:
        self._places = array("q")  # commit log offset
        self._lengths = array("i")  # of its record, bytes
        self._written = array("q")  # ms
        self._magics = array("b")

    def prepare(self, timer_log: TimerLog, store: MessageStore) -> bool:
        """One part of getting ready; False once the slot can be delivered."""
        if self._position != NO_UNIT:
            self._follow(timer_log)
            return True
        if self._recall_places:
            self._read_recalls(store)
            return True
        return False

    def __len__(self) -> int:
        """The number of units that are to be delivered."""
        return len(self._places)

    def unit(self, number: int) -> tuple[int, int, int, int]:
        """Place, length, time of writing and magic of a unit, counted from the oldest."""
        at = -1 - number
        return self._places[at], self._lengths[at], self._written[at], self._magics[at]

    def is_recalled(self, number: int, key: str) -> bool:
        """True if the message of this unit, which has this key, is recalled."""
        if key not in self.recalls:
            return False
        self._used[number] = key
        return True

    def unused_recalls(self) -> list[tuple[str, int]]:
        """Keys recalled more often than messages had them, with the difference; below 0 where one
        recall took back several, as when a producer had sent its message twice."""
        left = Counter(self.recalls)
        left.subtract(self._used.values())
        return [(key, count) for key, count in left.items() if count]

    def _follow(self, timer_log: TimerLog) -> None:
        left = UNITS_PER_PART
        for _ in range(RUNS_PER_PART):
            position = self._position
            if position == NO_UNIT or left <= 0:
                return
            run = timer_log.run_to(position, left)
            if run is None or run.previous >= position:
                log.error(
                    "the timer log has no unit at %d, where slot %d goes on; what is before it in "
                    "the slot can't be delivered",
                    position,
                    self.slot_ms,
                )
                self._position = NO_UNIT
                return
            left -= len(run.places)
            self._position = run.previous
            if run.magics.count(IS_TIMER) == len(run.magics):
                self._places.extend(run.places)
                self._lengths.extend(run.lengths)
                self._written.extend(run.written_ms)
                self._magics.extend(run.magics)
                continue
            for place, length, written_ms, magic in zip(*run[1:], strict=True):
                if magic & IS_RECALL and not magic & IS_ROLLED:
                    self._recall_places.append(place)
                else:
                    self._places.append(place)
                    self._lengths.append(length)
                    self._written.append(written_ms)
                    self._magics.append(magic)

    def _read_recalls(self, store: MessageStore) -> None:
        for _ in range(min(RECALLS_PER_PART, len(self._recall_places))):
            data = store.message_at(self._recall_places.pop())
            if data is None:
                continue
            raw = decode_record(data).raw_properties
            key = properties.find(raw, properties.TIMER_DEL_UNIQKEY.encode())
            if key is not None:
                self.recalls[key.decode(errors="replace")] += 1
