"""The way of timer messages from their queue into the wheel.

A message gets a unit in the timer log, and its slot leads to the unit. Units are staged first. One
write brings those of many messages into the files, and only then is the queue done up to there.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...protocol.message import properties
from ...protocol.message.tags import string_hash
from ...store.engine.store import MessageStore
from ...store.timer.recent import Fresh
from ...store.timer.timer_log import IS_RECALL, IS_ROLLED, IS_TIMER, NO_UNIT, QUEUE, WHEEL_TOPIC
from ...store.timer.timer_wheel import ROUND_SLOTS, SLOTS, Slot
from ..settings.config import BrokerConfig
from ..topics.topics import TOPICS_MAX
from .real_destination import real_place
from .timer_delivery import BYTES_PER_STEP, RECALL_KEY, timer_ms, waiting_message
from .timer_state import TimerState
from .timer_tally import TimerTally, unit_weight

log = logging.getLogger(__name__)

BLANK_SLOTS = 60  # of a round of the wheel that stay unused
ENTRIES_PER_STEP = 512  # of the queue, into the wheel, from what their sends reported
READS_PER_STEP = (
    16  # units that must be read in the log: the longest that a sender may have to wait for
)
WheelEntry = tuple[int, str, bool]  # slot in ms, real topic, whether it takes another message back
# Gets a message that comes out of the queue after its slot: place, length, the time now in ms.
Late = Callable[[int, int, int], None]


class Moment(NamedTuple):
    """The time at which messages enter the wheel. Times in ms."""

    now_ms: int
    write_ms: int  # the tick that this is in
    first_slot_ms: int  # earlier slots take no messages: they are delivered, or in delivery


class WheelIntake:
    """Puts messages into the wheel. `tell` gets those that their sends report."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, state: TimerState, tally: TimerTally
    ) -> None:
        self._config = config
        self._store = store
        self._state = state
        self._tally = tally
        self._slots: dict[int, Slot] = {}  # changed, but not in the wheel's file yet
        self._placed = False  # units of them are staged only
        self._hashes: dict[str, int] = {}
        self._fresh = Fresh()
        self.tell = self._fresh.tell

    def fill(self, moment: Moment, end: int, late: Late) -> bool:
        """Put messages of the queue before offset `end` into the wheel; True when there are more.

        There must be some. `late` gets the messages that are too late for it.
        """
        store, state = self._store, self._state
        offset = first = state.queue_offset
        store.write_staged()
        now_ms, write_ms, first_slot_ms = moment
        late_ms = min(first_slot_ms, write_ms)
        until = min(end, offset + ENTRIES_PER_STEP)
        size = reads = 0
        try:
            while offset < until:
                offset += self._place_fresh(offset, until - offset, moment)
                if offset == until or size >= BYTES_PER_STEP or reads >= READS_PER_STEP:
                    break
                entries = store.entries(WHEEL_TOPIC, QUEUE, offset, 1)
                if not entries:
                    break
                ((place, length, _),) = entries
                reads += 1
                size += length
                fresh = self._fresh.one(offset)
                found = self._read_entry(place, length) if fresh is None else (*fresh, False)
                if found is not None:
                    out_ms, topic, is_recall = found
                    if out_ms < late_ms:
                        self._pass(offset)
                        late(place, length, now_ms)
                        self._pass(offset + 1)
                    else:
                        if not state.log.has_room:
                            self._pass(offset)
                            state.log.roll()
                        magic = IS_TIMER | (IS_RECALL if is_recall else 0)
                        if not self._place(place, length, out_ms, topic, magic, moment):
                            break  # the wheel is a round behind: its own units come first
                offset += 1
            self._pass(offset)
        except BaseException:
            self._forget_placed()
            raise
        return first < offset < end

    def place_due(self, messages: Iterable[tuple[int, int, str]], moment: Moment) -> None:
        """Put messages that are due, or were, into the first slot: place, length, real topic."""
        timer_log = self._state.log
        try:
            for place, length, topic in messages:
                if not timer_log.has_room:
                    timer_log.write()
                    timer_log.roll()
                self._place(place, length, 0, topic, IS_TIMER, moment)
            timer_log.write()
        except BaseException:
            self._forget_placed()
            raise
        self._placed = False
        self._tally.touched = True
        self.put_slots()

    def put_slots(self) -> None:
        """Write the changed slots into the wheel's file."""
        if self._slots:
            self._state.wheel.put_all(self._slots)
            self._slots.clear()

    def _read_entry(self, place: int, length: int) -> WheelEntry | None:
        """The wheel's entry for a message of the queue; None when the message is to be skipped."""
        is_known = self._state.is_known(place)
        record = None if is_known else waiting_message(self._store, place, length)
        if record is None:
            return None
        out_ms = timer_ms(record)
        if out_ms is None:
            log.error("the message at %d has no timer; it is left alone", place)
            return None
        raw = record.raw_properties
        is_recall = properties.find(raw, RECALL_KEY) is not None
        return self._state.floor(out_ms), real_place(raw)[0], is_recall

    def _place(
        self, place: int, length: int, out_ms: int, topic: str, magic: int, moment: Moment
    ) -> bool:
        """A unit for a message; False when its slot may still hold units of the round before."""
        state, write_ms = self._state, moment.write_ms
        slot_ms = max(out_ms, moment.first_slot_ms)
        window_slots = self._window_slots()
        excess_slots = (slot_ms - write_ms) // state.precision_ms - window_slots
        if excess_slots >= 0:
            magic |= IS_ROLLED
            # Not a whole window when little is left, so that the next one is not too short.
            is_short = excess_slots < window_slots // 3
            slots = window_slots // 2 if is_short else window_slots
            slot_ms = write_ms + slots * state.precision_ms
        if slot_ms - state.read_ms >= SLOTS * state.precision_ms:
            return False
        slot = self._slots.get(slot_ms) or state.wheel.get(slot_ms)
        position = state.log.append(
            slot.last, magic, write_ms, slot_ms, place, length, self._hash(topic)
        )
        weight = unit_weight(magic)
        first = position if slot.first == NO_UNIT else slot.first
        self._slots[slot_ms] = Slot(first, position, slot.number + weight)
        self._placed = True
        state.waiting += weight
        self._tally.count(topic, weight)
        self._tally.meters.came(topic, [out_ms - write_ms])
        return True

    def _place_fresh(self, offset: int, most: int, moment: Moment) -> int:
        """Units for the messages from this offset on, as far as their sends reported them and
        they are ordinary; returns how many."""
        state, tally, write_ms = self._state, self._tally, moment.write_ms
        # Further ahead they go around once more, or into slots of the round before.
        until_ms = min(
            write_ms + self._window_slots() * state.precision_ms,
            state.read_ms + SLOTS * state.precision_ms,
        )
        run = self._fresh.run(offset, min(most, state.log.room), moment.first_slot_ms, until_ms)
        if run is None:
            return 0
        topics = run.topics
        if topics.count(topics[0]) == len(topics):
            counts = {topics[0]: len(topics)}
            hashes: list[int] | int = self._hash(topics[0])
        else:
            counts = Counter(topics)
            codes = {topic: self._hash(topic) for topic in counts}
            hashes = [codes[topic] for topic in topics]
        slots = self._slots
        self._placed = True
        for slot_ms, first, last, number in state.log.append_all(
            write_ms, run.slots_ms, run.places, run.lengths, hashes, self._lasts
        ):
            before = slots[slot_ms]
            first = first if before.first == NO_UNIT else before.first
            slots[slot_ms] = Slot(first, last, before.number + number)
        for topic, number in counts.items():
            tally.count(topic, number)
        tally.meters.came_all(topics, (run.slots_ms - write_ms).tolist())
        state.waiting += len(topics)
        return len(topics)

    def _lasts(self, slots_ms: list[int]) -> list[int]:
        """The last units of these slots, which have come to `_slots` then."""
        slots = self._slots
        slots.update(self._state.wheel.get_all([each for each in slots_ms if each not in slots]))
        return [slots[each].last for each in slots_ms]

    def _window_slots(self) -> int:
        """The number of ticks ahead at which a message is placed at most; later ones go around
        again."""
        config = self._config
        # It must go around before its file of the log is deleted.
        kept_ms = config.file_reserved_time * 3_600_000 * 2 // 3
        slots = min(config.timer_roll_window_slot, kept_ms // config.timer_precision_ms)
        return min(slots, ROUND_SLOTS - BLANK_SLOTS)

    def _hash(self, topic: str) -> int:
        found = self._hashes.get(topic)
        if found is None:
            if len(self._hashes) >= TOPICS_MAX:
                self._hashes.clear()
            found = self._hashes[topic] = string_hash(topic)
        return found

    def _pass(self, offset: int) -> None:
        """Write the placed units into the files; then the queue is done up to `offset`."""
        state, tally = self._state, self._tally
        if offset == state.queue_offset:
            return
        state.log.write()
        self._placed = False
        tally.enqueued += offset - state.queue_offset
        state.queue_offset = offset
        tally.touched = True
        self.put_slots()

    def _forget_placed(self) -> None:
        """Undo the units placed since the last `_pass`; they are placed again later."""
        state = self._state
        state.log.drop_staged()
        if self._placed:
            self._placed = False
            for slot_ms, slot in self._slots.items():
                state.waiting -= slot.number - state.wheel.get(slot_ms).number
            self._slots.clear()
