"""Transactions: half messages, the record of ended ones, and checks of the others.

All state (except counts) is in two topics and the offsets of one group in them, so a restart
continues where it was. A half message waits in the half topic. Once it is committed or rolled back,
its queue offset is written to the op topic, several at a time. A round of checks walks the half
topic. A message named in the op topic is done. A message that is too young ends the round. A
message that was checked too often or is older than the retention time is given up. Any other is
appended again, with its count of checks increased, and a producer of its group is asked about that
copy. Offsets not yet in the op topic are lost in a crash and checked again, which at-least-once
allows.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from ...protocol import codes
from ...protocol.aio.connection import Connection
from ...protocol.headers.transactions import CheckTransactionState
from ...protocol.message import properties
from ...protocol.message.message_id import offset_message_id
from ...protocol.message.record import TRANSACTION_MASK, Record, decode_record, encode_record
from ...protocol.message.tags import tag_hash
from ...store.base.errors import MessageTooLarge
from ...store.engine.messages import Message
from ...store.engine.store import MessageStore
from ..groups.clients import Clients
from ..groups.offsets import Offsets
from ..runtime.stats import Stats
from ..scheduled.real_destination import delayed, number_of
from ..settings.config import BrokerConfig
from ..topics.topics import Topics
from .counts import TransactionCounts

log = logging.getLogger(__name__)

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"
OP_TAG = "d"
QUEUE = 0
ENDED_WAITING_MAX = 20_000  # offsets not yet written to the op topic
DONE_MAX = 1_000_000  # ended half messages behind one that has not ended
STEPS_PER_TICK = 500  # half messages checked before requests are served again
OPS_PER_READ = 32
HOUR_MS = 3_600_000


@dataclass(slots=True)
class Unresolved:
    """Half messages with their offsets; `end` is the offset behind the last that was read."""

    end: int
    halves: list[tuple[int, Record]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Transactions:
    """Half messages and their outcome. Times in ms."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: Topics
    _offsets: Offsets
    _clients: Clients
    _counts: TransactionCounts
    _stats: Stats
    _now_ms: Callable[[], int]
    _ended: list[str] = field(init=False, default_factory=list)  # not in the op topic yet
    _ended_bytes: int = field(init=False, default=0)
    _done: dict[int, int] = field(
        init=False, default_factory=dict
    )  # half offset to the op message that names it
    _left: dict[int, int] = field(
        init=False, default_factory=dict
    )  # op offset to how many of its half messages are not passed yet
    _next_op: int = field(init=False, default=-1)  # the first op message that was not read yet
    _put_back: set[int] = field(
        init=False, default_factory=set
    )  # first offsets of messages moved to the end, unchecked
    _next_producer: int = field(init=False, default=0)  # counts up; modulo the live producers

    def end(self, half_offset: int) -> None:
        """Note that a half message was committed or rolled back. StoreError when the op topic
        can't be written."""
        if len(self._ended) >= ENDED_WAITING_MAX:
            self.write_ended()
        text = f"{half_offset},"
        self._ended.append(text)
        self._ended_bytes += len(text)
        if self._ended_bytes >= self._config.transaction_op_msg_max_size:
            self.write_ended()

    def write_ended(self) -> None:
        """Write the offsets of ended half messages to the op topic; StoreError when it fails."""
        if not self._ended:
            return
        raw = properties.encode({properties.TAGS: OP_TAG})
        body = "".join(self._ended).encode()
        host, now_ms = self._store.host, self._now_ms()
        self._store.put(Message((OP_TOPIC, QUEUE), 0, 0, now_ms, host, body, raw, tag_hash(OP_TAG)))
        self._ended.clear()
        self._ended_bytes = 0

    def check(self, start_ms: int) -> bool:
        """One part of the round that began at `start_ms`; True when there is more to check."""
        self.write_ended()
        store = self._store
        at = first = max(self._cursor(HALF_TOPIC), store.min_offset(HALF_TOPIC, QUEUE))
        more = True
        try:
            for _ in range(STEPS_PER_TICK):
                self._read_ops(at)
                if at in self._done:
                    self._pass(at)
                elif not self._check_half(at, start_ms):
                    more = False
                    break
                at += 1
        finally:
            self._save(first, at)
        return more

    def unresolved(self, start_ms: int, most: int) -> Unresolved:
        """Up to `most` half messages that a check would ask about now.

        The caller has other brokers take them, then calls `passed`, or drops this object.
        """
        store, timeout_ms = self._store, self._config.transaction_time_out
        found = Unresolved(max(self._cursor(HALF_TOPIC), store.min_offset(HALF_TOPIC, QUEUE)))
        for _ in range(STEPS_PER_TICK):
            at = found.end
            self._read_ops(at)
            if at in self._done:
                self._pass(at)
            else:
                entries = store.entries(HALF_TOPIC, QUEUE, at, 1)
                if not entries or len(found.halves) >= most:
                    break
                data = store.message_at(entries[0][0])
                half = None if data is None else decode_record(data)
                if half is None:
                    log.warning("the half message at %d is not in the log any more", entries[0][0])
                elif not self._is_moved(half):
                    age_ms = start_ms - half.born_ms
                    own_ms = immunity_ms(half.properties, timeout_ms)
                    if half.store_ms >= start_ms or (own_ms is None and 0 <= age_ms < timeout_ms):
                        break
                    found.halves.append((at, half))
            found.end = at + 1
        return found

    def passed(self, half_offset: int) -> None:
        """Everything before this offset has ended, or is with another broker."""
        self._save(self._cursor(HALF_TOPIC), half_offset)

    def _is_moved(self, half: Record) -> bool:
        """True if this is a copy of a half message that has ended under its first offset."""
        origin = number_of(half.properties.get(properties.TRAN_PREPARED_QUEUE_OFFSET), -1)
        if origin not in self._done:
            return False
        self._pass(origin)
        return True

    def _save(self, first: int, at: int) -> None:
        """Save the walk's progress: messages that it has passed must not be checked again."""
        if at != first:
            self._offsets.commit(HALF_TOPIC, GROUP, QUEUE, at)
        while self._left and not next(iter(self._left.values())):
            del self._left[next(iter(self._left))]
        op = next(iter(self._left), self._next_op)
        if op >= 0 and op != self._cursor(OP_TOPIC):
            self._offsets.commit(OP_TOPIC, GROUP, QUEUE, op)

    def _cursor(self, topic: str) -> int:
        return max(0, self._offsets.get(topic, GROUP, QUEUE))

    def _read_ops(self, at: int) -> None:
        """Read op messages until one names the half offset `at`, or there are no more."""
        store = self._store
        if self._next_op < 0:
            self._next_op = max(self._cursor(OP_TOPIC), store.min_offset(OP_TOPIC, QUEUE))
        while at not in self._done and len(self._done) < DONE_MAX:
            entries = store.entries(OP_TOPIC, QUEUE, self._next_op, OPS_PER_READ)
            if not entries:
                return
            for log_offset, _, _ in entries:
                data = store.message_at(log_offset)
                self._stats.own_read(OP_TOPIC, GROUP, 1, len(data or b""))
                body = b"" if data is None else decode_record(data).body
                # Messages behind the walk have been appended again, under another offset.
                numbers = {int(word) for word in body.split(b",") if word.isdigit()}
                new = [n for n in numbers if n >= at or n in self._put_back]
                new = [n for n in new if n not in self._done]
                self._done.update(dict.fromkeys(new, self._next_op))
                self._left[self._next_op] = len(new)
                self._next_op += 1

    def _pass(self, half_offset: int) -> None:
        self._left[self._done.pop(half_offset)] -= 1

    def _check_half(self, at: int, start_ms: int) -> bool:
        """Check the half message at this offset; False when the round ends before it."""
        entries = self._store.entries(HALF_TOPIC, QUEUE, at, 1)
        if not entries:
            return False
        data = self._store.message_at(entries[0][0])
        if data is None:
            log.warning("the half message at %d is not in the log any more", entries[0][0])
            return True
        self._stats.own_read(HALF_TOPIC, GROUP, 1, len(data))
        half = decode_record(data)
        if half.store_ms >= start_ms:
            return False
        pairs = half.properties
        origin = number_of(pairs.get(properties.TRAN_PREPARED_QUEUE_OFFSET), -1)
        self._put_back.discard(origin)
        if origin in self._done:
            self._pass(origin)
            return True
        times = number_of(pairs.get(properties.TRANSACTION_CHECK_TIMES), 0)
        age_ms = start_ms - half.born_ms
        if times >= self._config.transaction_check_max:
            self._give_up(half, f"it was asked about {times} times (transactionCheckMax)")
            return True
        if age_ms > self._config.file_reserved_time * HOUR_MS:
            self._give_up(half, f"it is {age_ms // HOUR_MS} hours old (fileReservedTime)")
            return True
        own_ms = immunity_ms(pairs, self._config.transaction_time_out)
        if own_ms is not None and age_ms < own_ms:
            # It must not hold up the messages behind it, so it moves to the end.
            first = at if origin < 0 else origin
            if len(self._put_back) < DONE_MAX:
                self._put_back.add(first)
            pairs[properties.TRAN_PREPARED_QUEUE_OFFSET] = str(first)
            self._append_or_give_up(half, pairs)
            return True
        # A negative age means that the producer's clock is ahead: then it is asked at once.
        if own_ms is None and 0 <= age_ms < self._config.transaction_time_out:
            return False
        pairs[properties.TRANSACTION_CHECK_TIMES] = str(times + 1)
        copy = self._append_or_give_up(half, pairs)
        if copy is not None:
            self._ask(copy, pairs)
        return True

    def resume(self, given_up: Record) -> None:
        """Resume the checks of a message that was given up, with a count of 0. StoreError."""
        pairs = given_up.properties
        pairs[properties.TRANSACTION_CHECK_TIMES] = "0"
        self._append(HALF_TOPIC, given_up, pairs)
        self._counts.resumed(pairs.get(properties.REAL_TOPIC, ""))

    def _give_up(self, half: Record, why: str) -> None:
        """Move a half message to `GIVEN_UP_TOPIC`, where an operator can find it."""
        pairs = half.properties
        log.warning(
            "transaction %s of group %s is given up: %s; its message is in %s",
            pairs.get(properties.UNIQ_KEY),
            pairs.get(properties.PGROUP),
            why,
            GIVEN_UP_TOPIC,
        )
        self._topics.dead_letters(GIVEN_UP_TOPIC)
        self._append(GIVEN_UP_TOPIC, half, pairs)
        self._counts.gave_up(pairs.get(properties.REAL_TOPIC, ""))

    def _append_or_give_up(self, half: Record, pairs: dict[str, str]) -> Record | None:
        """Append a copy to the half messages; None when it is too large with these properties."""
        try:
            return self._append(HALF_TOPIC, half, pairs)
        except MessageTooLarge as wrong:
            self._give_up(half, str(wrong))
            return None

    def _append(self, topic: str, half: Record, pairs: dict[str, str]) -> Record:
        """Append a copy with these properties to a topic; returns it with its new offsets."""
        raw = properties.encode(pairs)
        half.sys_flag &= ~TRANSACTION_MASK
        half.log_offset, half.queue_offset, _ = self._store.put(
            Message(
                (topic, QUEUE),
                half.flag,
                half.sys_flag,
                half.born_ms,
                half.born_host,
                half.body,
                raw,
                tag_hash(pairs.get(properties.TAGS)),
                half.reconsume_times,
            ),
            is_moved=True,
        )
        half.raw_properties = raw
        return half

    def _ask(self, half: Record, pairs: dict[str, str]) -> None:
        """Ask one producer of the group, in rotation, how the transaction ended."""
        group = pairs.get(properties.PGROUP, "")
        members = self._clients.producer_group(group)
        live = [key.connection for key in members if not key.connection.is_lost]
        if not live:
            log.warning(
                "no producer of group %s is connected to say how transaction %s ended",
                group,
                pairs.get(properties.UNIQ_KEY),
            )
            return
        producer: Connection = live[self._next_producer % len(live)]
        self._next_producer += 1
        self._counts.asked += 1
        half.topic = pairs.get(properties.REAL_TOPIC, "")
        half.queue_id = number_of(pairs.get(properties.REAL_QID), 0)
        unique = pairs.get(properties.UNIQ_KEY)
        header = CheckTransactionState(
            half.queue_offset,
            half.log_offset,
            unique,
            unique,
            offset_message_id(half.store_host, half.log_offset),
            self._config.broker_name,
            topic=half.topic,
        )
        producer.oneway(codes.CHECK_TRANSACTION_STATE, header.to_fields(), encode_record(half))


def immunity_ms(pairs: dict[str, str], otherwise_ms: int) -> int | None:
    """The time in ms for which a message asks not to be checked; None when it doesn't ask.

    As in RocketMQ, -1 or a text that is no number stands for `otherwise_ms`.
    """
    text = pairs.get(properties.CHECK_IMMUNITY_TIME_IN_SECONDS)
    if text is None:
        return None
    seconds = number_of(text, -1)
    return otherwise_ms if seconds < 0 else seconds * 1_000


def half_properties(text: str, topic: str, queue_id: int, unique: str) -> str:
    """The properties of a half message, with its destination once it is committed."""
    return f"{delayed(text, topic, queue_id)}{properties.TRANSACTION_ID}\x01{unique}\x02"
