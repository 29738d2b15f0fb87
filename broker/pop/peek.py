"""Peek: the messages that a pop would find; nothing is taken, noted or committed.

Like a pop, a peek goes through the queues of a topic, from a random one on, and through the group's
retry topic: first one time in five, else if there is room left. As in RocketMQ no filter is
applied, and the remaining count starts at the group's offset, so it includes this response.
"""

import random
from dataclasses import dataclass, field

from ...protocol.bodies.topic import TopicConfig
from ...protocol.headers.pop import PeekMessage
from ...protocol.message.pop_handles import retry_topic
from ...store.base import status
from ...store.base.kernels import Buffer
from ...store.engine.store import MessageStore
from ..runtime.stats import Stats
from ..settings.config import BrokerConfig
from ..topics.topics import Topics
from .buffer import PopBuffer
from .take import RESPONSE_BYTES_MAX

RETRIES_FIRST_IN = 5  # one peek in N reads the retry topics first

_WRONG_OFFSET = (status.OFFSET_TOO_SMALL, status.OFFSET_OVERFLOW_BADLY)


@dataclass(slots=True)
class Peeked:
    """The result of a peek: `count` messages in whole records of `size` bytes."""

    rest: int = 0
    count: int = 0
    size: int = 0
    is_full: bool = False
    records: list[Buffer] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Peeks:
    """Finds the messages of a group's next pops."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: Topics
    _buffer: PopBuffer
    _stats: Stats

    def peek(self, header: PeekMessage, topic: TopicConfig) -> Peeked:
        """Up to `header.max_messages` messages, within the size of a response."""
        found = Peeked()
        chance = random.randrange(100)  # noqa: S311 - no secret
        is_v2 = self._config.enable_retry_topic_v2
        retries = self._topics.get(retry_topic(header.topic, header.group, v2=is_v2))
        retries_first = chance % RETRIES_FIRST_IN == 0
        if retries is not None and retries_first:
            self._read_topic(found, header, retries, chance)
        if header.queue_id < 0:
            self._read_topic(found, header, topic, chance)
        else:
            self._read_queue(found, header, header.topic, header.queue_id)
        if retries is not None and not retries_first and found.count < header.max_messages:
            self._read_topic(found, header, retries, chance)
        if found.count:
            gets = self._stats.gets(header.topic, header.group)
            for counter in (gets, gets.total):
                counter.messages += found.count
                counter.bytes += found.size
                counter.calls += 1
        return found

    def _read_topic(
        self, found: Peeked, header: PeekMessage, topic: TopicConfig, chance: int
    ) -> None:
        queues = topic.read_queue_nums
        for number in range(queues):
            self._read_queue(found, header, topic.topic_name or "", (chance + number) % queues)

    def _read_queue(self, found: Peeked, header: PeekMessage, topic: str, queue_id: int) -> None:
        """Add the messages of one queue to the result."""
        store = self._store
        offset = self._buffer.next_offset(topic, header.group, queue_id)
        if offset < 0:
            offset = max(0, store.min_offset(topic, queue_id))
        found.rest += max(0, store.max_offset(topic, queue_id)) - offset
        room = header.max_messages - found.count
        if room <= 0 or found.is_full:
            return
        bytes_max = self._config.max_transfer_bytes_on_message_in_memory
        got = store.get(topic, queue_id, offset, room, bytes_max)
        if got.status in _WRONG_OFFSET:
            got = store.get(topic, queue_id, got.next_offset, room, bytes_max)
        if found.size + got.size > RESPONSE_BYTES_MAX and found.count:
            found.is_full = True
            return
        found.records += got.records
        found.size += got.size
        found.count += got.count
