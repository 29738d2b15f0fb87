"""How a timer message leaves: stored in its own topic, or once more in the wheel's.

The copy has the same body, hosts and birth; its properties say when it came into the wheel and when
it left.
"""

import logging
from collections.abc import Callable

from ..protocol import properties
from ..protocol.errors import Refusal
from ..protocol.names import check_topic
from ..protocol.record import Record
from ..store.errors import MessageTooLarge
from ..store.store import MessageStore
from ..store.writing import raw_tags_code
from .real_place import number_of
from .timer_state import QUEUE, WHEEL_TOPIC
from .topics import QUEUES_MAX, TOPICS_MAX

log = logging.getLogger(__name__)

NEVER_IN_WHEEL = (1 << 63) - 1  # TIMER_ENQUEUE_MS of what was due before it could be put there
MARKS = (properties.TIMER_ENQUEUE_MS, properties.TIMER_DEQUEUE_MS, properties.TIMER_ROLL_TIMES)
DEQUEUE_MS = properties.TIMER_DEQUEUE_MS.encode()
RECALL_KEY = properties.TIMER_DEL_UNIQKEY.encode()


class TimerDelivery:
    """Stores the copies. `mark((topic, queue))` says that a message was delivered."""

    def __init__(self, store: MessageStore, mark: Callable[[tuple[str, int]], None]) -> None:
        self._store = store
        self._mark = mark
        self._legal_topics: set[str] = set()

    def deliver(
        self,
        record: Record,
        topic: str,
        queue_id: int,
        now_ms: int,
        written_ms: int,
        *,
        rolled: bool,
    ) -> bool:
        """Store a message where it belongs, or with `rolled` in the wheel's topic; whether it did.

        StoreError when the disk takes nothing.
        """
        raw = record.raw_properties
        if rolled:
            topic, queue_id = WHEEL_TOPIC, QUEUE
        elif RECALL_KEY in raw and properties.find(raw, RECALL_KEY) is not None:
            return False  # there is nothing left that it could take back
        elif not self._is_place(topic, queue_id):
            log.error(
                "the timer message at %d names topic %.200r and queue %d, which can't be; it is "
                "left alone", record.log_offset, topic, queue_id,
            )  # fmt: skip
            return False
        marks = f"TIMER_ENQUEUE_MS\x01{written_ms}\x02TIMER_DEQUEUE_MS\x01{now_ms}\x02"
        marked = raw if raw.endswith(b"\x02") else raw + b"\x02"
        if rolled or DEQUEUE_MS in raw:  # it has gone around, or goes now
            pairs = properties.decode(raw)
            times = number_of((pairs.get(properties.TIMER_ROLL_TIMES) or "").encode(), 0) + rolled
            for name in MARKS:
                pairs.pop(name, None)
            marked = properties.encode(pairs)
            marks += f"{properties.TIMER_ROLL_TIMES}\x01{times}\x02" if times else ""
        tags = raw_tags_code(raw)
        try:
            self._put(topic, queue_id, record, marked + marks.encode(), tags)
        except MessageTooLarge:  # by these marks; as it came in it is not
            self._put(topic, queue_id, record, raw, tags)
        return True

    def _is_place(self, topic: str, queue_id: int) -> bool:
        """Whether a message may go there: anybody can write properties into the wheel's topic."""
        if topic not in self._legal_topics:
            try:
                check_topic(topic)
            except Refusal:
                return False
            if len(self._legal_topics) >= TOPICS_MAX:
                self._legal_topics.clear()
            self._legal_topics.add(topic)
        return 0 <= queue_id < QUEUES_MAX

    def _put(self, topic: str, queue_id: int, record: Record, raw: bytes, tags: int) -> None:
        try:
            self._store.put(
                topic, queue_id, record.flag, record.sys_flag, record.born_ms, record.born_host,
                record.body, raw, tags, record.reconsume_times,
            )  # fmt: skip
        except MessageTooLarge as wrong:
            if raw is not record.raw_properties:
                raise
            log.error("the timer message at %d stays where it is: %s", record.log_offset, wrong)
            return
        self._mark((topic, queue_id))


def recall_key(record: Record) -> str:
    """What a recall of this message names it by."""
    pairs = properties.decode(record.raw_properties)
    return f"{pairs.get(properties.REAL_TOPIC)}+{pairs.get(properties.UNIQ_KEY)}"
