"""A running mirror: which topics and groups it copies, how far it is."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...protocol.bodies.body import MessageQueue
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ..base.identity import now_ms
from ..base.lifecycle import Startable
from ..base.security import OPEN, Security
from ..base.start_from import Start, StartFrom
from ..errors import AerobeeError, BrokerError, ClientError
from ..group.process_queue import name_of
from .groups import GroupCopy
from .kafka import SCHEME, KafkaSource
from .origin import GROUP, progress_group
from .queue_copy import QueueCopy
from .rocketmq import RocketMQSource
from .side import Side
from .source import Source
from .topic_copy import COPIES_AT_ONCE, TopicCopy

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.5  # between two checks of the ends of a topic's queues
CHECKS_PER_SECOND_MAX = 200  # of all topics together
TOPICS_SECONDS = 30.0  # between two searches for new topics and groups
OFFSETS_SECONDS = 5.0  # between two reads of the offsets of the groups
ALL = ".*"  # the pattern of topics, or groups, that fits each


@dataclass(frozen=True, slots=True)
class Report:
    """The progress of a mirror.

    `lag` counts the messages that are not copied, with those that can't be; `lag_ms` is the
    age of the last copied message of the queue that is the furthest behind in time, 0 without lag.
    `failures` names what does not go on at present or can't be copied, and why.
    """

    topics: int
    queues: int
    copied: int
    lag: int
    lag_ms: int
    failures: tuple[str, ...]


class Mirror(Startable):
    """Copies the topics and groups whose names match, from `source` to `target` (name servers).
    `source` may also be "kafka://host:port,host:port", the brokers of a Kafka cluster.

    Messages keep body, keys, tags, properties, born time and id. The broker that stores the copy
    writes its own store time, host and offset. Retry and dead letter topics go with their groups.
    Copies of another mirror are left out unless `relay`, so that two mirrors may run in opposite
    directions. `cluster` is the name of the source in the copies; its own cluster names without it.
    `rename` is a regular expression and what stands for each part of a topic's or group's name that
    it fits: ("\\.", "-") copies Kafka's orders.v1 to orders-v1. ClientError for a pattern that is
    no regular expression.
    """

    def __init__(
        self,
        source: str | Iterable[str],
        target: str | Iterable[str],
        *,
        topics: str = ALL,
        groups: str = ALL,
        start: Start = "earliest",
        relay: bool = False,
        cluster: str | None = None,
        rename: tuple[str, str] | None = None,
        source_security: Security = OPEN,
        target_security: Security = OPEN,
    ) -> None:
        self._progress_group = progress_group(target)
        self._from = _source(source, source_security, self._progress_group, relay=relay)
        self._to = Side(target, group=GROUP, security=target_security)
        self._pattern = _pattern("topics", topics)
        self._rename = None if rename is None else _rename(*rename)
        sides = self._from, self._to
        self._groups = GroupCopy(sides, _pattern("groups", groups), self._named)
        self._begin = StartFrom.read(start)
        self._cluster = cluster
        self._topics: dict[str, TopicCopy] = {}
        self._failures: dict[str, str] = {}  # by topic, or what else fails
        self._room = asyncio.Semaphore(COPIES_AT_ONCE)
        self._commits = True
        self._committed: dict[MessageQueue, int] = {}  # of the mirror itself, at the source

    async def start(self) -> None:
        """Connect to both clusters. ClientError when they are one: each message would be copied to
        its own topic."""
        await self._from.start()
        await self._to.start()
        both = await self._from.addresses() & await self._to.addresses()
        if both:
            raise ClientError(
                f"the source and the target are one cluster: both have the broker at {min(both)}, "
                "and every message would be there twice; correct one of the two addresses"
            )
        if self._cluster is None:
            self._cluster = await self._from.name()
        log.info("the progress at the source is that of the group %s", self._progress_group)

    async def close(self) -> None:
        """Close the connections."""
        await self._from.close()
        await self._to.close()

    async def copy_once(self) -> None:
        """Copy all that is there now, then the offsets of the groups."""
        await self._discover_topics()
        await asyncio.gather(*(self._copy(each) for each in list(self._topics.values())))
        await self._copy_offsets()

    async def run(self) -> None:
        """Copy until cancelled. What fails is tried again, and is in the report meanwhile."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_offsets())
            followed: set[str] = set()
            while True:
                await self._discover_topics()
                for name, topic in self._topics.items():
                    if name not in followed:
                        followed.add(name)
                        tasks.create_task(self._follow(topic), name=f"mirror-{name}")
                await asyncio.sleep(TOPICS_SECONDS)

    def report(self) -> Report:
        """The progress of the mirror now."""
        copies = list(self._copies())
        now = now_ms()
        behind = [copy for copy in copies if copy.lag]
        late = [now - copy.store_ms for copy in behind if copy.store_ms]
        failures = [f"{name}: {why}" for name, why in self._failures.items()]
        failures += [
            f"{name_of(copy.source)}: {failure}" for copy in copies for failure in copy.failures
        ]
        return Report(
            len(self._topics),
            len(copies),
            sum(copy.copied for copy in copies),
            sum(copy.lag for copy in copies) + sum(one.waiting for one in self._topics.values()),
            max(late, default=0),
            tuple(failures),
        )

    # --- inside ---------------------------------------------------------------------------------

    def _copies(self) -> Iterator[QueueCopy]:
        for topic in self._topics.values():
            yield from topic.queues.values()

    def _matches(self, topic: str) -> bool:
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            if topic.startswith(prefix):
                return self._groups.matches(topic.removeprefix(prefix))
        return self._pattern.fullmatch(topic) is not None

    def _named(self, name: str) -> str:
        """The name at the target of a topic or group."""
        if self._rename is None:
            return name
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            if name.startswith(prefix):
                return prefix + self._rename(name.removeprefix(prefix))
        return self._rename(name)

    async def _discover_topics(self) -> None:
        assert self._cluster is not None
        with self._reported("looking for topics and groups"):
            names = await self._from.topics()
            taken = {each.target: name for name, each in self._topics.items()}
            doubled = []
            for name in names:
                if name in self._topics or not self._matches(name):
                    continue
                target = self._named(name)
                if target in taken:
                    doubled.append(
                        f"the copies of {taken[target]} and {name} would both be {target}; rename "
                        "them otherwise"
                    )
                    continue
                sides = (self._from, self._to)
                self._topics[name] = TopicCopy(sides, name, target, self._cluster, self._begin)
                taken[target] = name
            if doubled:
                raise ClientError(doubled[0])
            await self._groups.copy_settings()
            if self._pattern.pattern != ALL and not any(map(self._pattern.fullmatch, names)):
                raise ClientError(
                    f"none of the {len(names)} topics of the source fits {self._pattern.pattern}"
                )

    async def _follow(self, topic: TopicCopy) -> None:
        while True:
            await self._copy(topic)
            await asyncio.sleep(max(CHECK_SECONDS, len(self._topics) / CHECKS_PER_SECOND_MAX))

    async def _copy(self, topic: TopicCopy) -> None:
        with self._reported(f"topic {topic.topic}"):
            await topic.find_ends()
            await topic.catch_up(self._room)

    async def _follow_offsets(self) -> None:
        while True:
            await asyncio.sleep(OFFSETS_SECONDS)
            await self._copy_offsets()

    async def _copy_offsets(self) -> None:
        with self._reported("copying offsets"):
            await self._groups.copy_offsets({copy.source: copy for copy in self._copies()})
            await self._commit()

    async def _commit(self) -> None:
        """The mirror's own progress at the source, for tools that show the lag of groups."""
        if not self._commits:
            return
        moved = {
            copy.source: copy.offset
            for copy in self._copies()
            if copy.copied and copy.offset != self._committed.get(copy.source)
        }
        try:
            if moved:
                await self._from.commit(moved)
                self._committed |= moved
        except BrokerError as wrong:
            self._commits = False
            log.warning("the source does not keep the progress of the mirror: %s", wrong)

    @contextmanager
    def _reported(self, what: str) -> Iterator[None]:
        """An error inside is in the report, until the same work succeeds."""
        try:
            yield
        except Exception as wrong:
            if self._failures.get(what) != str(wrong):
                is_ours = not isinstance(wrong, AerobeeError)
                log.warning("%s: %s", what, wrong, exc_info=wrong if is_ours else None)
            self._failures[what] = str(wrong)
        else:
            self._failures.pop(what, None)


def _source(
    addresses: str | Iterable[str], security: Security, group: str, *, relay: bool
) -> Source:
    if isinstance(addresses, str) and addresses.startswith(SCHEME):
        return KafkaSource(addresses.removeprefix(SCHEME), security, group)
    return RocketMQSource(Side(addresses, group=GROUP, security=security), group, relay=relay)


def _rename(pattern: str, text: str) -> Callable[[str], str]:
    compiled = _pattern("rename", pattern)
    try:
        compiled.sub(text, "")
    except (re.error, IndexError) as wrong:
        raise ClientError(f"rename puts {text!r} in, which can't be: {wrong}") from None
    return lambda name: compiled.sub(text, name)


def _pattern(name: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as wrong:
        raise ClientError(f"{name} is {text!r}, which is no regular expression: {wrong}") from None
