"""The property filters of consumer groups: consumerFilter.json, and the compiled expressions.

An SQL92 expression comes with a heartbeat, is compiled once and kept by topic and group. A later
version of the subscription replaces it; an expression that can't be used is not kept, and takes the
one before it away, so that a group never reads by a filter that it has given up. When the last
member leaves, the filter is dead, and forgotten after filterDataCleanTimeSpan.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ...protocol import codes
from ...protocol.bodies.subscription import (
    SQL92,
    TAG,
    ConsumerFilterData,
    ConsumerFilterWrapper,
    FilterDataMapByTopic,
    SubscriptionData,
    subscription,
)
from ...protocol.errors import Refusal
from ...protocol.filters.sql92 import Predicate, Properties, SqlError
from ...protocol.message.properties import RETRY_TOPIC
from ...protocol.names import RETRY_PREFIX
from ...store.files import json_file
from ..runtime.persistent import PersistentTable
from ..settings.config import BrokerConfig
from .bloom import BloomFilter
from .matching import Wanted, is_by_tags, tags_of
from .sql92_cache import compiled

FILTERS_MAX = 100_000  # topic and group pairs
EXPRESSIONS_CHARS_MAX = 2 << 20  # of all filters; compiled, each takes up to 200 bytes of memory
STATED_MAX = 10_000  # tag expressions of requests, ready to be used
STATED_CHARS_MAX = 1_024  # of one that is kept so
TAGS_CHARS_MAX = 16_384  # of a request's tag expression: hashing longer ones would block the loop
LOADED_DEAD_MS = 30_000  # how long a filter from the file counts as dead

log = logging.getLogger(__name__)


class Filters(PersistentTable):
    """Filters by topic and group, and what an expression in a request stands for."""

    def __init__(self, path: Path, config: BrokerConfig, now_ms: Callable[[], int]) -> None:
        super().__init__(path, now_ms)
        self._config = config
        self._bloom = BloomFilter(
            config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
        )
        self._table: dict[tuple[str, str], ConsumerFilterData] = {}
        self._chars = 0  # of all expressions
        self._compiled: dict[tuple[str, str], Predicate] = {}
        self._topics: dict[str, set[str]] = {}  # by group
        self._stated: dict[tuple[str, str | None], frozenset[int] | None] = {}

    @property
    def enabled(self) -> bool:
        """True if subscriptions by expressions are served, not only by tags."""
        return self._config.enable_property_filter

    # --- for pulls and pops ---------------------------------------------------------------------

    def stated(
        self, topic: str, expression: str | None, kind: str | None, *, always: bool = False
    ) -> Wanted:
        """The filter for an expression in a request. Refusal naming its fault.

        `always`: also while enablePropertyFilter is off, which RocketMQ doesn't check for a pop.
        """
        if kind == TAG or is_by_tags(kind):
            key = (topic, expression)
            try:
                return self._stated[key]
            except KeyError:
                if len(expression or "") > TAGS_CHARS_MAX:
                    raise Refusal(
                        codes.SUBSCRIPTION_PARSE_FAILED,
                        f"the tag expression for topic {topic} has {len(expression or '')} "
                        f"characters, the limit is {TAGS_CHARS_MAX}; name fewer tags, or subscribe "
                        "to all and choose at the client",
                    ) from None
                tags = tags_of(_read(topic, expression, TAG))
            if len(self._stated) >= STATED_MAX:
                self._stated.clear()
            if len(expression or "") <= STATED_CHARS_MAX:
                self._stated[key] = tags
            return tags
        wanted = _read(topic, expression, kind)
        if not always:
            self._check_enabled(wanted.expression_type)
        _check_text(wanted)
        return self._matching(topic, compiled(wanted.sub_string))

    def registered(self, wanted: SubscriptionData, group: str, sub_version: int) -> Wanted:
        """The filter for a subscription from the group's heartbeats.

        A subscription from a time when enablePropertyFilter was off becomes a filter here. Refusal
        when its expression is wrong, or when it is older than `sub_version`.
        """
        if is_by_tags(wanted.expression_type):
            return tags_of(wanted)
        self._check_enabled(wanted.expression_type)
        key = (wanted.topic, group)
        data = self._table.get(key)
        if data is None:
            data = self._new(group, wanted)
            fault = self._why_not(key, data)
            if fault is not None:
                raise Refusal(
                    codes.FILTER_DATA_NOT_EXIST,
                    "The broker's consumer filter data is not exist!Your expression may be wrong! "
                    f"{fault}",
                )
            self._keep(key, data)
            self.changed = True
        if data.client_version < sub_version:
            raise Refusal(
                codes.FILTER_DATA_NOT_LATEST,
                f"the consumer's consumer filter data not latest: {data.client_version} is known, "
                f"{sub_version} was named; send a heartbeat",
            )
        return self._matching(wanted.topic, self._compiled[key])

    def check(self, wanted: SubscriptionData) -> None:
        """Refusal when a subscription can't be used here, with the fault and its position."""
        if not is_by_tags(wanted.expression_type):
            self._check_enabled(wanted.expression_type)
            _check_text(wanted)

    def find(self, topic: str, group: str) -> ConsumerFilterData | None:
        """The filter of a group for a topic, None when it has none."""
        return self._table.get((topic, group))

    # --- changing -------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the file; ValueError naming it when neither it nor its .bak can be read."""
        found = json_file.load(self.path, ConsumerFilterWrapper.decode)
        if found is None:
            return
        table = {
            (topic, group): data
            for topic, by_group in found.filter_data_by_topic.items()
            for group, data in by_group.group_filter_data.items()
        }
        if not all(self._bloom.is_valid(data.bloom_filter_data) for data in table.values()):
            # As in Java: bits in messages of other settings can't be read any more.
            log.info("the settings of the bloom filter have changed: %s is not used", self.path)
            return
        for key, data in table.items():
            if self._take(key, data) and data.dead_time == 0:
                data.dead_time = max(data.born_time, self._now_ms() - LOADED_DEAD_MS)

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Take over the expressions of a heartbeat; filters that it no longer names are dead."""
        if not self.enabled and not self._table:
            return
        named = set()
        for wanted in subscriptions:
            named.add(wanted.topic)
            if not is_by_tags(wanted.expression_type) and wanted.sub_string:
                self._register(group, wanted)
        self._bury(data for data in self._of(group) if data.topic not in named)

    def unregister(self, group: str) -> None:
        """Mark the filters of a group as dead: its last member has left."""
        self._bury(self._of(group))

    def clean(self, now_ms: int) -> None:
        """Forget the filters that have been dead for long enough."""
        late = [
            key
            for key, data in self._table.items()
            if data.is_dead and now_ms - data.dead_time >= self._config.filter_data_clean_time_span
        ]
        for key in late:
            self._drop(key)

    def text(self, *, standard: bool = False) -> Iterator[bytes]:
        """The table as its file has it, in one piece."""
        yield self.to_body().encode(standard=standard)

    def to_body(self) -> ConsumerFilterWrapper:
        """The table as consumerFilter.json has it."""
        topics: dict[str, FilterDataMapByTopic] = {}
        for (topic, group), data in self._table.items():
            by_group = topics.setdefault(topic, FilterDataMapByTopic({}, topic))
            by_group.group_filter_data[group] = data
        return ConsumerFilterWrapper(topics)

    # --- inside ---------------------------------------------------------------------------------

    def _matching(self, topic: str, matches: Predicate) -> Predicate:
        """The predicate; for a retry topic, where the settings say so, that of the first topic."""
        if not self._config.filter_support_retry or not topic.startswith(RETRY_PREFIX):
            return matches
        group = topic.removeprefix(RETRY_PREFIX)

        def first_matches(properties: Properties) -> bool:
            first = self._compiled.get((str(properties.get(RETRY_TOPIC) or ""), group))
            return first is None or first(properties)

        return first_matches

    def _check_enabled(self, kind: str) -> None:
        if not self.enabled:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {kind}; subscribe by "
                "tags, or set enablePropertyFilter=true in the broker's settings",
            )

    def _of(self, group: str) -> list[ConsumerFilterData]:
        return [self._table[topic, group] for topic in sorted(self._topics.get(group, ()))]

    def _register(self, group: str, wanted: SubscriptionData) -> None:
        key = (wanted.topic, group)
        old = self._table.get(key)
        if old is not None and wanted.sub_version <= old.client_version:
            if wanted.sub_version == old.client_version and old.is_dead:
                self._revive(old)
            return
        same = (wanted.sub_string, wanted.expression_type)
        if old is not None and (old.expression, old.expression_type) == same:
            old.client_version = wanted.sub_version
            self._revive(old)
            return
        if self._take(key, self._new(group, wanted)):
            self.changed = True
        elif old is not None:
            self._drop(key)  # the client learns it by its next pull

    def _take(self, key: tuple[str, str], data: ConsumerFilterData) -> bool:
        """Keep a filter; False, and a line in the log, when that can't be."""
        fault = self._why_not(key, data)
        if fault is not None:
            log.warning("no filter for group %s on topic %s: %s", key[1], key[0], fault)
            return False
        self._keep(key, data)
        return True

    def _why_not(self, key: tuple[str, str], data: ConsumerFilterData) -> str | None:
        """The reason why this filter can't be kept; None when it can."""
        return _fault(data.expression, data.expression_type) or self._no_room(key, data)

    def _keep(self, key: tuple[str, str], data: ConsumerFilterData) -> None:
        self._chars += len(data.expression) - self._chars_of(key)
        self._table[key] = data
        self._compiled[key] = compiled(data.expression)
        self._topics.setdefault(key[1], set()).add(key[0])

    def _new(self, group: str, wanted: SubscriptionData) -> ConsumerFilterData:
        return ConsumerFilterData(
            group,
            wanted.topic,
            wanted.sub_string,
            wanted.expression_type,
            born_time=self._now_ms(),
            bloom_filter_data=self._bloom.generate(f"{group}#{wanted.topic}"),
            client_version=wanted.sub_version,
        )

    def _no_room(self, key: tuple[str, str], data: ConsumerFilterData) -> str | None:
        """Make room for a filter by dropping dead filters; returns why there is none, else None."""
        more = len(data.expression) - self._chars_of(key)
        for _ in range(2):
            count = len(self._table) + (key not in self._table)
            if count <= FILTERS_MAX and (more <= 0 or self._chars + more <= EXPRESSIONS_CHARS_MAX):
                return None
            for one in [each for each, known in self._table.items() if known.is_dead]:
                if one != key:
                    self._drop(one)
        return (
            f"{len(self._table)} filters with {self._chars} characters are kept, one more of "
            f"{len(data.expression)} would be over the limit of {FILTERS_MAX} or of "
            f"{EXPRESSIONS_CHARS_MAX} characters; subscribe by shorter expressions, or by tags"
        )

    def _chars_of(self, key: tuple[str, str]) -> int:
        known = self._table.get(key)
        return 0 if known is None else len(known.expression)

    def _revive(self, data: ConsumerFilterData) -> None:
        data.dead_time = 0
        self.changed = True

    def _bury(self, filters: Iterable[ConsumerFilterData]) -> None:
        for data in filters:
            if not data.is_dead:
                data.dead_time = self._now_ms()
                self.changed = True

    def _drop(self, key: tuple[str, str]) -> None:
        self._chars -= self._chars_of(key)
        del self._table[key], self._compiled[key]
        topics = self._topics[key[1]]
        topics.remove(key[0])
        if not topics:
            del self._topics[key[1]]
        self.changed = True


def _read(topic: str, expression: str | None, kind: str | None) -> SubscriptionData:
    try:
        return subscription(topic, expression, kind)
    except ValueError as wrong:
        raise Refusal(
            codes.SUBSCRIPTION_PARSE_FAILED,
            f"parse the consumer's subscription failed: {wrong}",
        ) from None


def _check_text(wanted: SubscriptionData) -> None:
    fault = _fault(wanted.sub_string, wanted.expression_type)
    if fault is not None:
        raise Refusal(codes.SUBSCRIPTION_PARSE_FAILED, fault)


def _fault(expression: str, kind: str) -> str | None:
    """The fault of an expression, and its position; None when it can be used."""
    if kind != SQL92:
        return f"the expression type {kind!r} is not known; it can be TAG or {SQL92}"
    try:
        compiled(expression)
    except SqlError as wrong:
        return str(wrong)
    return None
