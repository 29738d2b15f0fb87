"""Delivery of a timer message: from the wheel's topic, where it waits for its time, into its own
topic, or once more into the wheel's.

The copy has the same body, hosts and birth; its properties say when it entered the wheel and when
it left.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from ...protocol.errors import Refusal
from ...protocol.message import properties
from ...protocol.message.record import Record, decode_record
from ...protocol.message.tags import raw_tags_code
from ...protocol.names import SEND_FORBIDDEN_TOPICS, check_topic
from ...store.base.errors import MessageTooLarge, StoreError
from ...store.engine.messages import Message
from ...store.engine.store import MessageStore
from ...store.timer.timer_log import QUEUE, WHEEL_TOPIC
from ..runtime.stats import Stats
from ..topics.topics import QUEUES_MAX, TOPICS_MAX
from .real_destination import number_of, real_place

log = logging.getLogger(__name__)

BYTES_PER_STEP = 256 << 10  # of large messages that are read in one step


def waiting_message(store: MessageStore, place: int, length: int) -> Record | None:
    """The message of the wheel's topic at this place; None, logged, when there is none."""
    data = store.message_at(place)
    if data is not None and len(data) == length:
        record = decode_record(data)
        if record.topic == WHEEL_TOPIC:
            return record
    log.error("the timer message at %d is not in the log any more", place)
    return None


def timer_ms(record: Record) -> int | None:
    """TIMER_OUT_MS, the slot that a message of the wheel's topic is for; None without one."""
    text = properties.find(record.raw_properties, properties.TIMER_OUT_MS.encode())
    found = number_of(text, -1)
    return None if found < 0 else found


NEVER_IN_WHEEL = (
    1 << 63
) - 1  # TIMER_ENQUEUE_MS of messages that were due before they could enter the wheel
# Topics closed to clients are closed to timers; and in the timer's own topic a message would go
# around for ever.
CLOSED_TOPICS = SEND_FORBIDDEN_TOPICS | {WHEEL_TOPIC}
MARKS = (properties.TIMER_ENQUEUE_MS, properties.TIMER_DEQUEUE_MS, properties.TIMER_ROLL_TIMES)
DEQUEUE_MS = properties.TIMER_DEQUEUE_MS.encode()
RECALL_KEY = properties.TIMER_DEL_UNIQKEY.encode()


Copy = tuple[Message, Record]  # and its original


@dataclass(slots=True, eq=False)
class TimerDelivery:
    """Creates and stores the copies. `mark((topic, queue))` reports a delivered message."""

    _store: MessageStore
    _mark: Callable[[tuple[str, int]], None]
    _stats: Stats
    _legal_topics: set[str] = field(init=False, default_factory=set)

    def put_all(self, copies: list[Copy]) -> tuple[int, StoreError | None]:
        """Store copies in their order: how many are dealt with, and what kept the next from it."""
        done = 0
        while done < len(copies):
            rest = [message for message, _ in copies[done:]]
            found = self._store.put_all(rest, are_moved=True)
            wrong = found[-1]
            stored = len(found) - isinstance(wrong, StoreError)
            self._stats.moved(rest, found)
            for place in dict.fromkeys(message.key for message in rest[:stored]):
                self._mark(place)
            done += stored
            if not isinstance(wrong, StoreError):
                continue
            if not isinstance(wrong, MessageTooLarge):
                return done, wrong
            message, record = copies[done]
            if message.properties is record.raw_properties:
                log.error("the timer message at %d stays where it is: %s", record.log_offset, wrong)
                done += 1
            else:  # by the marks; as it came in it is not
                raw = record.raw_properties
                copies[done] = (_message(record, message.key, raw), record)
        return done, None

    def copy(
        self,
        record: Record,
        topic: str,
        queue_id: int,
        now_ms: int,
        written_ms: int,
        *,
        rolled: bool,
    ) -> Copy | None:
        """The copy of a message for where it belongs, or with `rolled` for the wheel's topic; None
        when there is nothing to deliver."""
        raw = record.raw_properties
        if rolled:
            topic, queue_id = WHEEL_TOPIC, QUEUE
        elif RECALL_KEY in raw and properties.find(raw, RECALL_KEY) is not None:
            return None  # there is nothing left that it could take back
        elif not self._is_place(topic, queue_id):
            log.error(
                "the timer message at %d names topic %.200r and queue %d, which can't be; it is "
                "left alone",
                record.log_offset,
                topic,
                queue_id,
            )
            return None
        else:
            queue_id = self._store.queue_left(topic, queue_id)
        marks = f"TIMER_ENQUEUE_MS\x01{written_ms}\x02TIMER_DEQUEUE_MS\x01{now_ms}\x02"
        marked = properties.ended(raw)
        if rolled or DEQUEUE_MS in raw:  # it has gone around, or goes now
            pairs = properties.decode(raw)
            times = number_of(pairs.get(properties.TIMER_ROLL_TIMES), 0) + rolled
            for name in MARKS:
                pairs.pop(name, None)
            marked = properties.encode(pairs)
            marks += f"{properties.TIMER_ROLL_TIMES}\x01{times}\x02" if times else ""
        return _message(record, (topic, queue_id), marked + marks.encode()), record

    def late_copy(self, place: int, length: int, now_ms: int) -> Copy | None:
        """The copy of a message that comes out of the queue after its slot; None when there is
        nothing to deliver."""
        record = waiting_message(self._store, place, length)
        if record is None:
            return None
        topic, queue_id = real_place(record.raw_properties)
        return self.copy(record, topic, queue_id, now_ms, NEVER_IN_WHEEL, rolled=False)

    def _is_place(self, topic: str, queue_id: int) -> bool:
        """True if a message may go to this queue: clients can write any properties into its
        source."""
        if topic not in self._legal_topics:
            if topic in CLOSED_TOPICS:
                return False
            try:
                check_topic(topic)
            except Refusal:
                return False
            if len(self._legal_topics) >= TOPICS_MAX:
                self._legal_topics.clear()
            self._legal_topics.add(topic)
        return 0 <= queue_id < QUEUES_MAX


def _message(record: Record, place: tuple[str, int], raw: bytes) -> Message:
    """A message as this record has it, with these properties, for another place."""
    tags_code = raw_tags_code(record.raw_properties)
    return Message(
        place,
        record.flag,
        record.sys_flag,
        record.born_ms,
        record.born_host,
        record.body,
        raw,
        tags_code,
        record.reconsume_times,
    )


def recall_key(record: Record) -> str:
    """The key by which a recall names this message."""
    pairs = properties.decode(record.raw_properties)
    return f"{pairs.get(properties.REAL_TOPIC)}+{pairs.get(properties.UNIQ_KEY)}"
