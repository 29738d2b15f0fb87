"""Our own requests for a console: summaries of all topics (900001) and groups (900002), by pages.

A console that knows only RocketMQ's requests asks for the queues of each topic (202) and each
group (208) one by one. Here one page has what its lists show, and is made in slices.
"""

from collections.abc import Generator, Iterable, Iterator
from heapq import merge
from itertools import islice

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.aio.slices import LongResponse, reply_of
from ...protocol.bodies.summaries import (
    GroupSummaries,
    GroupSummary,
    GroupTopicSummary,
    TopicSummaries,
    TopicSummary,
)
from ...protocol.bodies.topic import TopicConfig
from ...protocol.codec import fastjson
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.groups import SummaryPage
from ...protocol.names import DLQ_PREFIX
from ..access import needs
from ..roles.parts import Parts
from ..topics.attributes import MESSAGE_TYPE
from .metrics_lag import is_at_most, lag_of, pairs_of

ROWS_MAX = 1_000  # of one page
NAMES_PER_STEP = 500  # sorted at a time


class SummaryHandlers:
    """Reads the broker's tables; changes nothing."""

    def __init__(self, broker: Parts) -> None:
        self._broker = broker

    def rows(self) -> list[Row]:
        return [
            Row(codes.GET_TOPIC_SUMMARIES, SummaryPage, self.on_topics, needs.OUR_CLUSTER_GET),
            Row(codes.GET_GROUP_SUMMARIES, SummaryPage, self.on_groups, needs.OUR_CLUSTER_GET),
        ]

    def on_topics(
        self, header: SummaryPage, command: Command, connection: Connection
    ) -> LongResponse:
        _check(header)
        return self._broker.slices.respond(self._topics(header))

    def on_groups(
        self, header: SummaryPage, command: Command, connection: Connection
    ) -> LongResponse:
        _check(header)
        return self._broker.slices.respond(self._groups(header))

    # --- inside ---------------------------------------------------------------------------------

    def _topics(self, page: SummaryPage) -> Generator[None, None, Response]:
        broker = self._broker
        names, following = yield from _page(broker.topics.all(), page)
        found: list[TopicSummary] = []
        for name in names:
            config = broker.topics.get(name)
            if config is not None:
                found.append(_topic(broker, name, config))
            yield
        return (yield from _reply("topics", found, TopicSummaries(next=following)))

    def _groups(self, page: SummaryPage) -> Generator[None, None, Response]:
        broker = self._broker
        known = {*broker.groups.all(), *broker.clients.consumer_groups()}
        yield
        names, following = yield from _page(known, page)
        found: list[GroupSummary] = []
        for name in names:
            row = _group(broker, name)
            found.append(row)
            for pair in pairs_of(broker, name):
                lag = lag_of(broker, pair, is_read=False)
                age = lag.latency_ms or (None if lag.messages else 0)
                tps = round(broker.stats.get_tps(pair.read, name), 2)
                row.topics.append(
                    GroupTopicSummary(
                        pair.read,
                        pair.is_retry,
                        lag.messages,
                        lag.in_flight,
                        age,
                        tps,
                        lag.messages > 0 and is_at_most(broker, pair),
                    )
                )
                yield
            yield
        return (yield from _reply("groups", found, GroupSummaries(next=following)))


def _check(header: SummaryPage) -> None:
    if not 0 < header.count <= ROWS_MAX:
        raise Refusal(
            codes.INVALID_PARAMETER,
            f"count is {header.count}; a page has 1 to {ROWS_MAX} rows",
        )


def _page(
    names: Iterable[str], page: SummaryPage
) -> Generator[None, None, tuple[list[str], str | None]]:
    """The names of a page, and the one behind which the next page begins."""
    behind = [name for name in names if name > page.after]
    yield
    parts = []
    for start in range(0, len(behind), NAMES_PER_STEP):
        parts.append(sorted(behind[start : start + NAMES_PER_STEP]))
        yield
    found = list(islice(merge(*parts), page.count))
    return found, found[-1] if len(behind) > len(found) else None


def _reply(
    name: str, rows: list[TopicSummary] | list[GroupSummary], body: TopicSummaries | GroupSummaries
) -> Generator[None, None, Response]:
    tail = b',"next":' + fastjson.dump(body.next) if body.next is not None else b""
    return (yield from reply_of(_pieces(name, rows, tail)))


def _pieces(
    name: str, rows: list[TopicSummary] | list[GroupSummary], tail: bytes
) -> Iterator[bytes]:
    yield b'{"%b":[' % name.encode()
    for number, row in enumerate(rows):
        yield (b"," if number else b"") + row.encode()
    yield b"]" + tail + b"}"


def _topic(broker: Parts, name: str, config: TopicConfig) -> TopicSummary:
    store, messages = broker.store, 0
    first: list[int] = []
    last: list[int] = []
    for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
        least, most = max(0, store.min_offset(name, queue_id)), store.max_offset(name, queue_id)
        if most <= least:
            continue
        messages += most - least
        first.append(store.store_ms_at(name, queue_id, least))
        last.append(store.store_ms_at(name, queue_id, most - 1))
    # A time that is not above 0 is of a message that is being deleted.
    is_known = bool(first) and min(first) > 0 and min(last) > 0
    return TopicSummary(
        name,
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm,
        config.attributes.get(MESSAGE_TYPE),
        messages,
        min(first) if is_known else None,
        max(last) if is_known else None,
        broker.stats.puts(name).messages,
        round(broker.stats.put_tps(name), 2),
    )


def _group(broker: Parts, name: str) -> GroupSummary:
    config, live = broker.groups.get(name), broker.clients.consumer_group(name)
    row = GroupSummary(
        name, None if config is None else config.consume_enable, 0, dead_letters=0, topics=[]
    )
    letters = broker.topics.get(DLQ_PREFIX + name)
    if letters is not None:
        row.dead_letters = _topic(broker, DLQ_PREFIX + name, letters).messages
    if live is not None:
        row.members = len(live.client_ids())
        row.consume_type, row.message_model = live.consume_type, live.message_model
        if live.subscription_check.differs:
            row.differing = live.subscription_check.describe()
    return row
