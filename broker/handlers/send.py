"""SEND_MESSAGE (10, 310) and SEND_BATCH_MESSAGE (320): a message comes in.

The common message takes one straight path: known topic, queue id in range, nothing special in its
properties. All else (unknown topics, retry topics, odd queue ids, old POP_CK marks) branches off in
the first lines, so that the path stays at a handful of calls.
"""

import random
from collections.abc import Callable

from ...protocol import codes, properties
from ...protocol.aio.connection import Connection, Row
from ...protocol.batch import split_batch
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.command import Command, Reply
from ...protocol.errors import Malformed, Refusal
from ...protocol.headers.send import (
    SendMessage,
    SendMessageAnswer,
    SendMessageV1,
    send_answer,
)
from ...protocol.message_id import UniqueIds
from ...protocol.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SEND_FORBIDDEN_TOPICS,
    TOPIC_CHARS_MAX,
    check_topic,
)
from ...protocol.recall_handle import encode as encode_handle
from ...protocol.record import NEED_UNWRAP, TRANSACTION_MASK
from ...protocol.tags import TAG_HASHES
from ...store.errors import IllegalMessage, StoreError
from ...store.store import MessageStore
from ..config import BrokerConfig
from ..due import Due, Place, without
from ..groups import Groups
from ..holds import Holds
from ..locks import QueueLocks
from ..stats import Stats
from ..syncer import WAITING_MAX, Syncer
from ..topics import Target, Topics
from ..transaction_counts import TransactionCounts
from ..transactions import HALF_TOPIC, half_properties

RECONSUME_VERSION_MIN = 121  # V3_4_9: from here on a client's maxReconsumeTimes counts


class SendHandlers:
    """Takes messages into the store."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        due: Due,
        holds: Holds,
        stats: Stats,
        syncer: Syncer | None,
        ids: UniqueIds,
        locks: QueueLocks,
        transactions: TransactionCounts,
        now_ms: Callable[[], int],
    ) -> None:
        self.config = config
        self.store = store
        self.topics = topics
        self.groups = groups
        self.due = due
        self.holds = holds
        self.stats = stats
        self.syncer = syncer
        self.ids = ids
        self.locks = locks
        self.transactions = transactions
        self.now_ms = now_ms
        # Bound once: these are looked up for every message.
        self._targets = topics.targets
        self._put = store.put
        self._place = due.place
        self._parked = holds.parked
        self._host_hex = store.host_hex
        self._name = config.broker_name
        self._region = config.region_id.encode()
        self._suffix = properties.encode(
            {
                "MSG_REGION": config.region_id,
                "TRACE_ON": "true",
                "CLUSTER": config.broker_cluster_name,
            }
        ).decode()
        self._error_fields = {"MSG_REGION": config.region_id, "TRACE_ON": "true"}

    def rows(self) -> list[Row]:
        return [
            Row(codes.SEND_MESSAGE, SendMessageV1, self.on_send, "PUB"),
            Row(codes.SEND_MESSAGE_V2, SendMessage, self.on_send, "PUB", hot=True),
            Row(codes.SEND_BATCH_MESSAGE, SendMessage, self.on_send, "PUB", hot=True),
        ]

    def on_send(
        self, header: SendMessage | SendMessageV1, command: Command, connection: Connection
    ) -> Reply | bytes | None:
        if self.syncer is not None and self.syncer.is_full:
            raise self._busy()
        target = self._targets.get(header.topic)
        queue_id = header.queue_id
        if target is None or not 0 <= queue_id < target.queues or target.special:
            try:
                target, queue_id = self._target(header, command, connection)
            except Refusal as refusal:
                refusal.fields = self._error_fields
                raise
        # Looked at as text: finding a word in a str costs a fifth of finding it in bytes.
        text = header.properties or ""
        if header.batch:
            return self._on_batch(header, command, connection, target, queue_id, text)
        body = command.body
        if body is None:
            raise self._refused("the message body is empty; send at least one byte")
        # POP_CK would let a client pass a message off as one that it popped.
        if "POP_CK\x01" in text:
            text = without(text, ["POP_CK"])
        if text and text[-1] != "\x02":
            text += "\x02"
        # Both are nearly always there once, as pairs of their own: no call is spent on that.
        at = text.find("UNIQ_KEY\x01")
        if at == 0 or (at > 0 and text[at - 1] == "\x02"):
            unique = text[at + 9 : text.find("\x02", at)]
        else:
            unique = _value(text, "UNIQ_KEY")
        if not unique:
            unique = self.ids.next()
            text += f"UNIQ_KEY\x01{unique}\x02"
        at = text.find("TAGS\x01")
        if at == 0 or (at > 0 and text[at - 1] == "\x02"):
            tags = text[at + 5 : text.find("\x02", at)]
        else:
            tags = "" if at < 0 else _value(text, "TAGS")
        topic, stored_queue_id, sys_flag, handle = target.name, queue_id, header.sys_flag, None
        puts = target.puts
        if "TRAN_MSG" in text and self._is_half(text, header):
            text = half_properties(text, topic, queue_id, unique)
            self.transactions.begun(topic)
            topic, stored_queue_id, puts = HALF_TOPIC, 0, self.stats.puts(HALF_TOPIC)
            sys_flag &= ~TRANSACTION_MASK  # that it is half, its topic says
        elif "DEL" in text:  # DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS
            if topic == header.topic:
                try:
                    topic, stored_queue_id, text, out_ms = self._place(text, topic, queue_id)
                except Refusal as refusal:
                    refusal.fields = self._error_fields
                    raise
                # What the producer can take a timer message back by; retries can't be.
                if out_ms and not header.topic.startswith(RETRY_PREFIX):
                    # A millisecond inside of the slot: the recall's own time is rounded down.
                    handle = encode_handle(header.topic, self._name, out_ms + 1, unique)
            elif "DELAY\x01" in text:  # a dead letter waits no more
                text = without(text, ["DELAY"]) + "DELAY\x01-1\x02"
        try:
            log_offset, queue_offset, end = self._put(
                topic,
                stored_queue_id,
                header.flag,
                sys_flag,
                header.born_ms,
                connection.host,
                body,
                (text + self._suffix).encode(),
                TAG_HASHES[tags],
                header.reconsume_times or 0,
            )
        except StoreError as wrong:
            if topic == HALF_TOPIC:
                self.transactions.not_begun(target.name)
            raise self._declined(wrong) from None
        puts.messages += 1
        puts.bytes += end - log_offset
        if stored_queue_id == queue_id and target.keys[queue_id] in self._parked:
            self.holds.mark(target.keys[queue_id])
        if handle is not None and properties.TIMER_DEL_UNIQKEY not in text:
            self.due.came_in(log_offset, out_ms, target.name)
        reply = send_answer(
            command,
            queue_id,
            unique.encode(),
            self._host_hex,
            log_offset,
            self._region,
            queue_offset,
            handle,
        )
        if self.syncer is not None and "WAIT\x01false" not in text:
            self._after_sync(end, connection, command, reply)
            return None
        return reply

    def _is_half(self, text: str, header: SendMessage | SendMessageV1) -> bool:
        """Whether the message begins a transaction; Refusal when it may not."""
        pairs = properties.decode(text)
        if pairs.get(properties.TRAN_MSG, "").lower() != "true":
            return False
        if (header.reconsume_times or 0) > 0 and self.due.level(pairs.get("DELAY")) > 0:
            return False  # a consumer's retry of a message that was committed
        if "DEL" in text:
            self._try_place(text, header.topic, 0)  # what can't wait once committed is refused now
        if self.config.reject_transaction_message:
            raise Refusal(
                codes.NO_PERMISSION,
                f"the broker[{self.config.broker_ip1}] sending transaction message is forbidden "
                "(rejectTransactionMessage)",
                self._error_fields,
            )
        return True

    def _try_place(self, text: str, topic: str, queue_id: int) -> Place:
        """Where a message goes that may be one to wait; Refusal when it can't."""
        try:
            return self._place(text, topic, queue_id)
        except Refusal as refusal:
            refusal.fields = self._error_fields
            raise

    def _on_batch(
        self,
        header: SendMessage | SendMessageV1,
        command: Command,
        connection: Connection,
        target: Target,
        queue_id: int,
        text: str,
    ) -> Reply | bytes | None:
        """One request with many messages: stored as neighbours, all of them or none."""
        if len(header.topic) > TOPIC_CHARS_MAX:
            raise self._refused(
                f"a batch topic has {len(header.topic)} characters, the limit is {TOPIC_CHARS_MAX}"
            )
        if header.topic.startswith(RETRY_PREFIX):
            raise self._refused("batches can't be sent to a retry topic; send the messages singly")
        if not command.body:
            raise self._refused("the batch body is empty; send at least one message")
        if "DEL" in text and self._try_place(text, header.topic, queue_id).topic != header.topic:
            raise self._refused("a batch can't wait for its time; send the messages singly")
        if target.name in self.topics.with_batch_queues and self.store.has_batch_queue(
            target.name, queue_id
        ):
            return self._on_whole_batch(header, command, connection, target, queue_id, text)
        try:
            first, offsets, end = self.store.put_batch(
                target.name,
                queue_id,
                header.sys_flag,
                header.born_ms,
                connection.host,
                command.body,
                self._suffix.encode(),
                header.reconsume_times or 0,
            )
        except Malformed as wrong:
            raise self._refused(f"the batch body can't be read: {wrong}") from None
        except StoreError as wrong:
            raise self._declined(wrong) from None
        target.puts.messages += len(offsets)
        target.puts.bytes += end - offsets[0]
        key = target.keys[queue_id]
        if key in self.holds.parked:
            self.holds.mark(key)
        host = self._host_hex
        ids = (host + b"%016X,") * (len(offsets) - 1) % tuple(offsets[:-1])
        reply = send_answer(
            command,
            queue_id,
            _value(text, "UNIQ_KEY").encode(),
            ids + host,
            offsets[-1],
            self._region,
            first,
        )
        if self.syncer is not None and "WAIT\x01false" not in text:
            self._after_sync(end, connection, command, reply)
            return None
        return reply

    def _on_whole_batch(
        self,
        header: SendMessage | SendMessageV1,
        command: Command,
        connection: Connection,
        target: Target,
        queue_id: int,
        text: str,
    ) -> Reply | None:
        """A batch for a batch queue: one record, which the consumer takes apart."""
        body = command.body or b""
        try:
            number = len(split_batch(body))
        except Malformed as wrong:
            raise self._refused(f"the batch body can't be read: {wrong}") from None
        if text and text[-1] != "\x02":
            text += "\x02"
        try:
            log_offset, first, end = self.store.put_in_batch_queue(
                target.name,
                queue_id,
                header.flag,
                header.sys_flag | NEED_UNWRAP,
                header.born_ms,
                connection.host,
                body,
                (text + self._suffix).encode(),
                TAG_HASHES[_value(text, "TAGS")],
                number,
                header.reconsume_times or 0,
            )
        except StoreError as wrong:
            raise self._declined(wrong) from None
        target.puts.messages += number
        target.puts.bytes += end - log_offset
        if target.keys[queue_id] in self._parked:
            self.holds.mark(target.keys[queue_id])
        unique = _value(text, "UNIQ_KEY")
        answer = SendMessageAnswer(
            f"{self._host_hex.decode()}{log_offset:016X}",
            queue_id,
            first,
            unique,
            # What tells the producer that the batch has this id, and not its messages theirs.
            batch_uniq_id=unique or None,
            region=self.config.region_id,
            trace_on=True,
        )
        reply = Reply(codes.SUCCESS, answer.to_fields())
        if self.syncer is not None and "WAIT\x01false" not in text:
            self._after_sync(end, connection, command, reply)
            return None
        return reply

    def _target(
        self, header: SendMessage | SendMessageV1, command: Command, connection: Connection
    ) -> tuple[Target, int]:
        """The topic and queue of a send that is not the plain case; Refusal when there is none."""
        topic = header.topic
        if topic in SEND_FORBIDDEN_TOPICS:
            raise Refusal(codes.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        target = self.topics.targets.get(topic)
        if target is None:
            check_topic(topic)
            target = self.topics.create_for_send(
                topic,
                header.default_topic,
                header.default_topic_queues,
                unit=bool(header.unit_mode),
                peer=connection.address,
            )
        queue_id = header.queue_id
        if queue_id >= target.queues:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, topic {topic} has {target.queues} "
                f"queues, so 0 to {target.queues - 1} are there; refresh the route",
            )
        if queue_id < 0:
            queue_id = random.randrange(max(1, target.config.write_queue_nums))  # noqa: S311
        if topic.startswith(RETRY_PREFIX):
            return self._retry_target(header, command, target, queue_id)
        return target, queue_id

    def _retry_target(
        self,
        header: SendMessage | SendMessageV1,
        command: Command,
        target: Target,
        queue_id: int,
    ) -> tuple[Target, int]:
        """A message sent to a retry topic by a client: to the dead letters once it is too often."""
        name = header.topic[len(RETRY_PREFIX) :]
        group: SubscriptionGroupConfig | None = self.groups.find(name)
        if group is None:
            raise Refusal(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name}; create it or switch on "
                "autoCreateSubscriptionGroup",
            )
        limit = group.retry_max_times
        if command.version >= RECONSUME_VERSION_MIN and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        # A group that holds locks consumes in order, and sends only what it has given up.
        if (header.reconsume_times or 0) > limit or self.locks.is_orderly(name, self.now_ms()):
            return self.topics.dead_letters(DLQ_PREFIX + name), 0
        return target, queue_id

    def _after_sync(
        self, end: int, connection: Connection, command: Command, reply: Reply | bytes
    ) -> None:
        assert self.syncer is not None
        self.syncer.after_all(end, [(connection, command, reply)])

    def _refused(self, text: str) -> Refusal:
        return Refusal(codes.MESSAGE_ILLEGAL, text, self._error_fields)

    def _busy(self) -> Refusal:
        return Refusal(
            codes.SYSTEM_BUSY,
            f"[OVERLOAD]{WAITING_MAX} messages wait for the disk, which is the limit; try again "
            "later, or set flushDiskType=ASYNC_FLUSH",
            self._error_fields,
        )

    def _declined(self, wrong: StoreError) -> Refusal:
        self.stats.failures.messages += 1
        code = codes.SERVICE_NOT_AVAILABLE
        if isinstance(wrong, IllegalMessage):
            code = codes.MESSAGE_ILLEGAL
        return Refusal(code, str(wrong), self._error_fields)


def _value(text: str, name: str) -> str:
    """The value of a property in a properties text, empty when it isn't there."""
    return properties.decode(text).get(name, "")
