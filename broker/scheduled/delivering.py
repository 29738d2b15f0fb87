"""The work of timers that deliver: what is due leaves the wheel by an outlet."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ...store.base.errors import StoreError
from ...store.engine.store import MessageStore
from ...store.timer.timer_log import QUEUE, WHEEL_TOPIC
from ..runtime.stats import Stats
from ..settings.config import BrokerConfig
from .due_slots import DueSlots, Part
from .expiring_slot import ExpiringSlot
from .timer_delivery import TimerDelivery
from .timer_parts import TimerParts, open_timer_parts
from .timer_state import TimerState
from .timer_tally import TimerTally
from .timers import Timers, TimerWork
from .wheel_intake import Moment


def open_master_timers(
    config: BrokerConfig,
    store: MessageStore,
    now_ms: Callable[[], int],
    mark: Callable[[tuple[str, int]], None],
    stats: Stats,
) -> Timers | None:
    """The timers of a master, as the last stop or crash left them; None when they are off.

    `mark((topic, queue))` says that a message was delivered. StoreError when the files can't be
    read.
    """
    parts = open_timer_parts(config, store, now_ms, keeps_counts=True)
    if parts is None:
        return None
    delivery = TimerDelivery(store, mark, stats)
    slots = DueSlots(store, parts.state, parts.tally, delivery)
    outlet = StoredCopies(delivery, slots, parts.state, parts.tally)
    return Timers(parts, DeliveringWork(parts, slots, outlet))


class Outlet(Protocol):
    """The destination of copies of due messages."""

    def deliver(self, due: ExpiringSlot, now_ms: int, most: int) -> int:
        """Deliver the next messages of a slot; returns how many of its units are done with."""

    def deliver_late(self, place: int, length: int, now_ms: int) -> None:
        """Deliver a message that comes out of the queue after its slot."""


class DeliveringWork(TimerWork):
    """The work of timers that deliver: all of the queue enters the wheel, and what is due leaves
    it."""

    def __init__(self, parts: TimerParts, slots: DueSlots, outlet: Outlet) -> None:
        self.state = parts.state
        self._store = parts.store
        self._tally = parts.tally
        self._intake = parts.intake
        self._slots = slots
        self._outlet = outlet

    def step(self, now_ms: int, most: int) -> bool:
        """One short part of the work; True when there is more that can be done at once.

        Up to `most` messages are delivered.
        """
        state, slots, outlet = self.state, self._slots, self._outlet
        write_ms = state.floor(now_ms)
        if write_ms < state.read_ms and slots.due is None:
            state.read_ms = write_ms  # the clock was set back
        try:
            self._intake.put_slots()
            end = self._store.max_offset(WHEEL_TOPIC, QUEUE)
            is_behind = state.queue_offset < end and self._intake.fill(
                Moment(now_ms, write_ms, slots.first_slot_ms), end, outlet.deliver_late
            )
            return slots.step(now_ms, write_ms, most, outlet.deliver, is_behind=is_behind)
        finally:
            if self._tally.touched:
                self._store.write_staged()
                self._tally.note()


@dataclass(slots=True, eq=False)
class StoredCopies:
    """Stores the copies of due messages in their topics: a master's outlet."""

    _delivery: TimerDelivery
    _slots: DueSlots
    _state: TimerState
    _tally: TimerTally

    def deliver(self, due: ExpiringSlot, now_ms: int, most: int) -> int:
        """Deliver the next messages of a slot, without recalled ones; returns how many units these
        were."""
        part = Part(self._state.delivered)
        wrong: StoreError | None = None
        try:
            self._slots.gather(part, due, now_ms, most)
        finally:
            done, wrong = self._delivery.put_all(part.copies)
            self._slots.confirm(part, done)
        if wrong is not None:
            raise wrong
        return self._state.delivered - part.first

    def deliver_late(self, place: int, length: int, now_ms: int) -> None:
        """Deliver a message that comes out of the queue after its slot."""
        copy = self._delivery.late_copy(place, length, now_ms)
        if copy is None:
            return
        _, wrong = self._delivery.put_all([copy])
        if wrong is not None:
            raise wrong
        self._tally.dequeued += 1
        self._tally.meters.left(copy[0].key[0])
