"""Taking messages out of queues for a pop.

A pop reads the queues of a topic, beginning with a random one, and the group's retry topic. The
retry topic comes first in popFromRetryProbability percent of the pops; in the others it comes last,
if there is room left. The messages taken from one queue form a check point (`checkpoints`) or, in
an ordered pop, a batch (`orders`). The group's next pop of that queue continues behind them.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct

from ...protocol.bodies.topic import TopicConfig
from ...protocol.headers.pop import PopMessage
from ...protocol.message import properties
from ...protocol.message.pop_handles import (
    ORDER_REVIVE_QUEUE,
    handle,
    msg_offset_info,
    order_count_info,
    retry_flag,
    retry_topic,
    start_offset_info,
)
from ...protocol.message.record import QUEUE_OFFSET_AT, decode_record, encode_record
from ...store.base import status
from ...store.base.errors import StoreError
from ...store.base.kernels import Buffer
from ...store.engine.store import Found, MessageStore
from ...store.queues.consume_queue import ENTRY_BYTES
from ..filters.matching import Wanted, scan_matching
from ..groups.offsets import Offsets
from ..runtime.stats import Stats
from ..settings.config import BrokerConfig
from ..topics.topics import Topics
from .buffer import PopBuffer
from .checkpoints import CheckPoint
from .counters import PopMeters
from .orders import PopOrders

BYTES_MAX = 256 << 10  # from one queue in one pop; a single message may be larger
RESPONSE_BYTES_MAX = 15 << 20  # of messages: with its header a response must fit into a frame
FROM_START = 0  # initMode MIN
READS_MAX = 16  # reads of one queue in one pop while no message matches

_SIZE = Struct(">i")
_QUEUE_OFFSET = Struct(">q")
_WRONG_OFFSET = (status.OFFSET_TOO_SMALL, status.OFFSET_OVERFLOW_BADLY, status.OFFSET_FOUND_NULL)
_SKIPPED = (status.NO_MATCHED_MESSAGE, status.MESSAGE_WAS_REMOVING)


@dataclass(slots=True)
class Popped:
    """The result of a pop. `rest`: how many more messages there are; `again`: queues in which the
    search for matching messages did not reach the end."""

    pop_ms: int
    revive_queue_id: int
    rest: int = 0
    count: int = 0
    size: int = 0
    records: list[Buffer] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    offsets: list[str] = field(default_factory=list)
    counts: list[str] = field(default_factory=list)
    again: list[tuple[str, int]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Pops:
    """Takes messages out of queues."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: Topics
    _offsets: Offsets
    _buffer: PopBuffer
    _orders: PopOrders
    _stats: Stats
    _meters: PopMeters
    _next_revive: int = field(init=False, default=0)  # counts up; modulo the revive queues

    def pop(self, header: PopMessage, topic: TopicConfig, wanted: Wanted, now_ms: int) -> Popped:
        """Take up to `header.max_messages` messages. StoreError when none could be taken because
        the store failed."""
        if header.order:
            found = Popped(now_ms, ORDER_REVIVE_QUEUE)
        else:
            found = Popped(now_ms, self._next_revive % self._config.revive_queue_num)
            self._next_revive += 1
        chance = random.randrange(100)  # noqa: S311 - no secret
        retries = None if header.order else self._retry_topic(header, chance)
        try:
            self._pop_all(found, header, topic, retries, chance, wanted)
        except StoreError:
            if not found.count:
                raise  # else the messages taken before are delivered
        return found

    def has_message(
        self, topic: str, group: str, queue_id: int, *, order: bool, attempt_id: str | None
    ) -> bool:
        """True if a queue, or any queue of the topic for queue id -1, or a retry topic has messages
        to pop."""
        numbers = self._queues(topic) if queue_id < 0 else [queue_id]
        for number in numbers:
            is_blocked = order and self._orders.is_blocked((topic, group, number), attempt_id)
            if not is_blocked and self._has_more(topic, group, number):
                return True
        return any(
            self._has_more(name, group, number)
            for name in self.retry_topics(topic, group)
            for number in self._queues(name)
        )

    def retry_topics(self, topic: str, group: str) -> list[str]:
        """The names that the group's retry topic may have, whether or not it exists."""
        if not self._config.enable_retry_topic_v2:
            return [retry_topic(topic, group)]
        names = [retry_topic(topic, group, v2=True)]
        if self._config.retrieve_message_from_pop_retry_topic_v1:
            names.append(retry_topic(topic, group))
        return names

    # --- inside ---------------------------------------------------------------------------------

    def _retry_topic(self, header: PopMessage, chance: int) -> TopicConfig | None:
        """The retry topic that this pop reads: the first with messages; None without one.

        Where both forms of its name are in use, each comes first in half of the pops. A response
        has messages of one form only, as RocketMQ's have, although the retry flag of the infos
        (1 or 2) tells the forms apart.
        """
        names = self.retry_topics(header.topic, header.group)
        if chance % 2:
            names.reverse()
        for name in names:
            for number in self._queues(name):
                if self._has_more(name, header.group, number):
                    return self._topics.get(name)
        return None

    def _queues(self, topic: str) -> range:
        config = self._topics.get(topic)
        return range(0 if config is None else config.read_queue_nums)

    def _has_more(self, topic: str, group: str, queue_id: int) -> bool:
        """True if a queue has messages that the group may pop now."""
        if self._is_over(topic, group, queue_id):
            return False
        offset = self._buffer.next_offset(topic, group, queue_id)
        if offset < 0:
            offset = max(0, self._store.min_offset(topic, queue_id))
        return self._store.max_offset(topic, queue_id) > offset

    def _is_over(self, topic: str, group: str, queue_id: int) -> bool:
        """True if too many messages of the queue are in flight to the group's consumers."""
        config = self._config
        return config.enable_pop_message_threshold and (
            self._meters.in_flight(topic, group, queue_id) > config.pop_inflight_message_threshold
        )

    def _pop_all(
        self,
        found: Popped,
        header: PopMessage,
        topic: TopicConfig,
        retries: TopicConfig | None,
        chance: int,
        wanted: Wanted,
    ) -> None:
        retries_first = chance < self._config.pop_from_retry_probability
        if retries is not None and retries_first:
            self._pop_topic(found, header, retries, chance, wanted)
        if header.queue_id < 0:
            self._pop_topic(found, header, topic, chance, wanted)
        else:
            self._pop_queue(found, header, header.topic, header.queue_id, wanted)
        if retries is not None and not retries_first and found.count < header.max_messages:
            self._pop_topic(found, header, retries, chance, wanted)

    def _pop_topic(
        self,
        found: Popped,
        header: PopMessage,
        topic: TopicConfig,
        chance: int,
        wanted: Wanted,
    ) -> None:
        name, queues = topic.topic_name or "", topic.read_queue_nums
        for number in range(queues):
            self._pop_queue(found, header, name, (chance + number) % queues, wanted)

    def _pop_queue(
        self,
        found: Popped,
        header: PopMessage,
        topic: str,
        queue_id: int,
        wanted: Wanted,
    ) -> None:
        """Add the messages of one queue to the result."""
        store, group = self._store, header.group
        key = (topic, group, queue_id)
        if self._offsets.resets and self._offsets.take_reset(*key) is not None:
            self._orders.clear(key)
            self._buffer.clear(*key)
            self._meters.clear(*key)
        if header.order and self._orders.is_blocked(key, header.attempt_id, header.invisible_ms):
            return
        offset = self._buffer.next_offset(*key)
        if offset < 0:
            offset = self._first_offset(topic, queue_id, header.init_mode)
            self._offsets.commit(*key, offset)
        room = header.max_messages - found.count
        if room <= 0 or self._is_over(*key):
            found.rest += max(0, store.max_offset(topic, queue_id) - offset)
            return
        got = self._read(topic, queue_id, offset, room, wanted)
        if got.status in _WRONG_OFFSET:
            self._buffer.clear(*key)
            self._offsets.commit(*key, got.next_offset)
            offset = got.next_offset
            got = self._read(topic, queue_id, offset, room, wanted)
        reads = 1
        while got.status in _SKIPPED and got.next_offset > offset:
            self._skip(header, key, offset, got.next_offset)
            offset = got.next_offset
            if reads == READS_MAX and offset < got.max_offset:
                found.again.append((topic, queue_id))
                break
            reads += 1
            got = self._read(topic, queue_id, offset, room, wanted)
        if got.status == status.FOUND:
            has_room = not found.count or found.size + got.size <= RESPONSE_BYTES_MAX
            if not has_room or not self._note(found, header, key, offset, got):
                found.rest += got.max_offset - offset
                return
        found.rest += max(0, got.max_offset - got.next_offset)

    def _first_offset(self, topic: str, queue_id: int, init_mode: int) -> int:
        """The offset at which a group that never read this queue begins."""
        store = self._store
        least = max(0, store.min_offset(topic, queue_id))
        if init_mode == FROM_START or retry_flag(topic) != "0":
            return least
        by_memory = self._config.init_pop_offset_by_check_msg_in_mem
        if by_memory and least == 0 and store.in_memory(topic, queue_id, 0):
            return 0
        return max(0, store.max_offset(topic, queue_id) - 1)

    def _read(self, topic: str, queue_id: int, offset: int, room: int, wanted: Wanted) -> Found:
        if wanted is None or isinstance(wanted, frozenset):
            return self._store.get(topic, queue_id, offset, room, BYTES_MAX, wanted)
        entries_max = max(room, self._config.max_filter_message_size // ENTRY_BYTES)
        return scan_matching(
            self._store, topic, queue_id, offset, room, BYTES_MAX, wanted, entries_max
        )

    def _skip(
        self, header: PopMessage, key: tuple[str, str, int], offset: int, next_offset: int
    ) -> None:
        """Move past offsets that have no message for the group."""
        if header.order:
            self._offsets.commit(*key, next_offset)
        else:
            self._buffer.skip(*key, offset, next_offset)

    def _note(
        self,
        found: Popped,
        header: PopMessage,
        key: tuple[str, str, int],
        offset: int,
        got: Found,
    ) -> bool:
        """Record messages as popped and add them to the result; False when they must wait for the
        next pop."""
        topic, group, queue_id = key
        messages: Sequence[int] = range(offset, offset + got.count)
        if got.next_offset - offset != got.count:
            messages = _queue_offsets(got.records)
        retry = retry_flag(topic)
        if header.order:
            counts = self._orders.popped(
                key, messages, found.pop_ms, header.invisible_ms, header.attempt_id
            )
            found.counts.append(order_count_info(retry, queue_id, messages, counts))
            self._offsets.commit(*key, offset)
        else:
            point = CheckPoint(
                topic,
                group,
                queue_id,
                offset,
                found.pop_ms,
                header.invisible_ms,
                found.revive_queue_id,
                messages,
                got.next_offset,
            )
            if not self._buffer.add(point, found.pop_ms):
                return False
            self._stats.check_point(header.topic, group)
            self._meters.popped(topic, group, queue_id, got.count)
        found.starts.append(start_offset_info(retry, queue_id, offset))
        found.offsets.append(msg_offset_info(retry, queue_id, messages))
        if retry != "0" and not self._config.pop_response_return_actual_retry_topic:
            self._retell(found, header, topic, offset, got)
        else:
            found.records += got.records
            found.size += got.size
        found.count += got.count
        gets = self._stats.gets(topic, group)
        for counter in (gets, gets.total):
            counter.messages += got.count
            counter.bytes += got.size
            counter.calls += 1
        self._stats.popped(topic, group, got.count, got.size)
        return True

    def _retell(
        self, found: Popped, header: PopMessage, topic: str, start_offset: int, got: Found
    ) -> None:
        """Add messages of a retry topic under their original topic, each with its handle.

        One without room for its handle keeps the retry topic, from which its client makes it.
        """
        for buffer in got.records:
            at = 0
            while at < len(buffer):
                record = decode_record(buffer, at)
                whole = buffer[at : at + record.size]
                at += record.size
                pairs = record.properties
                pairs.setdefault(
                    properties.POP_CK,
                    handle(
                        start_offset,
                        found.pop_ms,
                        header.invisible_ms,
                        found.revive_queue_id,
                        retry_flag(topic),
                        self._config.broker_name,
                        record.queue_id,
                        record.queue_offset,
                    ),
                )
                text = properties.encode(pairs)
                data: Buffer = whole
                if len(text) <= properties.PROPERTIES_BYTES_MAX:
                    record.topic, record.raw_properties = header.topic, text
                    data = encode_record(record)
                found.records.append(data)
                found.size += len(data)


def _queue_offsets(buffers: list[Buffer]) -> list[int]:
    """The queue offsets of the records in these buffers."""
    offsets = []
    for buffer in buffers:
        at = 0
        while at < len(buffer):
            offsets.append(_QUEUE_OFFSET.unpack_from(buffer, at + QUEUE_OFFSET_AT)[0])
            at += _SIZE.unpack_from(buffer, at)[0]
    return offsets
