"""Forgets items of static topics' logical queues that are no longer needed.

It runs at the hours of `deleteWhen`, as in RocketMQ. It removes the first item of a queue that is
led here, once its messages are gone from its broker; and queues that were led here before their
last leader.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.stats import TopicStatsTable
from ...protocol.bodies.topic import TopicConfigAndQueueMapping
from ...protocol.bodies.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from ...protocol.errors import Refusal
from ...protocol.headers.topics import GetTopicConfig, GetTopicStats
from ...protocol.queues.logical_queues import NO_BROKER, leaders
from ...store.base.errors import StoreError
from ...store.engine.store import MessageStore
from ..runtime.forwarding import Forwarding
from ..settings.config import BrokerConfig
from .static_mappings import StaticTopics

log = logging.getLogger(__name__)

PERIOD_SECONDS = 300.0


@dataclass(slots=True, eq=False)
class StaticCleaner:
    """Cleans up the table of static topics. `run` is to be called every `PERIOD_SECONDS`."""

    _config: BrokerConfig
    _store: MessageStore
    _static: StaticTopics
    _forwarding: Forwarding
    _now_ms: Callable[[], int]

    async def run(self) -> None:
        """Check every static topic, if it is the hour for that."""
        hours = map(int, self._config.delete_when.split(";"))
        if not self._static.table or self.hour() not in hours:
            return
        for topic in list(self._static.table):
            for clean in (self._drop_expired, self._drop_superseded):
                if topic not in self._static.table:
                    break
                try:
                    await clean(topic)
                except (Refusal, StoreError, ValueError) as wrong:
                    log.warning("static topic %s is not cleaned up: %s", topic, wrong)

    def hour(self) -> int:
        """The hour of the day by the broker's clock."""
        return time.localtime(self._now_ms() / 1000).tm_hour

    # --- inside ---------------------------------------------------------------------------------

    async def _drop_expired(self, topic: str) -> None:
        """Drop the first item of each queue led here, if its broker has no message of it left."""
        tables: dict[str, TopicStatsTable] = {}
        emptied: dict[int, list[LogicQueueMappingItem]] = {}
        for queue_id in self._static.table[topic].hosted_queues:
            items = self._static.led(topic, queue_id)
            # The next one has to be readable, so that something is.
            if items is None or len(items) < 2 or items[1].logic_offset < 0:
                continue
            if await self._is_empty(topic, items[0], tables):
                emptied[queue_id] = items
        known = self._static.table.get(topic)
        if known is None:
            return
        kept = {
            queue_id: items[1:]
            for queue_id, items in emptied.items()
            if known.hosted_queues.get(queue_id) is items
        }
        if kept:
            self._static.replace_queues(topic, kept)
            log.info("static topic %s: the first item of queues %s is gone", topic, sorted(kept))

    async def _is_empty(
        self, topic: str, item: LogicQueueMappingItem, tables: dict[str, TopicStatsTable]
    ) -> bool:
        broker = item.bname or ""
        if broker == self._static.broker_name:
            most = self._store.max_offset(topic, item.queue_id)
            return most <= 0 or most == self._store.min_offset(topic, item.queue_id)
        table = tables.get(broker)
        if table is None:
            header = GetTopicStats(topic, broker, lo=False)
            text = await self._asked(broker, codes.GET_TOPIC_STATS_INFO, header)
            table = tables[broker] = TopicStatsTable.decode(text)
        found = table.offset_table.get(MessageQueue(topic, broker, item.queue_id))
        return found is not None and found.max_offset in (0, found.min_offset)

    async def _drop_superseded(self, topic: str) -> None:
        """Drop the queues that have moved on since they were moved away from here."""
        detail = self._static.table[topic]
        moved = {
            queue_id: items[-1].bname or ""
            for queue_id, items in detail.hosted_queues.items()
            if items and items[-1].bname != self._static.broker_name
        }
        if not moved:
            return
        route = await self._forwarding.route(topic)
        real = leaders(route.topic_queue_mapping_by_broker or {}).get(detail.scope or "", {})
        there: dict[str, TopicQueueMappingDetail | None] = {}
        gone = []
        for queue_id, broker in moved.items():
            leader = real.get(queue_id, NO_BROKER)
            if leader in (broker, NO_BROKER):
                continue
            if leader not in there:
                there[leader] = await self._mapping_of(topic, leader)
            if _leads(there[leader], queue_id, detail):
                gone.append(queue_id)
        if gone and self._static.table.get(topic) is detail:
            self._static.replace_queues(topic, {queue_id: [] for queue_id in gone})
            log.info("static topic %s: queues %s have moved on", topic, sorted(gone))

    async def _mapping_of(self, topic: str, broker: str) -> TopicQueueMappingDetail | None:
        header = GetTopicConfig(topic, broker, lo=True)
        text = await self._asked(broker, codes.GET_TOPIC_CONFIG, header)
        return TopicConfigAndQueueMapping.decode(text).mapping_detail

    async def _asked(
        self, broker: str, code: int, header: GetTopicConfig | GetTopicStats
    ) -> bytes | None:
        answer = await self._forwarding.request(broker, code, header)
        if answer.code != codes.SUCCESS:
            raise self._forwarding.refusal(broker, code, answer)
        return answer.body


def _leads(
    there: TopicQueueMappingDetail | None, queue_id: int, here: TopicQueueMappingDetail
) -> bool:
    """True if the broker of this mapping says itself that it leads the queue, in the current
    epoch."""
    if there is None or (there.total_queues, there.epoch) != (here.total_queues, here.epoch):
        return False
    items = there.hosted_queues.get(queue_id, [])
    return bool(items) and items[-1].bname == there.bname
