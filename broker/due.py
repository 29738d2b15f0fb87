"""When a message that comes in is to be seen: at once, after a delay level, or at its own time.

One that is to wait goes into a system topic first, with the place where it belongs among its
properties. The level wins over a time. What can't be understood or kept is refused with its reason,
so a message is never delivered at another time than its sender believes.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..protocol import codes, properties
from ..protocol.errors import Refusal
from ..protocol.properties import PROPERTIES_BYTES_MAX
from .config import NO_CAP_SEC, BrokerConfig
from .delays import SCHEDULE_TOPIC, Delays, delayed
from .timer_state import QUEUE, WHEEL_TOPIC
from .timers import Timers

TIME_NAMES = (properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS)
NUMBER_MAX = (1 << 63) - 1  # what Java's long takes
LEVEL_MAX = (1 << 31) - 1
MARKS_BYTES = 512  # kept free in the properties for what the broker adds on the way


class Place(NamedTuple):
    """Where a message is stored. `out_ms` is its slot of the timer wheel, 0 for no timer."""

    topic: str
    queue_id: int
    text: str
    out_ms: int = 0


class Due:
    """The rules. `timers` is None where timerWheelEnable is false."""

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

    def level(self, text: str | None) -> int:
        """The level that a DELAY property asks for: 0 for none, the last one for more.

        Refusal (MESSAGE_ILLEGAL) when it is no number, as RocketMQ does.
        """
        if text is None:
            return 0
        number = _integer(text, LEVEL_MAX)
        if number is None:
            raise Refusal(
                codes.MESSAGE_ILLEGAL,
                f"the delay level is {text[:100]!r}; DELAY must be a number, 1 to "
                f"{len(self._delays.levels_ms)}",
            )
        return min(max(number, 0), len(self._delays.levels_ms))

    def place(self, text: str, topic: str, queue_id: int) -> Place:
        """Where a message with these properties, ending in \\x02, goes; Refusal when nowhere."""
        raw = text.encode()
        if b"TIMER_" not in raw:  # mostly a level alone: no need to take all apart
            wanted = properties.find(raw, b"DELAY")
            level = self.level(None if wanted is None else wanted.decode(errors="replace"))
            if level == 0:
                return Place(topic, queue_id, text)
            return Place(SCHEDULE_TOPIC, level - 1, delayed(text, topic, queue_id))
        pairs = properties.decode(text)
        level = self.level(pairs.get(properties.DELAY))
        names = [name for name in TIME_NAMES if name in pairs]
        if level > 0:
            if names:
                text = without(text, names)
            return Place(SCHEDULE_TOPIC, level - 1, delayed(text, topic, queue_id))
        # One that a timer has delivered before is not to wait again.
        if not names or topic == WHEEL_TOPIC or properties.TIMER_OUT_MS in pairs:
            return Place(topic, queue_id, text)
        if self._timers is None:
            raise Refusal(
                codes.SYSTEM_ERROR,
                "accurate timer message is not enabled, timerWheelEnable is false; switch it on, "
                "or use a delay level",
            )
        now_ms = self._now_ms()
        deliver_ms = self._deliver_ms(names[0], pairs[names[0]], now_ms)
        if deliver_ms <= now_ms:
            if properties.TIMER_DEL_UNIQKEY in pairs:
                raise _illegal(
                    f"a recall for {deliver_ms} ms comes too late, it is {now_ms} ms now"
                )
            return Place(topic, queue_id, text)
        # A slot holds what is due by the end of its tick, so nothing comes before its time.
        ticks = self._config.timer_precision_ms
        out_ms = (deliver_ms - 1) // ticks * ticks
        self._check_room(len(raw), out_ms)
        text = delayed(text, topic, queue_id) + f"{properties.TIMER_OUT_MS}\x01{out_ms}\x02"
        return Place(WHEEL_TOPIC, QUEUE, text, out_ms)

    def came_in(self, place: int, out_ms: int, topic: str) -> None:
        """A timer message that was placed is stored now: where, for which slot, of which topic."""
        assert self._timers is not None
        self._timers.came_in(place, out_ms, topic)

    def _deliver_ms(self, name: str, value: str, now_ms: int) -> int:
        """The time that a property asks for. Refusal when it can't be."""
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
                f"{name} is {value}, a wait of {wait_ms} ms: the delay time should not be bigger "
                f"than the max delay {cap_sec * 1_000}ms "
                + ("(the range of a time)" if cap_sec == NO_CAP_SEC else "(timerMaxDelaySec)")
            )
        return now_ms + wait_ms

    def _check_room(self, size: int, out_ms: int) -> None:
        """Refusal when a slot, or properties of this size in bytes, can take no more."""
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


def without(text: str, names: list[str]) -> str:
    """Properties text without the pairs of these names, ending in \\x02 unless empty."""
    starts = tuple(f"{name}\x01" for name in names)
    pairs = [pair for pair in text.split("\x02") if pair and not pair.startswith(starts)]
    return "".join(f"{pair}\x02" for pair in pairs)


def _illegal(why: str) -> Refusal:
    return Refusal(codes.MESSAGE_ILLEGAL, f"timer message illegal, {why}")


def _integer(text: str, most: int) -> int | None:
    """A number as Java's parsers take it; None when it is none, or beyond `most`."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 40:
        return None
    number = int(text)
    return number if -most - 1 <= number <= most else None
