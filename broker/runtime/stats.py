"""Statistics of a broker: counters by topic and group, and their rates over time.

A handler holds a `Counter` and adds to its attributes; nothing else happens on the hot path.
`sample`, called every ten seconds with the time, remembers what changed; a rate is the difference
of two remembered values, as in RocketMQ's BrokerStatsManager: over the last minute (from every
sample), hour (from every ten minutes) and day (from every hour). An unchanged counter costs one
comparison.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from ...protocol.bodies.stats import BrokerStatsData, BrokerStatsItem
from ...protocol.names import is_system_topic
from ...store.base.errors import StoreError
from ...store.engine.messages import MessageFields, Placed
from .arrivals import DELAY, NORMAL, Arrivals, above_small

KEYS_MAX = 300_000  # counters of each kind; later keys share one that is only in the totals
SAMPLE_MS = 10_000
COUNTERS_PER_PART = 500  # sampled at once
SEPARATOR = "@"  # between topic and group

MESSAGES, BYTES, CALLS = 0, 1, 2  # the fields of a remembered value


class Window(NamedTuple):
    """A span of time that a rate is over: `samples` times `period_ms`."""

    period_ms: int
    samples: int


TEN_SECONDS = Window(SAMPLE_MS, 1)
MINUTE = Window(SAMPLE_MS, 6)
TEN_MINUTES = Window(SAMPLE_MS, 60)
HOUR = Window(600_000, 6)
DAY = Window(3_600_000, 24)


class Counter:
    """Messages and bytes since the start. `calls` counts the requests, where one carries many."""

    __slots__ = ("_histories", "_seen", "bytes", "calls", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.calls = 0
        self._seen = 0
        self._histories: dict[Window, _History] = {}

    def sample(self, windows: Iterable[Window], now_ms: int) -> None:
        """Remember the values of now for these windows."""
        self._seen = self.messages
        values = (self.messages, self.bytes, self.calls or self.messages)
        for window in windows:
            history = self._histories.get(window)
            if history is None:
                history = self._histories[window] = _History(window, now_ms)
            history.add(now_ms, values)

    @property
    def changed(self) -> bool:
        """True if there are messages since the last sample."""
        return self.messages != self._seen

    def rate(self, window: Window, field: int, now_ms: int) -> BrokerStatsItem:
        """The sum over the window that ends at `now_ms`, and that a second and a call."""
        history = self._histories.get(window)
        return BrokerStatsItem() if history is None else history.rate(field, now_ms)

    def set_sum(self, one: "Counter", other: "Counter") -> None:
        """Make the values the sums of two counters' values."""
        self.messages = one.messages + other.messages
        self.bytes = one.bytes + other.bytes
        self.calls = one.calls + other.calls


class PartialCounter(Counter):
    """A counter whose messages and bytes are part of a total: add each message to both."""

    __slots__ = ("total",)

    def __init__(self, total: Counter) -> None:
        super().__init__()
        self.total = total


class Puts(PartialCounter):
    """Messages that came in for a topic. `arrivals` has the unusual ones."""

    __slots__ = ("arrivals",)

    def __init__(self, total: Counter) -> None:
        super().__init__(total)
        self.arrivals = Arrivals()

    def add(
        self,
        messages: int,
        size: int,
        kind: str = NORMAL,
        large: Sequence[int] = (),
        batches: int = 0,
    ) -> None:
        """Count messages, `size` bytes in the log; the others as in `Arrivals.note`."""
        total = self.total
        self.messages += messages
        self.bytes += size
        total.messages += messages
        total.bytes += size
        if large or batches or kind != NORMAL:
            self.arrivals.note(kind, messages, size, large, batches)


class _History:
    """The values of a counter where they changed, no older than its window needs."""

    __slots__ = ("_points", "_span_ms")

    def __init__(self, window: Window, now_ms: int) -> None:
        self._span_ms = window.period_ms * window.samples
        # A counter is taken to have begun at nothing, one period before its first sample.
        self._points = [(now_ms - window.period_ms, (0, 0, 0))]

    def add(self, now_ms: int, values: tuple[int, int, int]) -> None:
        points = self._points
        if points[-1][1] == values:
            return
        points.append((now_ms, values))
        while len(points) > 2 and points[1][0] <= now_ms - self._span_ms:
            del points[0]

    def rate(self, field: int, now_ms: int) -> BrokerStatsItem:
        start_ms = now_ms - self._span_ms
        first_ms, first = self._points[0]
        for at_ms, values in self._points:
            if at_ms <= start_ms:
                first_ms, first = start_ms, values
        last = self._points[-1][1]
        total, calls = last[field] - first[field], last[CALLS] - first[CALLS]
        seconds = (now_ms - first_ms) / 1000
        tps = total / seconds if seconds > 0 else 0.0
        return BrokerStatsItem(total, tps, total / calls if calls else 0.0)


class Totals(NamedTuple):
    """Messages in and out: of all topics, and of the users' topics."""

    puts: Counter
    gets: Counter
    users_puts: Counter
    users_gets: Counter


class DayStartCounts(NamedTuple):
    """Messages of the users' topics, put and got, at the last two midnights."""

    put_yesterday: int = 0
    put_today: int = 0
    got_yesterday: int = 0
    got_today: int = 0


Key = TypeVar("Key")
Counted = TypeVar("Counted", bound=Counter)


class Stats:
    """All counters of a broker. `misses` are pulls that found nothing (its `messages` are pulls),
    `failures` are messages that the store declined."""

    def __init__(self, cluster: str, now_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._puts: dict[str, Puts] = {}
        self._gets: dict[tuple[str, str], PartialCounter] = {}
        self._send_backs: dict[tuple[str, str], Counter] = {}
        self._acks: dict[tuple[str, str], Counter] = {}
        self._pops: dict[tuple[str, str], Counter] = {}
        self._own_reads: dict[tuple[str, str], Counter] = {}
        self._queue_reads: dict[tuple[str, str], Counter] = {}  # topic, "queueId@group"
        self._dead_letters: dict[tuple[str, str], Counter] = {}
        self._check_points: dict[tuple[str, str], Counter] = {}
        self._broker_acks = Counter()
        self._broker_check_points = Counter()
        # The totals have the histories; those of all topics are added up when they are read.
        self._totals = Totals(Counter(), Counter(), Counter(), Counter())
        self._system_puts = Counter()
        self._system_gets = Counter()
        self._other_puts = Puts(self._totals.users_puts)  # of topics beyond the limit
        self._other_gets = PartialCounter(self._totals.users_gets)
        self.misses = Counter()
        self.failures = Counter()
        self.day_starts = DayStartCounts()
        self._day = _local_day(now_ms())
        self._sampled_ms: dict[Window, int] = {}

    # --- counting -------------------------------------------------------------------------------

    def puts(self, topic: str) -> Puts:
        """Messages that came in for a topic."""
        found = self._puts.get(topic)
        if found is None:
            if len(self._puts) >= KEYS_MAX:
                return self._other_puts
            total = self._system_puts if is_system_topic(topic) else self._totals.users_puts
            found = self._puts[topic] = Puts(total)
        return found

    def gets(self, topic: str, group: str) -> PartialCounter:
        """Messages that a group pulled from a topic."""
        found = self._gets.get((topic, group))
        if found is None:
            if len(self._gets) >= KEYS_MAX:
                return self._other_gets
            total = self._system_gets if is_system_topic(topic) else self._totals.users_gets
            found = self._gets[topic, group] = PartialCounter(total)
        return found

    def send_backs(self, topic: str, group: str) -> Counter:
        """Messages of a topic that a group gave back."""
        key = (topic, group)
        return self._send_backs.get(key) or _new(self._send_backs, key, Counter())

    def acknowledged(self, topic: str, group: str, messages: int) -> None:
        """Count popped messages that were acknowledged."""
        key = (topic, group)
        (self._acks.get(key) or _new(self._acks, key, Counter())).messages += messages
        self._broker_acks.messages += messages

    def check_point(self, topic: str, group: str) -> None:
        """Count a check point that a pop, or a change of the invisible time, has created."""
        key = (topic, group)
        points = self._check_points
        (points.get(key) or _new(points, key, Counter())).messages += 1
        self._broker_check_points.messages += 1

    def put(self, topic: str, size: int) -> None:
        """Count a message of this many bytes that the broker itself stored."""
        counter = self.puts(topic)
        counter.add(1, size)
        counter.arrivals.own_messages += 1
        counter.arrivals.own_bytes += size

    def moved(
        self,
        messages: Iterable[MessageFields],
        places: Iterable[Placed | StoreError],
        source: tuple[str, int, str] | None = None,
    ) -> None:
        """Count messages that waited in a system topic and were delivered to their own topics.
        Messages without a destination are not counted.

        With a `source`, the topic, the queue and the group that read it, RocketMQ's metrics count
        them as read there and as delayed messages that came in.
        """
        for (key, *_), place in zip(messages, places, strict=False):
            if isinstance(place, StoreError):
                continue
            size = place[2] - place[0]
            if source is None:
                self.put(key[0], size)
                continue
            self.puts(key[0]).add(1, size, DELAY, above_small((size,)))
            topic, queue_id, group = source
            self.own_read(topic, group, 1, size)
            pair = topic, f"{queue_id}{SEPARATOR}{group}"
            read = self._queue_reads.get(pair) or _new(self._queue_reads, pair, Counter())
            read.messages += 1
            read.bytes += size

    def own_read(self, topic: str, group: str, messages: int, size: int) -> None:
        """Count messages that the broker itself has read, which are in no total."""
        counter = self._own_reads.get((topic, group))
        if counter is None:
            counter = _new(self._own_reads, (topic, group), Counter())
        counter.messages += messages
        counter.bytes += size

    def popped(self, topic: str, group: str, messages: int, size: int) -> None:
        """Count messages that a group popped, which `gets` counts as well."""
        counter = self._pops.get((topic, group))
        if counter is None:
            counter = _new(self._pops, (topic, group), Counter())
        counter.messages += messages
        counter.bytes += size

    def dead_letter(self, topic: str, group: str) -> None:
        """Count a message of a topic that has gone to the dead letters of a group."""
        counter = self._dead_letters.get((topic, group))
        if counter is None:
            counter = _new(self._dead_letters, (topic, group), Counter())
        counter.messages += 1

    def delete_topic(self, topic: str) -> None:
        """Forget a topic's counters. The broker's totals keep their values."""
        self._puts.pop(topic, None)
        self._drop_pairs(0, topic)

    def delete_group(self, group: str) -> None:
        """Forget a group's counters. The broker's totals keep their values."""
        self._drop_pairs(1, group)

    # --- reading --------------------------------------------------------------------------------

    def item(self, name: str, key: str) -> BrokerStatsData | None:
        """The item that RocketMQ has under this name and key; None when nothing was counted."""
        counter, field = self._find(name, key)
        if counter is None or not counter.messages:
            return None
        minute, hour, day = (self._rate(counter, window, field) for window in (MINUTE, HOUR, DAY))
        return BrokerStatsData(minute, hour, day)

    def put_tps(self, topic: str) -> float:
        """Messages a second into a topic, over the last minute."""
        counter = self._puts.get(topic)
        return 0.0 if counter is None else self._rate(counter, MINUTE, MESSAGES).tps

    def get_tps(self, topic: str, group: str) -> float:
        """Messages a second out of a topic to a group, over the last minute."""
        counter = self._gets.get((topic, group))
        return 0.0 if counter is None else self._rate(counter, MINUTE, MESSAGES).tps

    def total_tps(self, counter: Counter, field: int = MESSAGES) -> list[float]:
        """The rates over ten seconds, a minute and ten minutes of `broker_puts()`,
        `broker_gets()` or `misses`."""
        windows = (TEN_SECONDS, MINUTE, TEN_MINUTES)
        return [self._rate(counter, window, field).tps for window in windows]

    def all_puts(self) -> Iterator[tuple[str, Puts]]:
        """The topics, some of which may have got no messages."""
        return iter(list(self._puts.items()))  # more may come while these are read

    def all_gets(self) -> Iterator[tuple[tuple[str, str], Counter]]:
        """The pairs of topic and group, some of which may have pulled no messages."""
        return iter(list(self._gets.items()))

    def pops(self, topic: str, group: str) -> Counter | None:
        """Messages of `gets` that were popped; None if none were."""
        return self._pops.get((topic, group))

    def own_reads(self) -> Iterator[tuple[tuple[str, str], Counter]]:
        """Messages that the broker itself has read, by topic and group."""
        return iter(list(self._own_reads.items()))

    def dead_letters(self) -> Iterator[tuple[tuple[str, str], Counter]]:
        """Messages that went to the dead letters, by topic and group."""
        return iter(list(self._dead_letters.items()))

    def broker_puts(self) -> Counter:
        """All that came in."""
        return self.totals().puts

    def broker_gets(self) -> Counter:
        """All that went out."""
        return self.totals().gets

    def users_puts(self) -> Counter:
        """Messages that came in, without the system's topics."""
        return self.totals().users_puts

    def users_gets(self) -> Counter:
        """Messages that went out, without the system's topics."""
        return self.totals().users_gets

    def totals(self) -> Totals:
        """The sums over all counters."""
        found = self._totals
        found.puts.set_sum(found.users_puts, self._system_puts)
        found.gets.set_sum(found.users_gets, self._system_gets)
        return found

    # --- time -----------------------------------------------------------------------------------

    def sample(self, now_ms: int) -> None:
        """Remember the values of now; called every ten seconds."""
        for _ in self.sample_in_parts(now_ms):
            pass

    def sample_in_parts(self, now_ms: int) -> Iterator[None]:
        """Take the samples with pauses in which others may work, for many counters."""
        due = [window for window in (MINUTE, HOUR, DAY) if self._is_due(window, now_ms)]
        for window in (*due, TEN_SECONDS, TEN_MINUTES):
            self._sampled_ms[window] = now_ms
        only_minute = due == [MINUTE]
        tables: tuple[Iterable[Counter], ...] = (
            self._puts.values(),
            self._gets.values(),
            *(table.values() for table in self._of_pairs()),
        )
        for counters in tables:
            for number, counter in enumerate(list(counters)):
                if counter.changed or (counter.messages and not only_minute):
                    counter.sample(due, now_ms)
                if number % COUNTERS_PER_PART == COUNTERS_PER_PART - 1:
                    yield
        for counter in (self._broker_acks, self._broker_check_points):
            counter.sample(due, now_ms)
        self.misses.sample((*due, TEN_SECONDS, TEN_MINUTES), now_ms)
        for total in self.totals():
            total.sample((*due, TEN_SECONDS, TEN_MINUTES), now_ms)
        today = _local_day(now_ms)
        if today != self._day:
            self._day = today
            _, put, _, got = self.day_starts
            now = self._totals
            self.day_starts = DayStartCounts(
                put, now.users_puts.messages, got, now.users_gets.messages
            )

    # --- inside ---------------------------------------------------------------------------------

    def _is_due(self, window: Window, now_ms: int) -> bool:
        last_ms = self._sampled_ms.get(window)
        # A sample that comes a little before its ten seconds counts.
        return last_ms is None or now_ms - last_ms >= window.period_ms - SAMPLE_MS // 2

    def _rate(self, counter: Counter, window: Window, field: int) -> BrokerStatsItem:
        return counter.rate(window, field, self._sampled_ms.get(window, 0))

    def _find(self, name: str, key: str) -> tuple[Counter | None, int]:
        topic, _, group = key.partition(SEPARATOR)
        of_broker, totals = key == self._cluster, self.totals()
        table: dict[str, tuple[Counter | None, int]] = {
            "TOPIC_PUT_NUMS": (self._puts.get(key), MESSAGES),
            "TOPIC_PUT_SIZE": (self._puts.get(key), BYTES),
            "GROUP_GET_NUMS": (self._gets.get((topic, group)), MESSAGES),
            "GROUP_GET_SIZE": (self._gets.get((topic, group)), BYTES),
            "SNDBCK_PUT_NUMS": (self._send_backs.get((topic, group)), MESSAGES),
            "GROUP_ACK_NUMS": (self._acks.get((topic, group)), MESSAGES),
            "GROUP_CK_NUMS": (self._check_points.get((topic, group)), MESSAGES),
            # In RocketMQ, too, only deliveries of delay levels are counted by queue.
            "QUEUE_GET_NUMS": (self._queue_reads.get((topic, group)), MESSAGES),
            "QUEUE_GET_SIZE": (self._queue_reads.get((topic, group)), BYTES),
            "BROKER_ACK_NUMS": (self._broker_acks if of_broker else None, MESSAGES),
            "BROKER_CK_NUMS": (self._broker_check_points if of_broker else None, MESSAGES),
            "BROKER_PUT_NUMS": (totals.puts if of_broker else None, MESSAGES),
            "BROKER_GET_NUMS": (totals.gets if of_broker else None, MESSAGES),
            "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": (
                totals.users_puts if of_broker else None,
                MESSAGES,
            ),
            "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": (
                totals.users_gets if of_broker else None,
                MESSAGES,
            ),
        }
        return table.get(name, (None, MESSAGES))

    def _drop_pairs(self, place: int, name: str) -> None:
        _drop(self._gets, place, name)
        for table in (*self._of_pairs(), self._own_reads, self._dead_letters):
            _drop(table, place, name)

    def _of_pairs(self) -> tuple[dict[tuple[str, str], Counter], ...]:
        """The tables by topic and group that are in no total."""
        return self._send_backs, self._acks, self._check_points, self._pops, self._queue_reads


def _new(table: dict[Key, Counter], key: Key, beyond: Counter) -> Counter:
    if len(table) >= KEYS_MAX:
        return beyond
    counter = table[key] = Counter()
    return counter


def _drop(table: dict[tuple[str, str], Counted], place: int, name: str) -> None:
    """Forget the pairs that have this name at this place."""
    for key in [key for key in table if key[place] == name]:
        del table[key]


def _local_day(now_ms: int) -> int:
    day = time.localtime(now_ms / 1000)
    return day.tm_year * 366 + day.tm_yday
