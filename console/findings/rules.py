"""The rules of `aerobee doctor`: silent reasons why messages are not sent or not read.

Each rule takes the responses of a cluster and yields findings; no rule sends requests.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ...client.admin.brokers import AEROBEE_VERSION
from ...client.errors import BrokerError
from ...protocol.addresses import is_loopback
from ...protocol.bodies.clients import ConsumerConnection
from ...protocol.bodies.cluster import (
    DIFFERING_PREFIX,
    HOLDING_NOTHING,
    LOG_HELD_BY,
    LOG_HELD_BYTES,
    LOG_HELD_SINCE,
    NOT_STORED,
    OTHER_MASTERS,
)
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.bodies.ha import HARuntimeInfo
from ...protocol.bodies.route import QueueData
from ...protocol.bodies.stats import ConsumeStats, TopicStatsTable
from ...protocol.bodies.topic import PERM_READ, PERM_WRITE
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX, SPARK_GROUP
from ..texts import Text, counted
from .replicas import Replicas

# Default limits of disk use: above the first old messages are deleted early, above the second
# sends are refused.
CLEAN_PERCENT, REFUSE_PERCENT = 75, 90
RETENTION_MS = "retention.ms"  # the attribute of a topic
HOUR_MS, KEEP_HOURS = 3_600_000, 72
NEAR_PERCENT = 5  # a warning comes this far below a limit
CLOCK_MS = 1_000  # a smaller difference is accepted; a pop may be half a second late
# The uptime of a broker: "[ 0 days, 2 hours, 0 minutes, 5 seconds ]".
_RUNTIME = re.compile(r"(\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds")


class Severity(StrEnum):
    """How soon somebody should look, the most urgent first."""

    ERROR = "error"  # messages are lost or not taken, or a broker is away
    WARNING = "warning"  # messages wait, or soon will
    NOTE = "note"  # as it was set up, perhaps not as it was meant


@dataclass(frozen=True, slots=True, order=True)
class Cure:
    """An action of the console that cures a finding, and the field of its form for the name that
    the finding is about."""

    action: str
    field: str


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """`where` it is, `what` was found, what to `do` about it, how urgent it is, and the action of
    the console for that."""

    where: Text
    what: Text
    do: Text
    severity: Severity = Severity.WARNING
    cure: Cure | None = None

    @property
    def about(self) -> tuple[str, str] | None:
        """The topic, group or broker that it is about: its kind and its name."""
        kind, _, name = self.where.pattern.partition(" ")
        return (kind, self.where.values["name"]) if name == "%(name)s" else None

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.do}"


def by_severity(found: Iterable[Finding]) -> list[Finding]:
    """The findings, each once and the most urgent first."""
    order = list(Severity)
    return sorted(set(found), key=lambda one: (order.index(one.severity), one))


def of_broker(
    name: str, runtime: Mapping[str, str], settings: Mapping[str, str]
) -> Iterator[Finding]:
    """A broker's own report: differing subscriptions, its store, what it keeps for groups,
    permissions, its disk."""
    for key, text in runtime.items():
        if key.startswith(DIFFERING_PREFIX):
            yield Finding(
                Text("group %(name)s", name=key.removeprefix(DIFFERING_PREFIX)),
                Text(
                    "its members subscribe differently, so that some messages reach none: %(text)s",
                    text=text,
                ),
                Text("give all members the same subscriptions, or each its own group"),
            )
    where = Text("broker %(name)s", name=name)
    reason = runtime.get(NOT_STORED)
    if reason is not None:
        do = Text("once that is mended it goes on by itself, unless a restart is named")
        yield Finding(where, Text("it reports: %(reason)s", reason=reason), do, Severity.ERROR)
    yield from _of_waiting_groups(name, runtime)
    bound = settings.get("bindAddress", "")
    is_open = settings.get("authenticationEnabled", "false") != "true"
    if AEROBEE_VERSION in runtime and bound and is_open and not is_loopback(bound):
        yield Finding(
            where,
            Text(
                "bindAddress is %(bound)s without access control: anyone who reaches it can read "
                "and send messages, delete topics and change settings",
                bound=bound,
            ),
            Text("set authenticationEnabled and authorizationEnabled, or bindAddress=127.0.0.1"),
        )
    perm = int(_number(settings, "brokerPermission", PERM_READ | PERM_WRITE))
    over = Text("set it to %(perm)s when that is over", perm=PERM_READ | PERM_WRITE)
    if not perm & PERM_WRITE:
        what = Text("it takes no messages: brokerPermission is %(perm)s", perm=perm)
        yield Finding(where, what, over, cure=Cure("broker-write", "broker"))
    if not perm & PERM_READ:
        what = Text("it hands out no messages: brokerPermission is %(perm)s", perm=perm)
        yield Finding(where, what, over)
    used = round(_number(runtime, "commitLogDiskRatio", 0) * 100)
    clean = int(_number(settings, "diskMaxUsedSpaceRatio", CLEAN_PERCENT))
    refuse = int(_number(settings, "diskSpaceWarningLevelRatio", REFUSE_PERCENT))
    if used > refuse:
        what = Text(
            "its disk is %(used)s %% full, above %(limit)s %% it refuses sends",
            used=used,
            limit=refuse,
        )
    elif used > clean:
        what = Text(
            "its disk is %(used)s %% full, above %(limit)s %% messages are deleted before their "
            "time",
            used=used,
            limit=clean,
        )
    elif used > clean - NEAR_PERCENT:
        what = Text(
            "its disk is %(used)s %% full, from %(limit)s %% on messages are deleted before their "
            "time",
            used=used,
            limit=clean,
        )
    else:
        return
    severity = Severity.ERROR if used > refuse else Severity.WARNING
    yield Finding(where, what, Text("make room on the disk, or lower fileReservedTime"), severity)


def no_response(name: str, address: str, wrong: Exception) -> Finding:
    """A broker that does not respond at the address that it registers."""
    where = Text("broker %(name)s", name=name)
    if isinstance(wrong, BrokerError):
        do = Text("examine it as a user who may (AEROBEE_ACCESS_KEY and AEROBEE_SECRET_KEY)")
        return Finding(where, Text("it does not say how it is: %(wrong)s", wrong=wrong), do)
    return Finding(
        where,
        Text(
            "it does not answer at %(address)s, the address that it tells clients: %(wrong)s",
            address=address,
            wrong=wrong,
        ),
        Text(
            "start it; or, if it runs, set brokerIP1 to an address that works from here; topics "
            "and groups are looked at when all brokers answer"
        ),
        Severity.ERROR,
    )


def does_not_answer(name: str, address: str, wrong: str) -> Finding:
    """A broker whose last request failed."""
    return Finding(
        Text("broker %(name)s", name=name),
        Text("it does not answer at %(address)s: %(wrong)s", address=address, wrong=wrong),
        Text("start it; or, if it runs, set brokerIP1 to an address that works from here"),
        Severity.ERROR,
    )


def of_clock(
    name: str, runtime: Mapping[str, str], before_ms: int, after_ms: int
) -> Iterator[Finding]:
    """A clock that differs from ours, which said `before_ms` and `after_ms` around the answer."""
    text = _RUNTIME.search(runtime.get("runtime", ""))
    boot_ms = int(_number(runtime, "bootTimestamp", 0))
    if text is None or not boot_ms:
        return
    days, hours, minutes, seconds = map(int, text.groups())
    runs_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    least_ms = boot_ms + runs_s * 1_000
    most_ms = least_ms + 999  # fractions of a second are not shown
    ahead_ms, behind_ms = least_ms - after_ms, before_ms - most_ms
    if max(ahead_ms, behind_ms) < CLOCK_MS:
        return
    if ahead_ms > 0:
        what = Text(
            "its clock is %(seconds)s s ahead of the one of this machine",
            seconds=f"{ahead_ms / 1000:,.0f}",
        )
    else:
        what = Text(
            "its clock is %(seconds)s s behind the one of this machine",
            seconds=f"{behind_ms / 1000:,.0f}",
        )
    yield Finding(
        Text("broker %(name)s", name=name),
        what,
        Text(
            "set both by NTP: a client whose clock is behind its broker's pops no messages, and "
            "times of delivery are those of the broker"
        ),
    )


def on_one_broker(
    name: str, queues: Iterable[QueueData], clusters: Mapping[str, Iterable[str]]
) -> Iterator[Finding]:
    """A topic on one of several brokers, such as one that the first send creates. That of retries
    or dead letters is where its group's consumers needed it."""
    if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return
    brokers = {data.broker_name or "" for data in queues}
    for cluster, members in clusters.items():
        there = brokers.intersection(members)
        others = set(members) - brokers
        if len(there) == 1 and others:
            yield Finding(
                Text("topic %(name)s", name=name),
                Text(
                    "it is on broker %(broker)s alone, of the %(count)s in %(cluster)s (a first "
                    "send makes it on one): while that is down nobody sends to it",
                    broker=min(there),
                    count=len(others) + 1,
                    cluster=cluster,
                ),
                Text(
                    "unless that is wanted, make it on all: aerobee topics create %(name)s "
                    "--queues 4",
                    name=name,
                ),
                Severity.NOTE,
                Cure("topic-update", "topic"),
            )


def _of_waiting_groups(name: str, runtime: Mapping[str, str]) -> Iterator[Finding]:
    """What a broker keeps for groups of retainUntilConsumedBy, and groups for which it can't."""
    where = Text("broker %(name)s", name=name)
    size, since_ms = _number(runtime, LOG_HELD_BYTES, 0), _number(runtime, LOG_HELD_SINCE, 0)
    if size > 0:
        group, _, rest = runtime.get(LOG_HELD_BY, "").partition(";")
        topic, _, queue = rest.partition(";")
        since = datetime.fromtimestamp(since_ms / 1_000).astimezone()
        yield Finding(
            where,
            Text(
                "%(mib)s MiB of its log are past fileReservedTime, the oldest since %(since)s, and "
                "stay until group %(group)s has read them (retainUntilConsumedBy), in queue "
                "%(queue)s of topic %(topic)s first",
                mib=f"{size / (1 << 20):,.0f}",
                since=since.isoformat(" ", "minutes"),
                group=group,
                queue=queue,
                topic=topic,
            ),
            Text(
                "start the group (of a lake: aerobee lake run), take it out of "
                "retainUntilConsumedBy, or delete its offsets: aerobee groups delete %(group)s",
                group=group,
            ),
        )
    for group in filter(None, runtime.get(HOLDING_NOTHING, "").split(";")):
        yield Finding(
            where,
            Text(
                "retainUntilConsumedBy names group %(group)s, which has no offset here, so nothing "
                "is kept for it",
                group=group,
            ),
            Text("correct the name, or start the group"),
        )


def other_masters(name: str, address: str, runtime: Mapping[str, str]) -> Iterator[Finding]:
    """Other live masters of a broker name, as the master at `address` reports them."""
    for other in filter(None, runtime.get(OTHER_MASTERS, "").split(";")):
        first, second = sorted((address, other))
        yield Finding(
            Text("broker %(name)s", name=name),
            Text(
                "two masters of %(name)s run, %(first)s and %(second)s: each takes messages that "
                "the other lacks",
                name=name,
                first=first,
                second=second,
            ),
            Text("stop one of them, and give it an empty store folder before it becomes a slave"),
            Severity.ERROR,
        )


def no_broker() -> Finding:
    """A cluster without any broker."""
    return Finding(
        Text("name server"),
        Text("no broker is registered, so there are no topics and no messages"),
        Text("start a broker with this name server's address (-n), and look into its log"),
        Severity.ERROR,
    )


def no_master(name: str, slaves: Mapping[int, str]) -> Finding:
    """A broker name without a live master; `slaves` are addresses by broker id."""
    do = Text("start it")
    if slaves:
        number, address = min(slaves.items())
        do = Text(
            "start it; if it is lost for good, stop slave %(number)s at %(address)s and start it "
            "with brokerRole=ASYNC_MASTER",
            number=number,
            address=address,
        )
    what = Text("it has no master, so it takes no messages")
    return Finding(Text("broker %(name)s", name=name), what, do, Severity.ERROR)


def of_replicas(name: str, found: Replicas) -> Iterator[Finding]:
    """A broker name in controller mode: members that are away or behind, and elections that the
    controller does not hold."""
    where = Text("broker %(name)s", name=name)
    newest = max((one.epoch for one in found.members), default=0)
    if newest > found.master_epoch:
        yield Finding(
            where,
            Text(
                "its brokers know master epoch %(newest)s, controller %(controller)s only "
                "%(epoch)s: the controller's state was lost, and it elects nobody",
                newest=newest,
                controller=found.controller,
                epoch=found.master_epoch,
            ),
            Text(
                "restore its folder, or run: aerobee controller rebuild %(name)s -a %(controller)s",
                name=name,
                controller=found.controller,
            ),
            Severity.ERROR,
        )
    elif found.master_id is None:
        inside = ", ".join(str(one.broker_id) for one in found.members if one.is_in_set)
        yield Finding(
            where,
            Text(
                "it has no master: no live broker has every acknowledged message (%(inside)s had)",
                inside=inside,
            ),
            Text("start one of these again"),
            Severity.ERROR,
        )
    for one in found.members:
        if not one.is_alive:
            yield Finding(
                where,
                Text(
                    "member %(id)s at %(address)s sends no heartbeats",
                    id=one.broker_id,
                    address=one.address,
                ),
                Text("start it, or remove it with mqadmin cleanBrokerMetadata"),
            )
        elif not one.is_in_set:
            yield Finding(
                where,
                Text(
                    "member %(id)s at %(address)s is not in the sync state set, so it can't "
                    "become the master",
                    id=one.broker_id,
                    address=one.address,
                ),
                Text("wait until it has caught up, or look into its log"),
            )


def no_controller(name: str, wrong: Exception) -> Finding:
    """A broker name in controller mode whose controllers don't answer."""
    return Finding(
        Text("broker %(name)s", name=name),
        Text("its controllers: %(wrong)s", wrong=wrong),
        Text("start the controllers"),
        Severity.ERROR,
    )


def slaves_needed(settings: Mapping[str, str]) -> int:
    """The number of slaves that a master waits for before it acknowledges a send."""
    if settings.get("brokerRole") != "SYNC_MASTER":
        return 0
    return max(0, int(_number(settings, "inSyncReplicas", 1)) - 1)


def of_slaves(
    name: str, settings: Mapping[str, str], registered: int, info: HARuntimeInfo
) -> Iterator[Finding]:
    """A master's report on its slaves, compared with the number of registered ones."""
    where, following = Text("broker %(name)s", name=name), len(info.ha_connection_info)
    needed = slaves_needed(settings)
    if following < needed:
        yield Finding(
            where,
            Text(
                "it waits for %(needed)s of its slaves and %(following)s follow it, so sends are "
                "answered FLUSH_SLAVE_TIMEOUT",
                needed=needed,
                following=following,
            ),
            Text("start its slaves, or lower inSyncReplicas"),
        )
    elif following < registered:
        yield Finding(
            where,
            Text(
                "%(following)s of its %(registered)s slaves follow its log",
                following=following,
                registered=registered,
            ),
            Text("look into the logs of the others"),
        )
    for slave in info.ha_connection_info:
        if not slave.in_sync:
            yield Finding(
                where,
                Text(
                    "its slave at %(address)s is %(count)s bytes behind",
                    address=slave.addr,
                    count=f"{slave.diff:,}",
                ),
                Text("see what holds the slave up, its disk or the network"),
            )


def of_topic(
    name: str, queues: Iterable[QueueData], stats: TopicStatsTable, readers: Iterable[str]
) -> Iterator[Finding]:
    """Messages of a topic that can't be read, or that no group reads. `readers` are groups."""
    where = Text("topic %(name)s", name=name)
    read = {data.broker_name: data.read_queue_nums for data in queues}
    for data in queues:
        if not data.perm & PERM_READ:
            yield Finding(
                where,
                Text(
                    "it can't be read on broker %(broker)s: its permission is %(perm)s",
                    broker=data.broker_name,
                    perm=data.perm,
                ),
                Text("set it to %(perm)s", perm=PERM_READ | PERM_WRITE),
                cure=Cure("topic-update", "topic"),
            )
    hidden = sum(
        one.max_offset - max(0, one.min_offset)
        for queue, one in stats.offset_table.items()
        if queue.queue_id >= read.get(queue.broker_name, 0) > 0
    )
    if hidden:
        yield Finding(
            where,
            Text(
                "%(messages)s in queues that are no longer read",
                messages=counted(hidden, "1 message is", "%(count)s messages are"),
            ),
            Text("raise its read queues to its write queues until they are consumed"),
        )
    stored = sum(one.max_offset - max(0, one.min_offset) for one in stats.offset_table.values())
    if name.startswith(DLQ_PREFIX):
        if stored:
            yield dead_letters(name.removeprefix(DLQ_PREFIX), stored)
    elif stored and not any(readers) and not name.startswith(RETRY_PREFIX):
        yield Finding(
            where,
            Text("it has %(messages)s, and no group has ever read it", messages=_messages(stored)),
            Text(
                "start a consumer before they are deleted, unless they are read without a group "
                "(broadcasting, `aerobee sub`)"
            ),
            Severity.NOTE,
        )


def dead_letters(group: str, count: int) -> Finding:
    """Messages that a group gave up."""
    return Finding(
        Text("group %(name)s", name=group),
        Text("%(messages)s failed until it gave up", messages=_messages(count)),
        Text(
            "see what is wrong with `aerobee dlq show %(group)s`, and send them again with "
            "`aerobee dlq resend %(group)s`",
            group=group,
        ),
        cure=Cure("redrive", "group"),
    )


def nobody_online(group: str, count: int) -> Finding:
    """Messages that wait for a group without members: no member tells its filter."""
    do = Text("start its consumers before they are deleted, or delete the group")
    if group == SPARK_GROUP:  # its queries have no members
        do = Text(
            "run its query on, or delete the group if it has ended: Spark commits a "
            "micro-batch with the next one"
        )
    what = Text("it has no member online, and %(wait)s for it", wait=_wait_at_most(count))
    return Finding(Text("group %(name)s", name=group), what, do)


def of_retention(
    name: str, attributes: Mapping[str, str], settings: Mapping[str, str], broker: str
) -> Iterator[Finding]:
    """The cost of a topic that keeps its messages longer than its broker keeps others."""
    keep_hours = _number(attributes, RETENTION_MS, 0) / HOUR_MS
    others_hours = _number(settings, "fileReservedTime", KEEP_HOURS)
    if keep_hours > others_hours:
        yield Finding(
            Text("topic %(name)s", name=name),
            Text(
                "its retention.ms is %(hours)s hours, and broker %(broker)s keeps other topics for "
                "%(others)s: each file of the log that has a message of it stays that long, with "
                "the messages of all topics",
                hours=f"{keep_hours:,.0f}",
                broker=broker,
                others=f"{others_hours:,.0f}",
            ),
            Text("give such topics a broker of their own, or have the disk for all topics"),
            Severity.NOTE,
            Cure("topic-update", "topic"),
        )


def of_group(
    name: str,
    config: SubscriptionGroupConfig,
    online: ConsumerConnection | None,
    progress: ConsumeStats,
    topics: Mapping[str, TopicStatsTable],
) -> Iterator[Finding]:
    """Messages that a group doesn't receive: it is disabled, offline, or too far behind."""
    where = Text("group %(name)s", name=name)
    behind: dict[str, int] = {}
    gone: dict[str, int] = {}
    for queue, one in progress.offset_table.items():
        left = one.broker_offset - one.consumer_offset
        behind[queue.topic] = behind.get(queue.topic, 0) + max(0, left)
        bounds = topics[queue.topic].offset_table.get(queue) if queue.topic in topics else None
        if bounds is not None and 0 < one.consumer_offset < bounds.min_offset:
            missed = bounds.min_offset - one.consumer_offset
            gone[queue.topic] = gone.get(queue.topic, 0) + missed
    for topic, missed in sorted(gone.items()):
        were = counted(
            missed,
            "1 message of topic %(topic)s was",
            "%(count)s messages of topic %(topic)s were",
            topic=topic,
        )
        yield Finding(
            where,
            Text("%(messages)s deleted before it consumed them", messages=were),
            Text("add consumers, or raise fileReservedTime"),
            Severity.ERROR,
        )
    total = sum(behind.values())
    if not config.consume_enable:
        yield Finding(
            where,
            Text("it may not consume (consumeEnable is false), %(wait)s", wait=_wait(total)),
            Text("switch it on when that is over"),
            cure=Cure("group-update", "group"),
        )
    if not total:
        return
    if online is None or not online.connection_set:
        yield nobody_online(name, total)
        return
    for topic, left in sorted(behind.items()):
        if left and topic not in online.subscription_table:
            yield Finding(
                where,
                Text(
                    "%(wait)s in topic %(topic)s, which no member subscribes to any more",
                    wait=_wait_at_most(left),
                    topic=topic,
                ),
                Text("subscribe to it until they are consumed, or reset the group's offset there"),
            )


def _messages(number: int) -> Text:
    return counted(number, "1 message", "%(count)s messages")


def _wait(number: int) -> Text:
    return counted(number, "1 message waits", "%(count)s messages wait")


def _wait_at_most(number: int) -> Text:
    return counted(number, "at most 1 message waits", "at most %(count)s messages wait")


def _number(texts: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(texts[name])
    except (KeyError, ValueError):
        return default
