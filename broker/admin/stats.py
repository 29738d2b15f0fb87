"""Requests about how far and how fast: 208, 303, 315, 317."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.aio.slices import LongResponse, Slices, reply_of
from ...protocol.bodies.body import MessageQueue, filled
from ...protocol.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from ...protocol.codec import fastjson
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers import groups as headers
from ...protocol.headers.topics import QueryConsumeTimeSpan
from ...store.engine.store import MessageStore
from ..access import needs
from ..groups.clients import Clients
from ..groups.groups import Groups
from ..groups.offsets import Offsets
from ..runtime.stats import SEPARATOR, Stats
from ..topics.topics import Topics

# Not counted: the store knows how many messages a queue got in some time.
QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"
SPANS_MS = (60_000, 3_600_000, 86_400_000)


@dataclass(slots=True, eq=False)
class AdminStatsHandlers:
    """Compares the store with the groups' progress. `broker_name` and `address` are this broker's,
    as clients see it."""

    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: Offsets
    clients: Clients
    stats: Stats
    _: KW_ONLY
    broker_name: str
    address: str
    now_ms: Callable[[], int]
    slices: Slices

    def rows(self) -> list[Row]:
        return [
            Row(
                codes.GET_CONSUME_STATS,
                headers.ConsumeStats,
                self.on_consume_stats,
                needs.CONSUMERS_OF_TOPICS_GET,
            ),
            Row(
                codes.GET_BROKER_CONSUME_STATS,
                headers.BrokerConsumeStats,
                self.on_all,
                needs.CLUSTER_GET,
            ),
            Row(
                codes.QUERY_CONSUME_TIME_SPAN,
                QueryConsumeTimeSpan,
                self.on_time_span,
                needs.GROUP_IN_TOPIC_GET,
            ),
            Row(codes.VIEW_BROKER_STATS_DATA, headers.StatsData, self.on_item, needs.CLUSTER_GET),
        ]

    def on_consume_stats(
        self, header: headers.ConsumeStats, command: Command, connection: Connection
    ) -> LongResponse:
        group = header.group
        if header.topics:
            names: Iterable[str] = filter(None, header.topics.split(";"))
        else:
            named = (header.topic or "").strip()
            names = self._subscribed(group, [named] if named else self.offsets.topics_of(group))
        return self.slices.respond(self._consume_stats(group, sorted(set(names))))

    def on_all(
        self, header: headers.BrokerConsumeStats, command: Command, connection: Connection
    ) -> LongResponse:
        found = ConsumeStatsList(broker_addr=self.address)
        groups = self._all_groups(header.order, found)
        return self.slices.respond(reply_of(filled(found, "consumeStatsList", groups)))

    def on_time_span(
        self, header: QueryConsumeTimeSpan, command: Command, connection: Connection
    ) -> LongResponse:
        config = self.topics.get(header.topic)
        if config is None:
            raise Refusal(codes.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist; create it")
        spans = (
            self._span(header.topic, header.group, queue_id).encode()
            for queue_id in range(config.write_queue_nums)
        )
        found = filled(QueryConsumeTimeSpanBody(), "consumeTimeSpanSet", spans)
        return self.slices.respond(reply_of(found))

    def on_item(
        self, header: headers.StatsData, command: Command, connection: Connection
    ) -> Response:
        name, key = header.name, header.key
        found = self._queue_puts(key) if name == QUEUE_PUT_NUMS else self.stats.item(name, key)
        if found is None:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"The stats <{name}> <{key}> not exist: nothing was counted there since the start",
            )
        return Response(codes.SUCCESS, body=found.encode())

    # --- inside ---------------------------------------------------------------------------------

    def _queue_puts(self, key: str) -> BrokerStatsData | None:
        """Messages that came into one queue, "topic@queueId"; None when it is empty."""
        topic, _, number = key.rpartition(SEPARATOR)
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            return None
        queue_id, now_ms, store = int(number), self.now_ms(), self.store
        most = store.max_offset(topic, queue_id)
        if most <= 0:
            return None
        items = []
        for span_ms in SPANS_MS:
            count = most - max(0, store.offset_at(topic, queue_id, now_ms - span_ms, False))
            items.append(BrokerStatsItem(count, count / (span_ms / 1000), 1.0 if count else 0.0))
        return BrokerStatsData(*items)

    def _subscribed(self, group: str, names: list[str]) -> list[str]:
        """The topics, without the ones to which an online group does not subscribe."""
        live = self.clients.consumer_group(group)
        if live is None or not live.subscriptions:
            return names
        return [name for name in names if live.reads(name)]

    def _consume_stats(self, group: str, topics: list[str]) -> Generator[object, None, Response]:
        """The steps of the answer to 208: the rate of all topics stands before their queues."""
        found = ConsumeStats()
        for topic in topics:
            if self.topics.get(topic) is not None:
                found.consume_tps += self.stats.get_tps(topic, group)
            yield None
        queues = (
            fastjson.dump({queue: at})[1:-1]
            for topic in topics
            if (config := self.topics.get(topic)) is not None
            for queue, at in self._progress_of_items(topic, group, config.read_queue_nums)
        )
        return (yield from reply_of(filled(found, "offsetTable", queues)))

    def _all_groups(self, only_in_order: bool, totals: ConsumeStatsList) -> Iterator[bytes]:
        """The entry of each group in the answer to 317; the differences are added to `totals`."""
        for group in self.groups.all():
            each = []
            for name in self._subscribed(group, self.offsets.topics_of(group)):
                config = self.topics.get(name)
                if config is None or (only_in_order and not config.order):
                    continue
                queues = []
                for queue, at in self._progress(name, group, config.write_queue_nums):
                    totals.total_diff += at.broker_offset - at.consumer_offset
                    totals.total_inflight_diff += at.pull_offset - at.consumer_offset
                    queues.append(fastjson.dump({queue: at})[1:-1])
                    yield b""
                stats = ConsumeStats(consume_tps=self.stats.get_tps(name, group))
                each.append(b"".join(filled(stats, "offsetTable", queues)))
            yield b"{%b:[%b]}" % (fastjson.dump(group), b",".join(each))

    def _progress_of_items(
        self, topic: str, group: str, queues: int
    ) -> Iterator[tuple[MessageQueue, OffsetWrapper]]:
        """The same with -1 for a queue of a static topic that has no progress: it is no queue at 0,
        as the progress is in an older item of its mapping."""
        is_static = topic in self.topics.static.table
        for queue, at in self._progress(topic, group, queues):
            if is_static and self.offsets.get(topic, group, queue.queue_id) < 0:
                at.consumer_offset = -1
            yield queue, at

    def _progress(
        self, topic: str, group: str, queues: int
    ) -> Iterator[tuple[MessageQueue, OffsetWrapper]]:
        """The progress of a group in each queue of a topic."""
        for queue_id in range(queues):
            consumed = max(0, self.offsets.get(topic, group, queue_id))
            last_ms = 0
            if consumed > 0:
                last_ms = max(0, self.store.store_ms_at(topic, queue_id, consumed - 1))
            yield (
                MessageQueue(topic, self.broker_name, queue_id),
                OffsetWrapper(
                    max(0, self.store.max_offset(topic, queue_id)),
                    consumed,
                    max(consumed, self.offsets.pull_offset(topic, group, queue_id)),
                    last_ms,
                ),
            )

    def _span(self, topic: str, group: str, queue_id: int) -> QueueTimeSpan:
        store = self.store
        most = store.max_offset(topic, queue_id)
        consumed = self.offsets.get(topic, group, queue_id)
        least_ms = store.earliest_store_ms(topic, queue_id)
        most_ms = store.store_ms_at(topic, queue_id, most - 1) if most > 0 else -1
        consumed_ms = least_ms
        if consumed > 0:
            consumed_ms = store.store_ms_at(topic, queue_id, consumed - 1)
        delay_ms = 0
        next_offset = max(0, consumed, store.min_offset(topic, queue_id))
        if next_offset < most:
            delay_ms = self.now_ms() - store.store_ms_at(topic, queue_id, next_offset)
        return QueueTimeSpan(
            MessageQueue(topic, self.broker_name, queue_id),
            least_ms,
            most_ms,
            consumed_ms,
            delay_ms,
            *map(_local_time, (least_ms, most_ms, consumed_ms)),
        )


def _local_time(at_ms: int) -> str:
    """A time as Java's tools print it, in the server's time zone."""
    moment = time.localtime(at_ms // 1000)
    return time.strftime("%Y-%m-%d#%H:%M:%S", moment) + f":{at_ms % 1000:03d}"
