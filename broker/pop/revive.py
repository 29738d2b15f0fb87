"""Revival: popped messages that were not acknowledged in time become visible again.

The revive topic is read in order, each queue by itself. Check points collect the acknowledgements
behind them. When a check point has been overdue for a while, and all entries due by then have been
read, its other messages are put into the group's retry topic. One that can't be put there is tried
again later, with a check point of its own: the messages behind it don't wait. The progress in a
queue is the offset of CID_RMQ_SYS_REVIVE_GROUP, which names the last finished entry; it moves once
the messages are on disk. So a crash repeats messages and loses none.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ...protocol import codes
from ...protocol.bodies.pop import BatchAckMsg, PopCheckPoint
from ...protocol.errors import Malformed, Refusal
from ...protocol.message import properties
from ...protocol.message.pop_handles import normal_topic, retry_topic
from ...protocol.message.record import Record, decode_record
from ...protocol.message.tags import tag_hash
from ...protocol.names import RETRY_PREFIX
from ...store.base.errors import IllegalMessage, StoreError
from ...store.engine.messages import Message
from ...store.engine.store import MessageStore
from ...store.timer.timer_log import QUEUE, WHEEL_TOPIC
from ..groups.groups import Groups
from ..groups.offsets import Offsets
from ..runtime.stats import Stats
from ..scheduled.timers import Timers
from ..settings.config import BrokerConfig
from ..topics.topics import Topics
from .checkpoints import CheckPoint, CheckPointKey, from_body
from .counters import ACK, CHECK_POINT, PopMeters
from .revive_log import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    REVIVE_GROUP,
    PopLog,
    revive_topic,
)

log = logging.getLogger(__name__)

LATE_ACK_MS = 2_000  # how long after its time a check point still takes acknowledgements
DUE_AGAIN_MS = 100  # how soon a check point is tried again that waits for the timer
ENTRIES_PER_READ = 32
# Of one queue per round; requests are served between two rounds.
ENTRIES_PER_ROUND = 256
MESSAGES_PER_ROUND = 500
# Until a message that could not come again is tried again: PopReviveService of RocketMQ. The last
# one holds for all later tries.
PUT_BACK_SECONDS = (10, 20, 30, 60, 120, 180, 300, 600, 1_200, 1_800, 3_600, 7_200)
READY_MAX = 100_000  # check points of a queue that wait for their time


@dataclass(slots=True)
class _Queue:
    """The progress in one revive queue; `done` are log ends and the entries done by then."""

    queue_id: int
    next: int = -1
    read_ms: int = 0  # all that was due until then has been read
    points: dict[CheckPointKey, tuple[int, CheckPoint]] = field(default_factory=dict)
    done: deque[tuple[int, int]] = field(default_factory=deque)
    has_failed: bool = False  # the last round


@dataclass(slots=True, eq=False)
class PopRevive:
    """Reads the revive topic. `wake((topic, queue))` says that a message came in."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: Topics
    _groups: Groups
    _offsets: Offsets
    _timers: Timers | None
    _log: PopLog
    _stats: Stats
    _meters: PopMeters
    _wake: Callable[[tuple[str, int]], None]
    _now_ms: Callable[[], int]
    _topic: str = field(init=False)
    _queues: list[_Queue] = field(init=False)

    def __post_init__(self) -> None:
        self._topic = revive_topic(self._config.broker_cluster_name)
        self._queues = [_Queue(number) for number in range(self._config.revive_queue_num)]

    def run(self) -> bool:
        """One round through all queues; True when there is more to do right away."""
        if self._timers is None:
            return False
        more = False
        for queue in self._queues:
            try:
                more = self._read(queue) or more
                more = self._revive(queue) or more
                queue.has_failed = False
            except (StoreError, Refusal, OverflowError) as wrong:
                queue.has_failed = True
                log.warning("messages of pop wait in revive queue %d: %s", queue.queue_id, wrong)
            self._commit(queue)
        return more

    def wait_ms(self) -> int:
        """Time until the next `run`: `reviveInterval`, or less when a check point is due earlier.

        The revive topic is in the order of time, to a slot of the timer, so the first check point
        of each queue stands for the others.
        """
        waits = [self._config.revive_interval]
        for queue in self._queues:
            if queue.has_failed:
                continue
            for _, point in queue.points.values():
                left_ms = point.revive_ms + LATE_ACK_MS + 1 - self._now_ms()
                waits.append(max(left_ms, DUE_AGAIN_MS))
                break
        return min(waits)

    def advance(self) -> None:
        """Let the offsets pass the finished entries that are on disk."""
        for queue in self._queues:
            self._commit(queue)

    def behind(self) -> list[int]:
        """Entries of the revive topic that are not done, by queue."""
        ends = [self._store.max_offset(self._topic, queue.queue_id) for queue in self._queues]
        done = [self._done_offset(queue) + 1 for queue in self._queues]
        return [max(0, end - offset) for end, offset in zip(ends, done, strict=True)]

    def behind_ms(self, now_ms: int) -> list[int]:
        """The time since the next entries were due, by queue; 0 where none waits."""
        return [
            max(0, now_ms - queue.read_ms) if count > 1 and queue.read_ms else 0
            for queue, count in zip(self._queues, self.behind(), strict=True)
        ]

    # --- reading --------------------------------------------------------------------------------

    def _read(self, queue: _Queue) -> bool:
        store, topic = self._store, self._topic
        delivered_ms = self._delivered_ms()
        least = max(0, store.min_offset(topic, queue.queue_id))
        if queue.next < 0:
            queue.next = self._done_offset(queue) + 1
        queue.next = max(queue.next, least)
        for _ in range(ENTRIES_PER_ROUND // ENTRIES_PER_READ):
            if len(queue.points) >= READY_MAX:
                return False
            entries = store.entries(topic, queue.queue_id, queue.next, ENTRIES_PER_READ)
            for log_offset, _, _ in entries:
                data = store.message_at(log_offset)
                if data is not None:
                    self._stats.own_read(topic, REVIVE_GROUP, 1, len(data))
                    self._take(queue, data)
                queue.next += 1
            if len(entries) < ENTRIES_PER_READ:
                queue.read_ms = max(queue.read_ms, delivered_ms)
                return False
        return True

    def _take(self, queue: _Queue, data: bytes) -> None:
        """Take one entry of the revive topic. Unreadable ones are skipped, as in RocketMQ."""
        try:
            record = decode_record(data)
        except Malformed as wrong:
            log.warning("entry %d of %s can't be read: %s", queue.next, self._topic, wrong)
            return
        raw = record.raw_properties
        tag = (properties.find(raw, b"TAGS") or b"").decode(errors="replace")
        due = properties.find(raw, b"TIMER_DELIVER_MS") or b""
        try:
            if tag == CHECK_POINT_TAG:
                point = from_body(PopCheckPoint.decode(record.body), queue.queue_id)
                if point is not None:
                    self._meters.read(point.group, point.topic, queue.queue_id, CHECK_POINT)
                if point is not None:  # after a crash the timer may bring one twice
                    queue.points.setdefault(point.key, (queue.next, point))
            elif tag in (ACK_TAG, BATCH_ACK_TAG):
                ack = BatchAckMsg.decode(record.body)
                key = (
                    ack.topic or "",
                    ack.consumer_group or "",
                    ack.queue_id,
                    ack.start_offset,
                    ack.pop_time,
                )
                self._meters.read(key[1], key[0], queue.queue_id, ACK)
                _, point = queue.points.get(key, (0, None))
                for offset in ack.ack_offset_list if tag == BATCH_ACK_TAG else [ack.ack_offset]:
                    if point is not None and not point.ack(offset):
                        log.warning("%s acknowledges %d, which it doesn't have", key, offset)
        except ValueError as wrong:
            log.warning("entry %d of %s can't be read: %s", queue.next, self._topic, wrong)
        if due.isdigit() and len(due) < 20:
            queue.read_ms = max(queue.read_ms, int(due))

    def _delivered_ms(self) -> int:
        """The time until which all that was due has come out of the timer; 0 when it is behind."""
        assert self._timers is not None
        state = self._timers.state
        is_behind = state.queue_offset < self._store.max_offset(WHEEL_TOPIC, QUEUE)
        return 0 if is_behind else state.read_ms

    # --- reviving -------------------------------------------------------------------------------

    def _revive(self, queue: _Queue) -> bool:
        """Deal with the check points whose time is up, in their order; True when some are left."""
        late_ms = min(queue.read_ms, self._now_ms() - LATE_ACK_MS)
        due = [key for key, (_, point) in queue.points.items() if point.revive_ms < late_ms]
        messages = 0
        for key in due:
            if messages >= MESSAGES_PER_ROUND:
                return True
            _, point = queue.points[key]
            messages += len(point.left())
            self._revive_point(point)
            del queue.points[key]
        return False

    def _revive_point(self, point: CheckPoint) -> None:
        topic = normal_topic(point.topic, point.group)
        if self._topics.get(topic) is None or self._has_no_group(point.group):
            log.info("popped messages of %s and %s are dropped: one is gone", topic, point.group)
            return
        for offset in point.left():
            entries = self._store.entries(point.topic, point.queue_id, offset, 1)
            data = self._store.message_at(entries[0][0]) if entries else None
            if data is None:
                log.warning("%s/%d has no message %d any more", point.topic, point.queue_id, offset)
                continue
            try:
                self._put_again(point, decode_record(data))
            except (IllegalMessage, Refusal, Malformed, ValueError, OverflowError) as wrong:
                self._put_back(point, offset, wrong)
            point.ack(offset)  # after a failure of the store the next run continues behind it

    def _put_back(self, point: CheckPoint, offset: int, wrong: Exception) -> None:
        """Have this message tried again later, by a check point of its own."""
        seconds = PUT_BACK_SECONDS[min(point.put_back, len(PUT_BACK_SECONDS) - 1)]
        log.warning(
            "message %d of queue %d of %s can't come again to group %s: %s; it is tried again in "
            "%d s",
            offset,
            point.queue_id,
            point.topic,
            point.group,
            wrong,
            seconds,
        )
        due_ms = max(point.revive_ms, self._now_ms()) + seconds * 1_000
        later = CheckPoint(
            point.topic,
            point.group,
            point.queue_id,
            offset,
            point.pop_ms,
            due_ms - point.pop_ms,
            point.revive_queue_id,
            [offset],
            put_back=point.put_back + 1,
        )
        self._log.check_point(later)

    def _has_no_group(self, name: str) -> bool:
        """True if the group is gone. A deleted group is created again where allowed, as by a
        pop."""
        try:
            return self._groups.find(name) is None
        except Refusal as wrong:
            if wrong.code == codes.SUBSCRIPTION_GROUP_NOT_EXIST:
                return True
            raise

    def _put_again(self, point: CheckPoint, message: Record) -> None:
        """Put the message into the retry topic, however often it came: as in RocketMQ the consumer
        decides when to give it up."""
        name = point.topic
        if not name.startswith(RETRY_PREFIX):
            name = retry_topic(name, point.group, v2=self._config.enable_retry_topic_v2)
        self._topics.retries(name, 1)
        if self._offsets.get(name, point.group, 0) < 0:
            self._offsets.commit(name, point.group, 0, 0)
        pairs = message.properties
        if message.reconsume_times == 0 or properties.FIRST_POP_TIME not in pairs:
            pairs[properties.FIRST_POP_TIME] = str(point.pop_ms)
        text = properties.encode(pairs)
        if len(text) > properties.PROPERTIES_BYTES_MAX:  # there is no room for the mark
            del pairs[properties.FIRST_POP_TIME]
            text = properties.encode(pairs)
        start, _, end = self._store.put(
            Message(
                (name, 0),
                message.flag,
                message.sys_flag,
                message.born_ms,
                self._store.host,  # as in RocketMQ: the broker itself stores it again
                message.body,
                text,
                tag_hash(pairs.get(properties.TAGS)),
                message.reconsume_times + 1,
            ),
        )
        self._stats.put(name, end - start)
        self._meters.retried(point.group, point.topic)
        self._meters.finished(point.topic, point.group, point.queue_id, 1)
        self._wake((name, 0))

    # --- how far it is --------------------------------------------------------------------------

    def _done_offset(self, queue: _Queue) -> int:
        return self._offsets.get(self._topic, REVIVE_GROUP, queue.queue_id)

    def _commit(self, queue: _Queue) -> None:
        if queue.next < 0:
            return
        first = min((offset for offset, _ in queue.points.values()), default=queue.next)
        last = queue.done[-1][1] if queue.done else self._done_offset(queue)
        if first - 1 > last:
            queue.done.append((self._store.log_end, first - 1))
        offset = -1
        while queue.done and queue.done[0][0] <= self._store.durable_end:
            offset = queue.done.popleft()[1]
        if offset >= 0:
            self._offsets.commit(self._topic, REVIVE_GROUP, queue.queue_id, offset)
