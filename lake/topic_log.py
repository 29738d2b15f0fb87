"""The queues of topics at their brokers: which offsets they have, and the messages as rows.

Messages come from the broker, or from its files where this machine has them. What a broker gives
as the end of a queue is settled: with SYNC_FLUSH it is on the disk, in controller mode every broker
of the sync state set has it.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from ..client.admin.base import Asking, application_topics
from ..client.base.loop_thread import LoopThread
from ..client.base.responses import header_of
from ..client.base.security import OPEN, Security
from ..client.cluster.queue_bounds import broker_of
from ..client.cluster.route import MessageQueue
from ..client.errors import AerobeeError, BrokerError
from ..client.group.process_queue import name_of
from ..client.pull.reader import Reader
from ..protocol import codes
from ..protocol.bodies.group import SubscriptionGroupConfig
from ..protocol.headers.offsets import OffsetResponse, QueryConsumerOffset, UpdateConsumerOffset
from ..store.base.errors import StoreError
from ..store.columns.view import StoreView
from ..store.log.chunk import Chunk, MessagesGone
from .errors import LakeError
from .rows.columns import Column
from .rows.decode import decode_chunk
from .rows.pull import Pulling, pull_chunks
from .rows.ranges import DataLossError, QueueRange
from .table_schema import COLUMNS

GROUP = "AEROBEE_LAKE"


class Bounds(NamedTuple):
    """A queue has the messages with the offsets [first, end)."""

    first: int
    end: int


class Source(Protocol):
    """The part of `TopicLog` that materializers and readers use."""

    def bounds(self, topic: str) -> tuple[dict[MessageQueue, Bounds], tuple[str, ...]]: ...
    def offsets_at(self, queues: list[MessageQueue], ms: int) -> dict[MessageQueue, int]: ...
    def rows(
        self, wanted: QueueRange, columns: tuple[Column, ...] = COLUMNS
    ) -> Iterator[pa.RecordBatch]: ...
    def move_group(
        self, group: str, offsets: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, str]: ...


class _Client(Reader, Asking):
    """Reads queues, asks which brokers there are, and commits offsets of any group."""

    async def offset_of(self, group: str, queue: MessageQueue) -> int:
        """The offset of a group in a queue; -1 when its broker has none."""
        header = QueryConsumerOffset(group, queue.topic, queue.queue_id, zero_if_missing=False)
        address, code = await broker_of(self._open(), queue), codes.QUERY_CONSUMER_OFFSET
        try:
            answer = await self._open().ask(address, code, header)
        except BrokerError as wrong:
            if wrong.code != codes.QUERY_NOT_FOUND:
                raise
            return -1
        return header_of(answer, OffsetResponse, code).offset

    async def move(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the offset of a group in a queue, and make the group where its broker lacks it."""
        header = UpdateConsumerOffset(group, queue.topic, queue.queue_id, offset)
        address, code = await broker_of(self._open(), queue), codes.UPDATE_CONSUMER_OFFSET
        try:
            await self._ask(address, code, header)
        except BrokerError as wrong:
            if wrong.code != codes.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            made = SubscriptionGroupConfig(group_name=group).encode()
            await self._ask(address, codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=made)
            await self._ask(address, code, header)


class TopicLog:
    """Reads the topics of one cluster, from any thread.

    `stores` are the store folders of brokers on this machine, by the broker's name.
    """

    def __init__(
        self,
        name_server: str | None = None,
        *,
        security: Security = OPEN,
        stores: Mapping[str, Path] | None = None,
    ) -> None:
        self._thread = LoopThread("aerobee-lake")
        self._reader = _Client(name_server, group=GROUP, security=security)
        self._stores = dict(stores or {})
        self._thread.run(self._reader.start())

    def close(self) -> None:
        """Close the connections."""
        self._thread.run(self._reader.close())
        self._thread.close()

    def topics(self) -> list[str]:
        """The names of the applications' topics, sorted: those that a pattern may fit. Topics of
        the system, of its brokers and clusters, of retries and dead letters are left out."""
        return self._thread.run(self._topics())

    def bounds(self, topic: str) -> tuple[dict[MessageQueue, Bounds], tuple[str, ...]]:
        """The queues of a topic, sorted, with the offsets that they have; and for each queue whose
        broker does not answer, why. The error of the client when none answers."""
        return self._thread.run(self._bounds(topic))

    def offsets_at(self, queues: list[MessageQueue], ms: int) -> dict[MessageQueue, int]:
        """The offset in each queue of the first message stored at `ms` or later."""
        return self._thread.run(self._offsets_at(queues, ms))

    def move_group(
        self, group: str, offsets: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, str]:
        """Move the offsets of a consumer group forward to these; for each queue where that fails,
        why."""
        return self._thread.run(self._move_group(group, offsets))

    def rows(
        self, wanted: QueueRange, columns: tuple[Column, ...] = COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        """The messages of a range as rows, in batches of bounded size.

        DataLossError when a part of it is gone.
        """
        store = self._stores.get(wanted.broker_name)
        for chunk in self._pulled(wanted) if store is None else _stored(store, wanted):
            yield decode_chunk(chunk, columns, wanted.broker_name)

    def _pulled(self, wanted: QueueRange) -> Iterator[Chunk]:
        return pull_chunks(self._reader, wanted, Pulling(), self._thread)

    async def _topics(self) -> list[str]:
        return application_topics(await self._reader.topics(), await self._reader.cluster_info())

    async def _bounds(self, topic: str) -> tuple[dict[MessageQueue, Bounds], tuple[str, ...]]:
        queues = await self._reader.queues(topic)

        async def one(queue: MessageQueue) -> Bounds:
            # The end first: what is deleted in between would make the first offset the larger.
            end = await self._reader.max_offset(queue)
            return Bounds(await self._reader.min_offset(queue), end)

        answers = await asyncio.gather(*map(one, queues), return_exceptions=True)
        found, failures = {}, {}
        for queue, answer in zip(queues, answers, strict=True):
            if isinstance(answer, Bounds):
                found[queue] = answer
            elif isinstance(answer, AerobeeError):
                failures[queue] = answer
            else:
                raise answer
        if failures and not found:
            raise next(iter(failures.values()))
        return found, tuple(f"{name_of(queue)}: {why}" for queue, why in failures.items())

    async def _move_group(
        self, group: str, offsets: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, str]:
        failures = {}
        # One after the other: RocketMQ's broker (ConsumerOffsetManager.commitOffset in 5.3.3) loses
        # one of the first two offsets of a group in a topic when both arrive together.
        for queue, offset in offsets.items():
            try:
                if await self._reader.offset_of(group, queue) < offset:
                    await self._reader.move(group, queue, offset)
            except AerobeeError as wrong:
                failures[queue] = f"{name_of(queue)}: offset of group {group}: {wrong}"
        return failures

    async def _offsets_at(self, queues: list[MessageQueue], ms: int) -> dict[MessageQueue, int]:
        found = await asyncio.gather(*(self._reader.offset_at(each, ms) for each in queues))
        return dict(zip(queues, found, strict=True))


def _stored(store: Path, wanted: QueueRange) -> Iterator[Chunk]:
    view, at = _view(store, wanted), wanted.start
    try:
        for chunk in view.chunks(wanted.topic, wanted.queue_id, wanted.start, wanted.end):
            at = chunk.end
            yield chunk
    except MessagesGone as gone:
        raise DataLossError(f"reading {wanted}: {gone}") from None
    except StoreError as wrong:
        raise _no_store(wanted, wrong) from None
    finally:
        view.release()
    if at < wanted.end:
        raise LakeError(
            f"the files in {store} end at offset {at} of queue {wanted.queue_id} of topic "
            f"{wanted.topic}, while broker {wanted.broker_name} has more: the folder is not that "
            "of this broker; correct stores"
        )


def _view(store: Path, wanted: QueueRange) -> StoreView:
    try:
        return StoreView(store, topic=wanted.topic)
    except StoreError as wrong:
        raise _no_store(wanted, wrong) from None


def _no_store(wanted: QueueRange, wrong: StoreError) -> LakeError:
    return LakeError(f"broker {wanted.broker_name} in stores: {wrong}")
