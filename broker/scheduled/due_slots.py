"""The slots of the timer wheel that are due, one after the other, in short steps.

A slot is delivered in parts. The progress in it is the number of its units that are done.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ...store.engine.store import MessageStore
from ...store.timer.timer_log import IS_ROLLED, QUEUE, WHEEL_TOPIC
from .expiring_slot import ExpiringSlot
from .real_destination import real_place
from .timer_delivery import BYTES_PER_STEP, Copy, TimerDelivery, recall_key, waiting_message
from .timer_state import TimerState
from .timer_tally import TimerTally, unit_weight

# Delivers up to so many next messages of a slot, at this time in ms; returns how many of its units
# are done with. When these are all that it may deliver, there may be more of them.
Deliver = Callable[[ExpiringSlot, int, int], int]


@dataclass(slots=True)
class Part:
    """Units of a slot, from number `first` to before `end`, and the copies of their messages.
    `copied` has the number of each copy's unit; `units` number, real topic and magic."""

    first: int
    end: int = 0
    copies: list[Copy] = field(default_factory=list)
    copied: list[int] = field(default_factory=list)
    units: list[tuple[int, str, int]] = field(default_factory=list)


class DueSlots:
    """`due` is the slot in delivery, if there is one. Times in ms."""

    def __init__(
        self, store: MessageStore, state: TimerState, tally: TimerTally, delivery: TimerDelivery
    ) -> None:
        self.due: ExpiringSlot | None = None
        self._queue_target = -1  # the end of the queue when the next slot became due
        self._store = store
        self._state = state
        self._tally = tally
        self._delivery = delivery

    @property
    def first_slot_ms(self) -> int:
        """The first slot that takes messages: earlier ones are delivered, or in delivery."""
        due, state = self.due, self._state
        return state.read_ms if due is None else due.slot_ms + state.precision_ms

    def step(
        self, now_ms: int, write_ms: int, most: int, deliver: Deliver, *, is_behind: bool
    ) -> bool:
        """Deliver up to `most` due messages; True when there is more of them, or of the queue.

        `is_behind` says that the queue has messages that are not in the wheel yet.
        """
        state, due = self._state, self.due
        if due is None:
            slot_ms = state.wheel.next_used(state.read_ms, write_ms)
            if slot_ms is None:
                if not is_behind:
                    state.read_ms, state.delivered = max(state.read_ms, write_ms), 0
                return is_behind
            if slot_ms != state.read_ms:
                state.read_ms, state.delivered = slot_ms, 0
            if self._queue_target < 0:
                # Messages that came in before this slot was due may recall one of its messages.
                self._queue_target = self._store.max_offset(WHEEL_TOPIC, QUEUE)
            if is_behind and state.queue_offset < self._queue_target:
                return True
            due = self.due = ExpiringSlot(slot_ms, state.wheel.get(slot_ms).last)
        if due.prepare(state.log, self._store):
            return True
        if deliver(due, now_ms, most) < most and state.delivered >= len(due):
            self.finish(due)
        return True

    def gather(self, part: Part, due: ExpiringSlot, now_ms: int, most: int) -> None:
        """Read the next messages of a slot and make their copies, without recalled ones."""
        size = 0
        part.end = part.first
        while part.end < min(part.first + most, len(due)) and size < BYTES_PER_STEP:
            place, length, written_ms, magic = due.unit(part.end)
            record = waiting_message(self._store, place, length)
            if record is not None:
                size += length
                if not (due.recalls and due.is_recalled(part.end, recall_key(record))):
                    topic, queue_id = real_place(record.raw_properties)
                    copy = self._delivery.copy(
                        record,
                        topic,
                        queue_id,
                        now_ms,
                        written_ms,
                        rolled=bool(magic & IS_ROLLED),
                    )
                    part.units.append((part.end, topic, magic))
                    if copy is not None:
                        part.copies.append(copy)
                        part.copied.append(part.end)
            part.end += 1

    def confirm(self, part: Part, done: int) -> None:
        """Note that the first `done` copies are delivered: the slot is done up to the next one."""
        state, tally = self._state, self._tally
        end = part.end if done == len(part.copies) else part.copied[done]
        for unit, topic, magic in part.units:
            if unit < end:  # the others come once more
                tally.count(topic, -unit_weight(magic))
                tally.meters.left(topic)
        tally.dequeued += done
        state.delivered = end
        tally.touched = tally.touched or end > part.first

    def finish(self, due: ExpiringSlot) -> None:
        """Move the wheel on behind a slot that is all delivered."""
        state, tally = self._state, self._tally
        number = state.wheel.get(due.slot_ms).number
        state.wheel.clear(due.slot_ms)
        state.waiting -= number
        state.log.forget()
        for key, count in due.unused_recalls():
            tally.count(key.partition("+")[0], count)
        state.read_ms, state.delivered = due.slot_ms + state.precision_ms, 0
        self.drop()
        tally.touched = True

    def drop(self) -> None:
        """Forget the slot in delivery."""
        self.due, self._queue_target = None, -1
