"""When an incoming message becomes visible: at once, after a delay level, or at a given time.

A message that must wait goes into a system topic first, with its destination among its properties.
The level wins over a time. A time that can't be understood or kept is refused with the reason, so a
message is never delivered at another time than its sender expects.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ...protocol import codes
from ...protocol.errors import Refusal
from ...protocol.message import properties
from ...protocol.message.properties import PROPERTIES_BYTES_MAX
from ...store.timer.timer_log import QUEUE, WHEEL_TOPIC
from ..settings.config import NO_CAP_SEC, BrokerConfig
from .delays import SCHEDULE_TOPIC, Delays
from .real_destination import delayed
from .timers import Timers

TIME_NAMES = (properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS)
WHEEL_QUEUE = (WHEEL_TOPIC, QUEUE)
NUMBER_MAX = (1 << 63) - 1  # what Java's long takes
NUMBER_DIGITS = 19  # of NUMBER_MAX: a number with fewer digits is always below it
LEVEL_MAX = (1 << 31) - 1
MARKS_BYTES = 512  # reserved in the properties for the ones that the broker adds
PROPERTIES_TEXT_MAX = (PROPERTIES_BYTES_MAX - MARKS_BYTES) // 4  # characters of up to 4 bytes
ROOM_SHARE = 100  # a slot is checked again once 1/N of its room is used
ROOMS_KEPT = 10_000  # slots whose room is remembered


class DelayedRoute(NamedTuple):
    """The queue that a message is stored in, and its properties (`text`). `out_ms` is the time of
    its slot in the timer wheel, 0 for no timer."""

    topic: str
    queue_id: int
    text: str
    out_ms: int = 0


QueueKey = tuple[str, int]  # topic, queue id
Placed = tuple[QueueKey, str, int]  # a `DelayedRoute` without names, which is faster


class DeliveryPolicy:
    """Chooses the destination of messages. `timers` is None where timerWheelEnable is false.

    Call `on_timers_stored(numbers, topics)` with timer messages once they are stored; it is
    `Fresh.tell` of `store/timer/recent`.
    """

    on_timers_stored: Callable[[list[int], list[str]], None]

    def __init__(
        self,
        config: BrokerConfig,
        delays: Delays,
        timers: Timers | None,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._delays = delays
        self._timers = timers
        self._now_ms = now_ms
        self._slots: dict[tuple[str, str], int] = {}  # by property, at `_slots_at_ms`
        self._slots_at_ms = 0
        self._ticks_ms = config.timer_precision_ms
        self._queues: list[QueueKey] = [(SCHEDULE_TOPIC, n) for n in range(len(delays.levels_ms))]
        self._rooms: dict[int, int] = {}  # by slot in ms: messages it takes for certain
        if timers is not None:
            self.on_timers_stored = timers.on_timers_stored

    def level(self, text: str | None) -> int:
        """The level of a DELAY property: 0 without one, the last level for a higher number.

        Refusal (SYSTEM_ERROR, as in RocketMQ) when it is no number.
        """
        if text is None:
            return 0
        number = _integer(text, LEVEL_MAX)
        if number is None:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"the delay level is {text[:100]!r}; DELAY must be a number, 1 to "
                f"{len(self._delays.levels_ms)}",
            )
        return min(max(number, 0), len(self._delays.levels_ms))

    def place(self, text: str, topic: str, queue_id: int) -> DelayedRoute:
        """The destination of a message for a queue; `text` is its properties.

        Refusal when its delay or time is not accepted.
        """
        pairs, key = properties.decode(text), (topic, queue_id)
        key, text, out_ms = self.placed(properties.ended(text), pairs, key, self._now_ms())
        return DelayedRoute(*key, text, out_ms)

    def placed(self, text: str, pairs: Mapping[str, str], key: QueueKey, now_ms: int) -> Placed:
        """The destination of a message for the queue `key`; `text`, its properties, ends in \x02,
        and `pairs` are the same.

        A message without a delay keeps its key. Refusal when its delay or time is not accepted.
        """
        asked = pairs.get(properties.DELAY)
        level = self.level(asked)
        name = next((each for each in TIME_NAMES if each in pairs), "")
        if asked is not None and level > 0:
            if name:
                text = without(text, TIME_NAMES)
            if int(asked) != level:  # above the last one
                text = f"{without(text, (properties.DELAY,))}{properties.DELAY}\x01{level}\x02"
            return self._queues[level - 1], delayed(text, *key), 0
        # A message that a timer has delivered before must not wait again.
        if not name or key[0] == WHEEL_TOPIC or properties.TIMER_OUT_MS in pairs:
            return key, text, 0
        out_ms = self._timed(name, pairs, text, now_ms)
        if not out_ms:
            return key, text, 0
        return WHEEL_QUEUE, f"{delayed(text, *key)}TIMER_OUT_MS\x01{out_ms}\x02", out_ms

    def placed_all(self, text: str, key: QueueKey, messages: int, now_ms: int) -> Placed | None:
        """`placed` for this many messages with the same properties; None where each must be placed
        by itself."""
        key, text, out_ms = found = self.placed(text, properties.decode(text), key, now_ms)
        if out_ms:
            room = self._rooms[out_ms] - (messages - 1)
            if room < 0:
                return None
            self._rooms[out_ms] = room
        return found

    def _timed(self, name: str, pairs: Mapping[str, str], text: str, now_ms: int) -> int:
        """The slot in ms of a message with this timer property, where it has room for the message;
        0 for a time that has come. Refusal as in `placed`."""
        value = pairs[name]
        if now_ms != self._slots_at_ms or len(self._slots) >= ROOMS_KEPT:
            self._slots_at_ms = now_ms
            self._slots.clear()
        out_ms = self._slots.get((name, value))
        if out_ms is None:
            out_ms = self._slots[name, value] = self._slot(name, value, now_ms)
        if not out_ms:
            if properties.TIMER_DEL_UNIQKEY in pairs:
                deliver_ms = self._deliver_ms(name, value, now_ms)
                raise _illegal(
                    f"a recall for {deliver_ms} ms comes too late, it is {now_ms} ms now"
                )
            return 0
        room = self._rooms.get(out_ms, 0)
        if room <= 0 or len(text) > PROPERTIES_TEXT_MAX:
            room = self._check_room(len(text.encode()), out_ms)
        self._rooms[out_ms] = room - 1
        return out_ms

    def _slot(self, name: str, value: str, now_ms: int) -> int:
        """The slot in ms for a timer property; 0 for a time that has come. Refusal for one that is
        not accepted."""
        if self._timers is None:
            raise Refusal(
                codes.SYSTEM_ERROR,
                "accurate timer message is not enabled, timerWheelEnable is false; switch it on, "
                "or use a delay level",
            )
        deliver_ms = self._deliver_ms(name, value, now_ms)
        # A slot holds the messages due by the end of its tick, so none comes before its time.
        ticks = self._ticks_ms
        return (deliver_ms - 1) // ticks * ticks if deliver_ms > now_ms else 0

    def _deliver_ms(self, name: str, value: str, now_ms: int) -> int:
        """The time in ms that a timer property asks for.

        Refusal when its value is no number, or a wait beyond the limit.
        """
        if value.isascii() and value.isdigit() and len(value) < NUMBER_DIGITS:
            number: int | None = int(value)
        else:
            number = _integer(value, NUMBER_MAX)
        if number is None or number < 0:
            raise _illegal(
                f"{name} is {value[:100]!r}; it must be a number of "
                f"{'seconds' if name == properties.TIMER_DELAY_SEC else 'ms'}, 0 or more"
            )
        wait_ms = number
        if name == properties.TIMER_DELAY_SEC:
            wait_ms = number * 1_000
        elif name == properties.TIMER_DELIVER_MS:
            wait_ms = number - now_ms
        cap_sec = self._config.timer_max_delay_sec
        if wait_ms > cap_sec * 1_000:
            raise _illegal(
                f"{name} is {value}, a wait of {wait_ms} ms: the delay time should not be "
                f"bigger than the max delay {cap_sec * 1_000}ms "
                + ("(the range of a time)" if cap_sec == NO_CAP_SEC else "(timerMaxDelaySec)")
            )
        return now_ms + wait_ms

    def _check_room(self, size: int, out_ms: int) -> int:
        """The number of messages that a slot takes before the next check, 1 or more.

        Refusal when the slot is full, or when properties of `size` bytes leave no room for the
        ones that the broker adds.
        """
        assert self._timers is not None
        waiting = self._timers.state.wheel.get(out_ms).number
        limit = self._config.timer_congest_num_each_slot
        if waiting >= limit:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"timer message is under flow control: {waiting} messages wait for {out_ms} ms, "
                f"max num limit is {limit} (timerCongestNumEachSlot); choose another time",
            )
        if size + MARKS_BYTES > PROPERTIES_BYTES_MAX:
            raise Refusal(
                codes.MESSAGE_ILLEGAL,
                f"the properties of a timer message are {size} bytes, the limit is "
                f"{PROPERTIES_BYTES_MAX - MARKS_BYTES}; put some of it into the body",
            )
        if len(self._rooms) >= ROOMS_KEPT:
            self._rooms.clear()
        return max(1, (limit - waiting) // ROOM_SHARE)


def without(text: str, names: Iterable[str]) -> str:
    """Properties text without the pairs of these names, ending in \\x02 unless empty."""
    starts = tuple(f"{name}\x01" for name in names)
    pairs = [pair for pair in text.split("\x02") if pair and not pair.startswith(starts)]
    return "".join(f"{pair}\x02" for pair in pairs)


def _illegal(why: str) -> Refusal:
    return Refusal(codes.MESSAGE_ILLEGAL, f"timer message illegal, {why}")


def _integer(text: str, most: int) -> int | None:
    """The number in a text, as Java's parsers read it; None if it is none or beyond `most`."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 40:
        return None
    number = int(text)
    return number if -most - 1 <= number <= most else None
