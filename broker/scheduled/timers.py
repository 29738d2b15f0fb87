"""Timer messages: delivered at a time of their own, to a tick of the clock, days ahead.

Such a message is stored in the topic of the wheel. From its queue it comes into the timer wheel.
When its tick is over, never before, it is stored once more, in its own topic. A time beyond the
wheel's reach goes around again. All of it happens in short steps between which requests are served,
and each step notes how far it came (`timer_state`).
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ...protocol.message import properties
from ...protocol.message.record import Record, decode_record
from ...protocol.message.tags import string_hash
from ...store.base.errors import StoreError
from ...store.engine.store import MessageStore
from ...store.timer.recent import Fresh
from ...store.timer.timer_log import IS_RECALL, IS_ROLLED, IS_TIMER, NO_UNIT, QUEUE, WHEEL_TOPIC
from ...store.timer.timer_wheel import ROUND_SLOTS, SLOTS, Slot
from ..runtime.stats import Stats
from ..runtime.throttle import FEW
from ..settings.config import BrokerConfig
from ..topics.topics import TOPICS_MAX
from .expiring_slot import ExpiringSlot
from .real_destination import number_of, real_place
from .timer_counters import TimerMeters
from .timer_delivery import NEVER_IN_WHEEL, RECALL_KEY, Copy, TimerDelivery, recall_key
from .timer_metrics import TimerMetrics
from .timer_state import TimerState

log = logging.getLogger(__name__)

BLANK_SLOTS = 60  # of a round of the wheel that stay unused
ENTRIES_PER_STEP = 512  # of the queue, into the wheel, from what their sends reported
LOOKS_PER_STEP = (
    16  # units that must be read in the log: the longest that a sender may have to wait for
)
BYTES_PER_STEP = 256 << 10  # of large messages, in one step
WheelEntry = tuple[int, str, bool]  # slot in ms, real topic, whether it takes another message back
# The values of a broker without timers in GET_BROKER_RUNTIME_INFO.
NO_FIGURES: dict[str, object] = {
    "timerReadBehind": 0,
    "timerOffsetBehind": 0,
    "timerCongestNum": 0,
    "timerEnqueueTps": 0.0,
    "timerDequeueTps": 0.0,
}


def open_timers(
    config: BrokerConfig,
    store: MessageStore,
    now_ms: Callable[[], int],
    mark: Callable[[tuple[str, int]], None],
    stats: Stats,
    kind: "type[Timers] | None" = None,
) -> "Timers | None":
    """The timers of a store, as the last stop or crash left them; None when they are off.

    StoreError when their files can't be read.
    """
    if not config.timer_wheel_enable:
        return None
    metrics = TimerMetrics(config.store_dir / "config" / "timermetrics", now_ms)
    metrics.load()
    state = TimerState(config, store, now_ms)
    state.load()
    return (kind or Timers)(config, store, state, metrics, mark, stats)


class TimerLag(NamedTuple):
    """Messages that are not in the wheel yet and the age of the first; messages in the wheel, and
    how late those are that are due. Times in ms."""

    enqueue: int
    enqueue_ms: int
    dequeue: int
    dequeue_ms: int


@dataclass(slots=True)
class Part:
    """Units of a slot, from number `first` to before `end`, and the copies of their messages.
    `copied` has the number of each copy's unit; `units` number, real topic and magic."""

    first: int
    end: int = 0
    copies: list[Copy] = field(default_factory=list)
    copied: list[int] = field(default_factory=list)
    units: list[tuple[int, str, int]] = field(default_factory=list)


class Timers:
    """The work. `mark((topic, queue))` says that a message was delivered. Times in ms."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        state: TimerState,
        metrics: TimerMetrics,
        mark: Callable[[tuple[str, int]], None],
        stats: Stats,
    ) -> None:
        self.state = state
        self.metrics = metrics
        self.meters = TimerMeters()
        self.enqueued = 0  # messages since the start
        self.dequeued = 0
        self._store = store
        self._config = config
        self._due: ExpiringSlot | None = None
        self._queue_target = -1  # the end of the queue when the next slot became due
        self._slots: dict[int, Slot] = {}  # changed, but not in the wheel's file yet
        self._placed = False  # units of them are staged only
        self._touched = False
        self._fresh = Fresh()
        self._hashes: dict[str, int] = {}
        self._counts: dict[str, int] = {}  # of topics, changed by the step at hand
        self._delivery = TimerDelivery(store, mark, stats)
        self.came_in = self._fresh.tell
        self._sampled = (0, 0, 0)
        self._rates = (0.0, 0.0)

    def step(self, now_ms: int, most: int = FEW) -> bool:
        """One short part of the work; True when there is more that can be done at once.

        Up to `most` messages are delivered.

        StoreError when the disk takes nothing: the next call tries the same work again.
        """
        state = self.state
        write_ms = state.floor(now_ms)
        if write_ms < state.read_ms and self._due is None:
            state.read_ms = write_ms  # the clock was set back
        try:
            self._put_slots()
            is_behind = self._enqueue(now_ms, write_ms)
            return self._dequeue(now_ms, write_ms, most, is_behind=is_behind)
        finally:
            if self._touched:
                self._store.write_staged()
                self._note()

    def sample(self, now_ms: int) -> None:
        """Work the rates out since the last time."""
        counts = (now_ms, self.enqueued, self.dequeued)
        elapsed_ms = now_ms - self._sampled[0]
        if elapsed_ms > 0:
            rates = [
                (now - last) * 1_000 / elapsed_ms
                for now, last in zip(counts, self._sampled, strict=True)
            ]
            self._rates = (round(rates[1], 1), round(rates[2], 1))
            self._sampled = counts

    def check_point(self) -> bytes:
        """The 56 bytes that config/timercheck begins with."""
        return self.state.check.numbers()

    def figures(self, now_ms: int) -> dict[str, object]:
        """Values for runtime info: seconds behind, messages behind, waiting, and the rates."""
        state = self.state
        end = self._store.max_offset(WHEEL_TOPIC, QUEUE)
        values = (
            max(0, now_ms - state.read_ms) // 1_000,
            max(0, end - state.queue_offset),
            max(0, state.waiting - state.delivered),
            *self._rates,
        )
        return dict(zip(NO_FIGURES, values, strict=True))

    def lag(self, now_ms: int) -> TimerLag:
        """What RocketMQ's metrics say of the work that is behind."""
        state = self.state
        end = self._store.max_offset(WHEEL_TOPIC, QUEUE)
        behind = max(0, end - state.queue_offset)
        first_ms = self._store.store_ms_at(WHEEL_TOPIC, QUEUE, state.queue_offset) if behind else 0
        return TimerLag(
            behind,
            max(0, now_ms - first_ms) if first_ms > 0 else 0,
            max(0, state.waiting - state.delivered),
            max(0, state.floor(now_ms) - state.read_ms),
        )

    # ---- from the queue into the wheel

    def _note(self) -> None:
        """Note the step's progress, and its changes of the counts."""
        self.state.note()
        self._touched = False
        for topic, number in self._counts.items():
            self.metrics.add(topic, number)
        self._counts.clear()

    def _queue_end(self) -> int:
        """The first message of the queue that is not to come into the wheel yet."""
        return self._store.max_offset(WHEEL_TOPIC, QUEUE)

    def _enqueue(self, now_ms: int, write_ms: int) -> bool:
        """Put messages of the queue into the wheel; True when there are more."""
        store, state = self._store, self.state
        end = self._queue_end()
        offset = first = state.queue_offset
        if offset >= end:
            return False
        store.write_staged()
        until = min(end, offset + ENTRIES_PER_STEP)
        size = looks = 0
        try:
            while offset < until:
                offset += self._place_fresh(offset, until - offset, write_ms)
                if offset == until or size >= BYTES_PER_STEP or looks >= LOOKS_PER_STEP:
                    break
                entries = store.entries(WHEEL_TOPIC, QUEUE, offset, 1)
                if not entries:
                    break
                ((place, length, _),) = entries
                looks += 1
                size += length
                fresh = self._fresh.one(offset)
                found = self._look(place, length) if fresh is None else (*fresh, False)
                if found is not None:
                    out_ms, topic, is_recall = found
                    if out_ms < min(self._first_slot_ms, write_ms):
                        self._pass(offset)
                        self._deliver_late(place, length, now_ms)
                        self._pass(offset + 1)
                    else:
                        if not state.log.has_room:
                            self._pass(offset)
                            state.log.roll()
                        magic = IS_TIMER | (IS_RECALL if is_recall else 0)
                        if not self._place(place, length, out_ms, topic, magic, write_ms):
                            break  # the wheel is a round behind: its own units come first
                offset += 1
            self._pass(offset)
        except BaseException:
            self._forget_placed()
            raise
        return first < offset < end

    def _look(self, place: int, length: int) -> WheelEntry | None:
        """What there is to know of a message of the queue; None when it is to be passed over."""
        record = None if self.state.is_known(place) else self._read(place, length)
        if record is None:
            return None
        out_ms = timer_ms(record)
        if out_ms is None:
            log.error("the message at %d has no timer; it is left alone", place)
            return None
        raw = record.raw_properties
        is_recall = properties.find(raw, RECALL_KEY) is not None
        return self.state.floor(out_ms), real_place(raw)[0], is_recall

    def _deliver_late(self, place: int, length: int, now_ms: int) -> None:
        """Deliver a message that comes out of the queue after its slot."""
        record = self._read(place, length)
        if record is None:
            return
        topic, queue_id = real_place(record.raw_properties)
        copy = self._delivery.copy(record, topic, queue_id, now_ms, NEVER_IN_WHEEL, rolled=False)
        if copy is not None:
            _, wrong = self._delivery.put_all([copy])
            if wrong is not None:
                raise wrong
            self.dequeued += 1
            self.meters.left(topic)

    @property
    def _first_slot_ms(self) -> int:
        """The first slot that takes messages: earlier ones are delivered, or in delivery."""
        due = self._due
        return self.state.read_ms if due is None else due.slot_ms + self.state.precision_ms

    def _place(
        self, place: int, length: int, out_ms: int, topic: str, magic: int, write_ms: int
    ) -> bool:
        """A unit for a message; False when its slot may still hold units of the round before."""
        state, slot_ms = self.state, max(out_ms, self._first_slot_ms)
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
        number = _number_of(magic)
        first = position if slot.first == NO_UNIT else slot.first
        self._slots[slot_ms] = Slot(first, position, slot.number + number)
        self._placed = True
        state.waiting += number
        self._count(topic, number)
        self.meters.came(topic, [out_ms - write_ms])
        return True

    def _place_fresh(self, offset: int, most: int, write_ms: int) -> int:
        """Units for the messages from this offset on, as far as their sends reported them and
        they are ordinary; returns how many."""
        state = self.state
        # Further ahead they go around once more, or into slots of the round before.
        until_ms = min(
            write_ms + self._window_slots() * state.precision_ms,
            state.read_ms + SLOTS * state.precision_ms,
        )
        run = self._fresh.run(offset, min(most, state.log.room), self._first_slot_ms, until_ms)
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
            self._count(topic, number)
        self.meters.came_all(topics, (run.slots_ms - write_ms).tolist())
        state.waiting += len(topics)
        return len(topics)

    def _lasts(self, slots_ms: list[int]) -> list[int]:
        """The last units of these slots, which have come to `_slots` then."""
        slots = self._slots
        slots.update(self.state.wheel.get_all([each for each in slots_ms if each not in slots]))
        return [slots[each].last for each in slots_ms]

    def _window_slots(self) -> int:
        """How many ticks ahead a message is placed at most; later ones go around again."""
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
        state = self.state
        if offset == state.queue_offset:
            return
        state.log.write()
        self._placed = False
        self.enqueued += offset - state.queue_offset
        state.queue_offset = offset
        self._touched = True
        self._put_slots()

    def _forget_placed(self) -> None:
        """Undo the units placed since the last `_pass`; they are placed again later."""
        state = self.state
        state.log.drop_staged()
        if self._placed:
            self._placed = False
            for slot_ms, slot in self._slots.items():
                state.waiting -= slot.number - state.wheel.get(slot_ms).number
            self._slots.clear()

    def _put_slots(self) -> None:
        if self._slots:
            self.state.wheel.put_all(self._slots)
            self._slots.clear()

    # ---- from the wheel to the topics

    def _dequeue(self, now_ms: int, write_ms: int, most: int, *, is_behind: bool) -> bool:
        """Deliver due messages; True when there is more of them, or of the queue."""
        state, due = self.state, self._due
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
            due = self._due = ExpiringSlot(slot_ms, state.wheel.get(slot_ms).last)
        if due.prepare(state.log, self._store):
            return True
        if self._deliver(due, now_ms, most) < most and state.delivered >= len(due):
            self._finish(due)
        return True

    def _deliver(self, due: ExpiringSlot, now_ms: int, most: int) -> int:
        """Deliver the next messages of a slot, without recalled ones; returns how many units these
        were."""
        part = Part(self.state.delivered)
        wrong: StoreError | None = None
        try:
            self._gather(part, due, now_ms, most)
        finally:
            done, wrong = self._delivery.put_all(part.copies)
            self._settle(part, done)
        if wrong is not None:
            raise wrong
        return self.state.delivered - part.first

    def _gather(self, part: Part, due: ExpiringSlot, now_ms: int, most: int) -> None:
        """Read the next messages of a slot and make their copies."""
        size = 0
        part.end = part.first
        while part.end < min(part.first + most, len(due)) and size < BYTES_PER_STEP:
            place, length, written_ms, magic = due.unit(part.end)
            record = self._read(place, length)
            if record is not None:
                size += length
                if not (due.recalls and due.is_recalled(part.end, recall_key(record))):
                    topic, queue_id = real_place(record.raw_properties)
                    copy = self._delivery.copy(
                        record, topic, queue_id, now_ms, written_ms,
                        rolled=bool(magic & IS_ROLLED),
                    )  # fmt: skip
                    part.units.append((part.end, topic, magic))
                    if copy is not None:
                        part.copies.append(copy)
                        part.copied.append(part.end)
            part.end += 1

    def _settle(self, part: Part, done: int) -> None:
        """The first `done` copies are stored: the slot is done up to the next one."""
        state = self.state
        end = part.end if done == len(part.copies) else part.copied[done]
        for unit, topic, magic in part.units:
            if unit < end:  # the others come once more
                self._count(topic, -_number_of(magic))
                self.meters.left(topic)
        self.dequeued += done
        state.delivered = end
        self._touched = self._touched or end > part.first

    def _count(self, topic: str, number: int) -> None:
        """Note a change of a topic's count, for the figures to take over at the end of the step."""
        if number:
            counts = self._counts
            counts[topic] = counts.get(topic, 0) + number

    def _finish(self, due: ExpiringSlot) -> None:
        state = self.state
        number = state.wheel.get(due.slot_ms).number
        state.wheel.clear(due.slot_ms)
        state.waiting -= number
        state.log.forget()
        for key, count in due.unused_recalls():
            self._count(key.partition("+")[0], count)
        state.read_ms, state.delivered = due.slot_ms + state.precision_ms, 0
        self._due, self._queue_target = None, -1
        self._touched = True

    def _read(self, place: int, length: int) -> Record | None:
        """The message of the wheel's topic at this place; None, logged, when there is none."""
        data = self._store.message_at(place)
        if data is not None and len(data) == length:
            record = decode_record(data)
            if record.topic == WHEEL_TOPIC:
                return record
        log.error("the timer message at %d is not in the log any more", place)
        return None


def timer_ms(record: Record) -> int | None:
    """TIMER_OUT_MS, the slot that a message of the wheel's topic is for; None without one."""
    text = properties.find(record.raw_properties, properties.TIMER_OUT_MS.encode())
    found = number_of(text, -1)
    return None if found < 0 else found


def _number_of(magic: int) -> int:
    """The difference that a unit makes to its slot's count."""
    return -1 if magic & IS_RECALL else 1
