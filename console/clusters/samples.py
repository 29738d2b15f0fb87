"""The measurements of brokers: each figure with the time of its measurement."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ...protocol.bodies.stats import QueueTimeSpan
from ...protocol.bodies.summaries import GroupSummary, GroupTopicSummary, TopicSummary

Number = TypeVar("Number", int, float)

# RocketMQ gives the whole time since 1970 for a message that retention took, or before the first.
AGE_MS_MAX = 20 * 365 * 24 * 3_600_000


class Timed(NamedTuple):
    """A topic on one broker, and when its figures were asked for; None: only the name is known."""

    at_ms: int | None
    row: TopicSummary


class TimedGroup(NamedTuple):
    """A group on one broker, and when its figures were asked for; None: only the name is known."""

    at_ms: int | None
    row: GroupSummary


class Behind(NamedTuple):
    """The members of a group behind RocketMQ's proxies; not `is_all`: there may be more."""

    members: int
    is_all: bool


NO_PROXY = Behind(0, is_all=True)


@dataclass(slots=True)
class BrokerSample:
    """One broker. `runtime` is from `at_ms`; `wrong` says why a later request failed, at
    `wrong_ms`. `asks_singly`: it does not know our requests for pages. `has_tables`: `topics` and
    `groups` have all names. `proxies`: the hosts of RocketMQ's proxies that are connected to it;
    None: not known."""

    cluster: str
    name: str
    broker_id: int
    address: str
    runtime: dict[str, str] = field(default_factory=dict)
    at_ms: int | None = None
    wrong: str | None = None
    wrong_ms: int | None = None
    asks_singly: bool = False
    has_tables: bool = False
    proxies: list[str] | None = None
    topics: dict[str, Timed] = field(default_factory=dict)
    groups: dict[str, TimedGroup] = field(default_factory=dict)

    @property
    def is_sampled(self) -> bool:
        """All of it was asked for once, or a request failed."""
        return self.wrong is not None or (self.has_tables if self.is_master else bool(self.at_ms))

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0

    @property
    def rate_in(self) -> float | None:
        """Messages a second, over ten seconds."""
        return _first(self.runtime, "putTps")

    @property
    def rate_out(self) -> float | None:
        """Messages a second, over ten seconds; 4.9 spells the field its own way."""
        name = "getTransferredTps"
        return _first(self.runtime, name if name in self.runtime else "getTransferedTps")

    @property
    def disk_ratio(self) -> float | None:
        return _first(self.runtime, "commitLogDiskRatio")

    @property
    def version(self) -> str | None:
        ours = self.runtime.get("aerobeeVersion")
        return f"aerobee {ours}" if ours else self.runtime.get("brokerVersionDesc")


@dataclass(slots=True)
class TopicRow:
    """A topic over all brokers that have it. A figure is None when a broker's is not known;
    `at_ms` is the time of the oldest one."""

    name: str
    brokers: list[str]
    at_ms: int | None
    message_type: str | None
    read_queues: int
    write_queues: int
    perm: int
    messages: int | None
    first_ms: int | None
    last_ms: int | None
    rate_in: float | None
    puts: int | None
    groups: int = 0


@dataclass(slots=True)
class GroupTopicRow:
    """A group in one topic, over all brokers."""

    topic: str
    is_retry: bool
    lag: int | None
    lag_ms: int | None
    in_flight: int | None
    rate_out: float | None
    lag_is_at_most: bool


@dataclass(slots=True)
class GroupRow:
    """A group over all brokers. `members_at_least`: a proxy that may have more was not asked.
    `differing` names members that subscribe differently, and is empty when all agree.
    `lag_is_at_most`: messages that the group's filter skips may be counted."""

    name: str
    at_ms: int | None
    members: int | None
    members_at_least: bool
    consume_type: str | None
    message_model: str | None
    consume_enable: bool | None
    lag: int | None
    lag_ms: int | None
    rate_out: float | None
    drain_s: float | None
    dead_letters: int | None
    differing: str | None
    lag_is_at_most: bool
    topics: list[GroupTopicRow]


def topic_row(
    name: str, found: Mapping[str, Timed], *, whole: bool = True, live: bool = True
) -> TopicRow:
    """A topic from its samples by broker name; not `whole`: a broker that may have it is unknown,
    and so are its figures; not `live`: one that has it is away, and so its rate is not known."""
    rows = [one.row for one in found.values()]
    if not whole:
        rows.append(TopicSummary(name))
    return TopicRow(
        name,
        sorted(found),
        _oldest(one.at_ms for one in found.values()),
        next((one.message_type for one in rows if one.message_type), None),
        sum(one.read_queues for one in rows),
        sum(one.write_queues for one in rows),
        max((one.perm for one in rows), default=0),
        total([one.messages for one in rows]),
        min((one.first_ms for one in rows if one.first_ms), default=None),
        max((one.last_ms for one in rows if one.last_ms), default=None),
        total([one.put_tps for one in rows]) if live else None,
        total([one.puts for one in rows]),
    )


def group_row(
    name: str,
    found: Iterable[TimedGroup],
    behind: Behind = NO_PROXY,
    *,
    whole: bool = True,
    live: bool = True,
) -> GroupRow:
    """A group from its samples of all brokers, with what is `behind` proxies; not `whole`: one
    broker is unknown, and so are the figures; not `live`: one is away, and so rates are not
    known."""
    samples = list(found)
    if not whole:
        samples.append(TimedGroup(None, GroupSummary(name)))
    rows = [one.row for one in samples]
    parts: dict[tuple[str, bool], list[GroupTopicSummary]] = {}
    for row in rows:
        for one in row.topics:
            parts.setdefault((one.topic, one.is_retry), []).append(one)
    topics = [
        GroupTopicRow(
            topic,
            is_retry,
            total([one.lag for one in found]),
            most([one.lag_ms for one in found]),
            total([one.in_flight for one in found]),
            total([one.get_tps for one in found]) if live else None,
            any(one.lag_is_at_most for one in found),
        )
        for (topic, is_retry), found in sorted(parts.items())
    ]
    at_ms = _oldest(one.at_ms for one in samples)
    is_known = at_ms is not None
    lag = total([one.lag for one in topics]) if is_known else None
    rate = total([one.rate_out for one in topics]) if is_known else None
    age = most([one.lag_ms for one in topics]) if is_known else None
    if not topics and is_known:  # it reads nothing yet
        lag, age, rate = 0, 0, 0.0 if live else None
    # Every broker of a cluster has the same members, so the largest number is the number.
    members = most([one.members for one in rows])
    if members is not None:
        members = members + behind.members or (0 if behind.is_all else None)
    return GroupRow(
        name,
        at_ms,
        members,
        members is not None and not behind.is_all,
        next((one.consume_type for one in rows if one.consume_type), None),
        next((one.message_model for one in rows if one.message_model), None),
        next((one.consume_enable for one in rows if one.consume_enable is not None), None),
        lag,
        age,
        rate,
        lag / rate if lag is not None and rate else None,
        total([one.dead_letters for one in rows]),
        _differing(rows, behind, members),
        lag is not None and any(one.lag_is_at_most for one in topics),
        topics,
    )


def _differing(rows: Iterable[GroupSummary], behind: Behind, members: int | None) -> str | None:
    """The difference between members' subscriptions, as brokers tell it; "" for none.

    None when it is not known: a broker does not tell it, or members are behind proxies, which do
    not tell the subscription of each.
    """
    told = [one.differing for one in rows]
    differing = next(filter(None, told), None)
    if differing is not None:
        return differing
    is_told = None not in told and behind.is_all and (not behind.members or members == 1)
    return "" if is_told and told else None


def in_turn(broker: BrokerSample, first: Collection[str]) -> list[tuple[bool, str]]:
    """The topics (False) and groups (True) of a broker in the order to ask: the ones of `first`
    before the others, and of each kind first those with the oldest figures."""
    queue = [
        (name not in first, one.at_ms or 0, is_group, name)
        for is_group, table in ((False, broker.topics), (True, broker.groups))
        for name, one in table.items()
    ]
    return [(is_group, name) for _, _, is_group, name in sorted(queue)]


def age_of(span: QueueTimeSpan, now_ms: int) -> int | None:
    """The milliseconds for which a group's next message of a queue has waited.

    If that message is gone, the first one that the queue still has counts. None without any.
    """
    if 0 <= span.delay_time <= AGE_MS_MAX:
        return span.delay_time
    first_ms = span.min_time_stamp
    return max(0, now_ms - first_ms) if first_ms > 0 else None


def _oldest(times: Iterable[int | None]) -> int | None:
    """The earliest; None when one is not known, or there is none."""
    found = list(times)
    return None if None in found else min(filter(None, found), default=None)


def total(values: Iterable[Number | None]) -> Number | None:
    """The sum; None when one is not known, or there is none."""
    found: Number | None = None
    for value in values:
        if value is None:
            return None
        found = value if found is None else found + value
    return found


def most(values: Iterable[int | None]) -> int | None:
    """The largest; None when one is not known, or there is none."""
    found = list(values)
    known = [one for one in found if one is not None]
    return max(known, default=None) if len(known) == len(found) else None


def _first(texts: Mapping[str, str], name: str) -> float | None:
    """The first of the numbers of a runtime field."""
    try:
        return float(texts[name].split()[0])
    except (KeyError, ValueError, IndexError):
        return None
