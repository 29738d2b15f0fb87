"""Samples of a cluster: each broker's runtime info, topics and groups, every ten seconds.

Each broker has a task and a pace of its own, so a dead one costs the others nothing. Our brokers
answer pages of topics and groups. Others are asked for one topic and one group at a time: first
the ones that a visitor asked for, then the ones with the oldest figures.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

from ...client.base.identity import monotonic, now_ms
from ...client.errors import AerobeeError, BrokerError
from ...protocol.bodies.summaries import GroupSummary, GroupTopicSummary, TopicSummary
from ...protocol.names import RETRY_PREFIX
from ..texts import Text, text_of
from .asking import Asking
from .history import History
from .pace import Pace
from .proxies import PORT, SYNCER_GROUP, Proxies, hosts_of
from .samples import (
    BrokerSample,
    GroupRow,
    Timed,
    TimedGroup,
    TopicRow,
    age_of,
    in_turn,
    most,
)
from .tables import Tables

SAMPLE_SECONDS = 10.0
FIRST_SAMPLE_SECONDS = 0.75  # after the start: until then a visitor waits for the first sample
WANTED_MS = 60_000  # how long a topic or group counts as asked for
WANTED_MAX = 1_000
PAGE_ROWS = 1_000  # a page makes the broker scan all names, however short it is
SERIES_PER_STEP = 500  # of histories, between which the loop serves pages
GONE_MS = 3_600_000  # how long a broker that the name servers do not list stays on the pages

Result = TypeVar("Result")

log = logging.getLogger(__name__)


class Collector:
    """The samples of one cluster, while it runs. `wrong` says why the name servers' table of
    brokers, which is from `at_ms`, could not be read last time."""

    def __init__(
        self,
        name: str,
        admin: Asking,
        history: History,
        *,
        proxy_port: int = PORT,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], int] = now_ms,
    ) -> None:
        self.name = name
        self.history = history
        self.brokers: dict[tuple[str, int], BrokerSample] = {}
        self.at_ms: int | None = None
        self.wrong: str | None = None
        self.sampled = asyncio.Event()  # each broker answered or failed once
        self._admin = admin
        self._clock = clock
        self._now = now
        self._paces: dict[str, Pace] = {}
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._main: asyncio.Task[None] | None = None
        self._wanted: dict[str, int] = {}
        self._behind: asyncio.Task[None] | None = None
        self._first_until = 0.0  # by the loop's clock
        self.proxies = Proxies(self._masters, proxy_port, clock)
        self._tables = Tables(self._masters, lambda: self.is_whole, self.proxies.behind)

    def start(self) -> None:
        """Begin to sample."""
        self._first_until = asyncio.get_running_loop().time() + FIRST_SAMPLE_SECONDS
        self._main = asyncio.create_task(self._run(), name=f"console-{self.name}")
        self._behind = asyncio.create_task(self._ask_proxies(), name=f"proxies-{self.name}")

    async def stop(self) -> None:
        """End all tasks."""
        own = filter(None, (self._main, self._behind))
        tasks = [*self._tasks.values(), *own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- reading --------------------------------------------------------------------------------

    async def first_sample(self) -> None:
        """Wait until each broker was sampled once; shortly after the start, not any longer.

        A large cluster takes many seconds, whose visitors get what is known already."""
        if not self.sampled.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._first_until):
                    await self.sampled.wait()

    def want(self, name: str) -> None:
        """Note that a visitor's page asks for this topic or group."""
        self._wanted.pop(name, None)
        self._wanted[name] = self._now()
        while len(self._wanted) > WANTED_MAX:
            del self._wanted[next(iter(self._wanted))]

    def _seen(self) -> set[str]:
        """The topics and groups that a visitor asked for within WANTED_MS."""
        since = self._now() - WANTED_MS
        return {name for name, at_ms in self._wanted.items() if at_ms >= since}

    @property
    def is_whole(self) -> bool:
        """Every master has told its topics and groups once: else sums are not known."""
        return all(one.has_tables for one in self._masters())

    def own_topics(self) -> set[str]:
        """The topics that a cluster makes for itself, of the names of its brokers."""
        brokers = self.brokers.values()
        own = {one.name for one in brokers} | {one.cluster for one in brokers}
        return own | {f"{one.cluster}_REPLY_TOPIC" for one in brokers}

    def topics(self) -> dict[str, TopicRow]:
        """All topics by name, the names in order, as of the last samples."""
        return self._tables.topics

    def groups(self) -> dict[str, GroupRow]:
        """All groups by name, the names in order, as of the last samples."""
        return self._tables.groups

    def pace(self, address: str) -> Pace:
        """The pace of one broker."""
        found = self._paces.get(address)
        if found is None:
            found = self._paces[address] = Pace(self._clock)
        return found

    # --- sampling -------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._find_brokers()
                self.wrong = None
            except AerobeeError as wrong:
                self.wrong = text_of(wrong)
                self.sampled.set()
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _find_brokers(self) -> None:
        info = await self._admin.cluster_info()
        self.at_ms = self._now()
        found = {
            (name, number): (data.cluster or "", address)
            for name, data in info.broker_addr_table.items()
            for number, address in data.broker_addrs.items()
        }
        for key, (cluster, address) in found.items():
            sample = self.brokers.get(key)
            if sample is None or sample.address != address:
                self._drop(key)
                self.brokers[key] = sample = BrokerSample(cluster, *key, address)
                self._tasks[key] = asyncio.create_task(self._follow(sample))
        for key in self.brokers.keys() - found.keys():
            # A broker that stopped leaves the table: its last sample stays for a while, marked.
            broker = self.brokers[key]
            if self.at_ms - (broker.at_ms or 0) > GONE_MS:
                self._drop(key)
                del self.brokers[key]
            elif broker.wrong is None:
                self._missed(broker, Text("the name servers do not list it any more"))
        if not found:
            self.sampled.set()

    def _drop(self, key: tuple[str, int]) -> None:
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    async def _follow(self, broker: BrokerSample) -> None:
        while True:
            until = self._clock() + SAMPLE_SECONDS
            try:
                await self._sample(broker, until)
                broker.wrong = broker.wrong_ms = None
                await self._publish()
                await self._remember(broker)
            except (AerobeeError, OSError) as wrong:
                self._missed(broker, text_of(wrong))
            except Exception as wrong:  # an answer that is nonsense is that broker's fault alone
                log.warning("broker %s at %s: %r", broker.name, broker.address, wrong)
                self._missed(broker, Text("its answer can't be used: %(wrong)s", wrong=wrong))
            if broker.wrong is not None:
                await self._publish()
            await asyncio.sleep(max(0.5, until - self._clock()))

    def _missed(self, broker: BrokerSample, why: str) -> None:
        """Note that a broker does not answer, with the time since when."""
        broker.wrong = why
        if broker.wrong_ms is None:
            broker.wrong_ms = self._now()

    async def _ask_proxies(self) -> None:
        """Ask the proxies about each group in turn, first the ones that a visitor asked for."""
        await self.sampled.wait()
        while True:
            until = self._clock() + SAMPLE_SECONDS
            groups = self.groups() if self.proxies.addresses() else ()
            for name in self.proxies.in_turn(groups, self._seen()):
                pause_s = await self.proxies.sample(self._admin, name)
                self._tables.group(name)
                await asyncio.sleep(pause_s)
                if self._clock() >= until:
                    break
            await asyncio.sleep(max(0.5, until - self._clock()))

    async def _publish(self) -> None:
        """Show the samples of now."""
        await self._tables.refresh()
        if all(one.is_sampled for one in self.brokers.values()):
            self.sampled.set()

    async def _ask(self, broker: BrokerSample, request: Callable[[], Awaitable[Result]]) -> Result:
        return await self.pace(broker.address).ask(request)

    async def _sample(self, broker: BrokerSample, until: float) -> None:
        admin, address = self._admin, broker.address
        broker.runtime = await self._ask(broker, lambda: admin.broker_runtime(address))
        broker.at_ms = self._now()
        key = (broker.name, broker.broker_id)
        self.history.add(("in", *key), broker.at_ms, broker.rate_in)
        self.history.add(("out", *key), broker.at_ms, broker.rate_out)
        if not broker.is_master:
            return
        # A broker may refuse to tell the members of this group; then it is not known.
        with suppress(AerobeeError):
            found = await self._ask(broker, lambda: admin.members_at(address, SYNCER_GROUP))
            broker.proxies = hosts_of(found.connection_set) if found is not None else []
        if not broker.asks_singly:
            broker.asks_singly = not await self._pages(broker)
        if broker.asks_singly:
            await self._names(broker)
            await self._one_by_one(broker, until)

    async def _pages(self, broker: BrokerSample) -> bool:
        """All pages of topics and groups; False where the broker does not know this request."""
        admin, address = self._admin, broker.address
        topics: dict[str, Timed] = {}
        after: str | None = ""
        while after is not None:
            topics_of = partial(admin.topic_summaries, address, after, PAGE_ROWS)
            page = await self._ask(broker, topics_of)
            if page is None:
                return False
            topics |= {one.topic: Timed(self._now(), one) for one in page.topics}
            after = page.next
            if not broker.has_tables:  # the first names, before all are known
                broker.topics = topics
                self._tables.name_topics(one.topic for one in page.topics)
        groups: dict[str, TimedGroup] = {}
        after = ""
        while after is not None:
            groups_of = partial(admin.group_summaries, address, after, PAGE_ROWS)
            found = await self._ask(broker, groups_of)
            if found is None:
                return False
            for one in found.groups:
                one.differing = one.differing or ""  # these brokers compare all members
                groups[one.group] = TimedGroup(self._now(), one)
            after = found.next
            if not broker.has_tables:
                broker.groups = groups
                self._tables.name_groups(one.group for one in found.groups)
        broker.topics, broker.groups, broker.has_tables = topics, groups, True
        return True

    async def _names(self, broker: BrokerSample) -> None:
        """The names of topics and groups first: their figures follow."""
        admin, address = self._admin, broker.address
        configs = await self._ask(broker, lambda: admin.topic_configs(address))
        broker.topics = {
            name: broker.topics.get(name)
            or Timed(
                None,
                TopicSummary(
                    name,
                    config.read_queue_nums,
                    config.write_queue_nums,
                    config.perm,
                    config.attributes.get("message.type"),
                ),
            )
            for name, config in configs.topic_config_table.items()
        }
        wrapper = await self._ask(broker, lambda: admin.groups_at(address))
        broker.groups = {
            name: broker.groups.get(name)
            or TimedGroup(None, GroupSummary(name, config.consume_enable))
            for name, config in wrapper.subscription_group_table.items()
        }
        broker.has_tables = True
        await self._publish()

    async def _one_by_one(self, broker: BrokerSample, until: float) -> None:
        """Sample single topics and groups, as many as the pace allows until `until`.

        The ones that a visitor asked for come first, of these the ones with the oldest figures.
        """
        for is_group, name in in_turn(broker, self._seen()):
            # A topic or a group that is gone meanwhile is no fault of the broker.
            with suppress(AerobeeError):
                if is_group:
                    await self._group(broker, name)
                    self._tables.group(name)
                else:
                    await self._topic(broker, name)
                    self._tables.topic(name)
            if self._clock() >= until:
                return

    async def _topic(self, broker: BrokerSample, name: str) -> None:
        admin, before = self._admin, broker.topics[name].row
        found = await self._ask(broker, lambda: admin.topic_at(broker.address, name))
        queues = found.offset_table.values()
        last_ms = max((one.last_update_timestamp for one in queues), default=0)
        row = TopicSummary(
            name,
            before.read_queues,
            before.write_queues,
            before.perm,
            before.message_type,
            found.messages,
            None,
            last_ms if last_ms > 0 else None,
            None,
            found.topic_put_tps,
        )
        broker.topics[name] = Timed(self._now(), row)

    async def _group(self, broker: BrokerSample, name: str) -> None:
        admin, before = self._admin, broker.groups[name].row
        online = await self._ask(broker, lambda: admin.members_at(broker.address, name))
        row = GroupSummary(name, before.consume_enable, 0, topics=[])
        if online is not None:
            row.members = len(online.connection_set)
            row.consume_type, row.message_model = online.consume_type, online.message_model
        # Such a broker keeps the subscription of the member that came last, so several may differ.
        row.differing = "" if row.members is not None and row.members < 2 else None
        progress = await self._ask(broker, lambda: admin.progress_at(broker.address, name))
        behind: dict[str, dict[int, int]] = {}
        for queue, one in progress.offset_table.items():
            lag = max(0, one.broker_offset - max(0, one.consumer_offset))
            behind.setdefault(queue.topic, {})[queue.queue_id] = lag
        for topic, lags in behind.items():
            is_retry, lag = topic.startswith(RETRY_PREFIX), sum(lags.values())
            age = 0 if lag == 0 else await self._age(broker, topic, name, lags)
            wanted = None if online is None else online.subscription_table.get(topic)
            is_exact = lag == 0 or is_retry or (wanted is not None and wanted.takes_all)
            row.topics.append(
                GroupTopicSummary(topic, is_retry, lag, None, age, lag_is_at_most=not is_exact)
            )
        broker.groups[name] = TimedGroup(self._now(), row)

    async def _age(
        self, broker: BrokerSample, topic: str, group: str, lags: Mapping[int, int]
    ) -> int | None:
        """The age in ms of the first message that a group has not consumed; None: not known.
        `lags` are its messages by queue."""
        try:
            spans = await self._ask(
                broker, lambda: self._admin.spans_at(broker.address, topic, group)
            )
        except BrokerError:
            return None
        ages = [
            age_of(one, self._now()) for one in spans if lags.get(one.message_queue.queue_id, 0) > 0
        ]
        return most(ages)

    async def _remember(self, broker: BrokerSample) -> None:
        """The histories of topics and groups, once for all brokers: at the first master."""
        if not broker.is_master:
            return
        first = min(one.name for one in self._masters() if one.wrong is None or one is broker)
        if broker.name != first:
            return
        at_ms = self._now()
        figures = [
            *((("topic", one.name), one.rate_in) for one in self.topics().values()),
            *((("lag", one.name), one.lag) for one in self.groups().values()),
        ]
        for number, (key, value) in enumerate(figures):
            self.history.add(key, at_ms, value)
            if number % SERIES_PER_STEP == 0:
                await asyncio.sleep(0)

    def _masters(self) -> list[BrokerSample]:
        return [one for one in self.brokers.values() if one.is_master]
