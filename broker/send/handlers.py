"""SEND_MESSAGE (10, 310) and SEND_BATCH_MESSAGE (320): messages come in.

What a turn of the loop brought is taken at its end, in its order and all together: a message then
costs no call of its own. The common one takes one straight path: known topic, queue id in range,
nothing special in its properties. All else (unknown topics, retry topics, odd queue ids, messages
that wait, half messages, batches) branches off on the way.
"""

import random
from collections.abc import Callable

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row, our_fault
from ...protocol.aio.rpc_latency import RpcLatency
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.codec.frame import HEADS
from ...protocol.command import CODEC_JSON, FLAG_ONEWAY, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.send import SendMessage, SendMessageV1, response_template, send_response
from ...protocol.message import properties
from ...protocol.message.message_id import UniqueIds
from ...protocol.message.recall_handle import encode_with, words_before
from ...protocol.message.record import MULTI_TAGS, TRANSACTION_MASK
from ...protocol.message.tags import TAG_HASHES
from ...protocol.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
)
from ...store.base.errors import IllegalMessage, StoreError
from ...store.engine.messages import MessageFields
from ...store.engine.store import MessageStore
from ...store.timer.timer_log import WHEEL_TOPIC
from ..groups.groups import Groups
from ..groups.queue_locks import QueueLocks
from ..pull.long_polls import LongPolls
from ..runtime.arrivals import DELAY, NORMAL, SMALL_BYTES, TRANSACTION, type_of
from ..runtime.stats import Stats
from ..runtime.syncer import WAITING_MAX, Answers, Syncer
from ..scheduled.delays import SCHEDULE_TOPIC
from ..scheduled.delivery_policy import DeliveryPolicy, without
from ..settings.config import BrokerConfig
from ..topics.static_targets import LOGICAL, LogicalTargets
from ..topics.topics import MULTI_TAG, Target, Topics, is_compacted
from ..transactions.counts import TransactionCounts
from ..transactions.transactions import HALF_TOPIC, half_properties
from .batches import Batches
from .router import SEND_V2_OK

RECONSUME_VERSION_MIN = 121  # V3_4_9: from here on a client's maxReconsumeTimes counts

# Whether a message is seen at once: 0, in a static topic LOGICAL; its slot of the timer wheel in ms
# when it waits there and can be taken back, negative when the timers have to read it themselves; or
# one of these.
WAITS = -1  # and can't be taken back
HALF = -2
DELAYED = -3  # by a level
HALF_KEY = (HALF_TOPIC, 0)
# Request, connection, queue, unique key, topic, whether it is seen, whether it waits for the disk,
# type of message.
Asked = tuple[Command, Connection, int, bytes, Target, int, bool, str]


class SendHandlers:
    """Takes messages into the store: the broker has `take` called at the end of each turn."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        delivery_policy: DeliveryPolicy,
        long_polls: LongPolls,
        stats: Stats,
        syncer: Syncer | None,
        ids: UniqueIds,
        locks: QueueLocks,
        transactions: TransactionCounts,
        latency: RpcLatency,
        now_ms: Callable[[], int],
    ) -> None:
        self.latency = latency
        self.config = config
        self.store = store
        self.topics = topics
        self.groups = groups
        self.delivery_policy = delivery_policy
        self.long_polls = long_polls
        self.stats = stats
        self.syncer = syncer
        self.ids = ids
        self.locks = locks
        self.transactions = transactions
        self.now_ms = now_ms
        self._logical = LogicalTargets(topics.static)
        self._arrived: list[tuple[SendMessage | SendMessageV1, Command, Connection]] = []
        self._placed = delivery_policy.placed
        self._name = config.broker_name
        self._host_hex = store.host_hex
        self._region = config.region_id.encode()
        self._batches = Batches(config, store, topics, delivery_policy, long_polls)
        self.write_templates()

    def write_templates(self) -> None:
        """Take over traceOn, which stands in each message and each answer."""
        config = self.config
        self._trace_on = on = config.trace_on
        self._template = response_template(self._host_hex, self._region, trace_on=on)
        self._with_handle = response_template(
            self._host_hex, self._region, with_handle=True, trace_on=on
        )
        self._error_fields = {"MSG_REGION": config.region_id, "TRACE_ON": str(on).lower()}
        shared = self._error_fields | {"CLUSTER": config.broker_cluster_name}
        self.suffix = properties.join(shared)  # behind the properties of each message
        self._batches.suffix = self.suffix.encode()

    def rows(self) -> list[Row]:
        inbox = self._arrived
        return [
            Row(codes.SEND_MESSAGE, SendMessageV1, self.take, "PUB", inbox=inbox),
            Row(codes.SEND_MESSAGE_V2, SendMessage, self.take, "PUB", hot=True, inbox=inbox),
            Row(codes.SEND_BATCH_MESSAGE, SendMessage, self.take, "PUB", hot=True, inbox=inbox),
        ]

    def take(self) -> None:
        """Store what came in, in its order, and answer it or have it answered after the sync."""
        arrived = self._arrived
        if not arrived:
            return
        targets, suffix, syncer = self.topics.targets, self.suffix, self.syncer
        batches = self._batches
        messages: list[MessageFields] = []
        asked: list[Asked] = []
        now_ms = 0
        for header, command, connection in arrived:
            try:
                if syncer is not None and syncer.is_full:
                    raise _busy()
                target = targets.get(header.topic)
                queue_id = header.queue_id
                if target is None or not 0 <= queue_id < target.queues or target.special:
                    target, queue_id = self._target(header, command, connection)
                # Looked at as text: finding a word in a str costs a fifth of finding it in bytes.
                text = header.properties or ""
                waits = syncer is not None and "WAIT\x01false" not in text
                if header.batch:
                    if messages or self.topics.made:
                        self._put(messages, asked)  # what came before it lies before it
                    if header.topic not in targets:
                        raise StoreError(
                            f"topic {header.topic} can't be kept: topics.json can't be written; "
                            "look at the broker's disk"
                        )
                    given = batches.take(
                        header, command, connection, target, queue_id, text, waits=waits
                    )
                    if given is not None:
                        reply, end = given
                        self._give(command, connection, reply, end if waits else 0)
                    continue
                if batches.taken:
                    self._put_batches()
                body = command.body
                if body is None:
                    raise Refusal(
                        codes.SYSTEM_ERROR,
                        "the message body is empty; send at least one byte",
                    )
                if "INNER_NUM\x01" in text and _value(text, "INNER_NUM"):
                    raise _no_batch()
                # POP_CK would let a client pass a message off as one that it popped.
                if "POP_CK\x01" in text:
                    text = without(text, ["POP_CK"])
                if text and text[-1] != "\x02":
                    text += "\x02"
                # Both are nearly always there, as pairs of their own: no call is spent on that.
                at = text.rfind("UNIQ_KEY\x01")
                if at == 0 or (at > 0 and text[at - 1] == "\x02"):
                    unique = text[at + 9 : text.find("\x02", at)]
                else:
                    unique = ""
                if not unique:
                    unique = _value(text, "UNIQ_KEY")
                    if not unique:
                        unique = self.ids.next()
                        text += f"UNIQ_KEY\x01{unique}\x02"
                at = text.rfind("TAGS\x01")
                if at == 0 or (at > 0 and text[at - 1] == "\x02"):
                    tags = text[at + 5 : text.find("\x02", at)]
                else:
                    tags = ""
                if at >= 0 and not tags:
                    tags = _value(text, "TAGS")
                key, sys_flag, seen = target.keys[queue_id], header.sys_flag, target.seen
                kind = type_of(text) if "__SHARD" in text else NORMAL
                code: int | None = TAG_HASHES[tags]
                if "TRAN_MSG" in text and self._is_half(text, header):
                    seen, kind = HALF, TRANSACTION
                    self.transactions.begun(target.name)
                    text = half_properties(text, *key, unique)
                    # That it is half, its topic says.
                    key, sys_flag = HALF_KEY, sys_flag & ~TRANSACTION_MASK
                elif "DEL" not in text:
                    pass
                elif target.name != header.topic:
                    pass  # a dead letter, which waits no more
                else:
                    now_ms = now_ms or self.now_ms()
                    key, text, slot_ms = self._placed(text, key, now_ms)
                    if slot_ms:
                        # Retries can't be taken back; what takes another back, the timers read.
                        is_recall = properties.TIMER_DEL_UNIQKEY in text
                        if target.special and target.name.startswith(RETRY_PREFIX):
                            seen = WAITS
                        else:
                            seen = -slot_ms if is_recall else slot_ms
                    elif key is not target.keys[queue_id]:
                        seen, code = DELAYED, None  # the level of that queue says how long
                    if kind is NORMAL:
                        kind = DELAY if seen else type_of(text)
                found = unique.encode()
                messages.append(
                    (
                        key,
                        header.flag,
                        sys_flag,
                        header.born_ms,
                        connection.host,
                        body,
                        (text + suffix).encode(),
                        code,
                        header.reconsume_times or 0,
                        0,
                        None if "KEYS\x01" in text else found,
                    )
                )
                asked.append((command, connection, queue_id, found, target, seen, waits, kind))
            except (StoreError, Refusal) as wrong:
                connection.respond(command, self._declined(wrong))
            except Exception:
                connection.respond(command, our_fault(command))
        arrived.clear()
        if batches.taken:
            self._put_batches()
        self._put(messages, asked)

    # --- inside ---------------------------------------------------------------------------------

    def _put(self, messages: list[MessageFields], asked: list[Asked]) -> None:
        """Store these messages and answer those who sent them; both lists are empty then."""
        parked, template, syncer = self.long_polls.parked, self._template, self.syncer
        held: Answers = []
        told: list[int] = []
        told_topics: list[str] = []
        end = sent = 0
        handle, words, words_for = b"", b"", (0, "")
        if self.topics.made:
            self._save_topics(messages, asked)
        try:
            places = self.store.put_all(messages)
        except Exception:
            for command, connection, *_ in asked:
                connection.respond(command, our_fault(command))
            messages.clear()
            asked.clear()
            return
        for place, (command, connection, queue_id, unique, target, seen, waits, kind) in zip(
            places, asked, strict=True
        ):
            if isinstance(place, StoreError):
                if seen == HALF:
                    self.transactions.not_begun(target.name)
                connection.respond(command, self._declined(place))
                continue
            log_offset, queue_offset, end = place
            puts = target.puts
            if not seen:
                key = target.keys[queue_id]
                if key in parked:
                    self.long_polls.mark(key)
            elif seen == LOGICAL:
                key = target.keys[queue_id]
                if key in parked:
                    self.long_polls.mark(key)
                queue_offset = target.offset(queue_id, queue_offset)
            elif seen == HALF:
                puts = self.stats.puts(HALF_TOPIC)
            elif seen == DELAYED:
                puts = self.stats.puts(SCHEDULE_TOPIC)
            else:
                puts = self.stats.puts(WHEEL_TOPIC)
                if seen != WAITS:
                    name = target.name
                    if words_for != (seen, name):
                        words_for = seen, name
                        # A millisecond inside of the slot: the recall's own time is rounded down.
                        words = words_before(name, self._name, abs(seen) + 1)
                    handle = encode_with(words, unique)
                if seen > 0:
                    told += (queue_offset, log_offset, end - log_offset, seen)
                    told_topics.append(target.name)
            size = end - log_offset
            puts.messages += 1
            puts.bytes += size
            if kind is not NORMAL or size > SMALL_BYTES:
                puts.arrivals.note(kind, size)
            reply: Response | bytes
            if command.codec == CODEC_JSON and unique.isalnum():
                if handle:
                    header = self._with_handle % (
                        handle, queue_id, unique, log_offset, queue_offset, command.opaque
                    )  # fmt: skip
                    handle = b""
                else:
                    header = template % (queue_id, unique, log_offset, queue_offset, command.opaque)
                reply = HEADS[len(header)] + header
            else:
                reply = send_response(
                    command,
                    queue_id,
                    unique,
                    self._host_hex,
                    log_offset,
                    self._region,
                    queue_offset,
                    handle.decode() or None,
                    trace_on=self._trace_on,
                )
                handle = b""
            if waits:
                held.append((connection, command, reply))
            elif (
                command.flag & FLAG_ONEWAY
                or type(reply) is not bytes
                or command.code != codes.SEND_MESSAGE_V2
            ):
                connection.respond(command, reply)
            else:  # the connection goes out at the end of this turn as it is
                connection.out.append(reply)
                sent += 1
        if sent:
            self.latency.answered[SEND_V2_OK] += sent
        if told:
            self.delivery_policy.came_in(told, told_topics)
        if held and syncer is not None:
            syncer.after_all(end, held)
        messages.clear()
        asked.clear()

    def _save_topics(self, messages: list[MessageFields], asked: list[Asked]) -> None:
        """Write down the topics that were made for these; if it fails, they are not stored."""
        made = {config.topic_name for config in self.topics.made}
        try:
            self.topics.save_made()
        except StoreError as wrong:
            kept = []
            for message, each in zip(messages, asked, strict=True):
                command, connection, _, _, target, seen, *_ = each
                if target.name not in made:
                    kept.append((message, each))
                    continue
                if seen == HALF:
                    self.transactions.not_begun(target.name)
                connection.respond(command, self._declined(wrong))
            messages[:] = [message for message, _ in kept]
            asked[:] = [each for _, each in kept]

    def _is_half(self, text: str, header: SendMessage | SendMessageV1) -> bool:
        """Whether the message begins a transaction; Refusal when it may not."""
        pairs = properties.decode(text)
        if pairs.get(properties.TRAN_MSG, "").lower() != "true":
            return False
        if (header.reconsume_times or 0) > 0 and self.delivery_policy.level(pairs.get("DELAY")) > 0:
            return False  # a consumer's retry of a message that was committed
        if "DEL" in text:
            self.delivery_policy.place(
                text, header.topic, 0
            )  # what can't wait once committed is refused now
        if self.config.reject_transaction_message:
            raise Refusal(
                codes.NO_PERMISSION,
                f"the broker[{self.config.broker_ip1}] sending transaction message is forbidden "
                "(rejectTransactionMessage)",
            )
        return True

    def _target(
        self, header: SendMessage | SendMessageV1, command: Command, connection: Connection
    ) -> tuple[Target, int]:
        """The topic and queue of a send that is not the plain case; Refusal when there is none."""
        topic = header.topic
        is_static = topic in self.topics.static.table
        if is_static:
            header.queue_id = self._logical.check(topic, header.queue_id)
        target = self.topics.for_send(header, connection.address)
        self.topics.check_open(target)
        queue_id = header.queue_id
        if is_static:
            target, queue_id = self._logical.of(target, queue_id)
        elif queue_id >= target.queues:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, topic {topic} has {target.queues} "
                f"queues, so 0 to {target.queues - 1} are there; refresh the route",
            )
        if queue_id < 0:
            queue_id = random.randrange(max(1, target.config.write_queue_nums))  # noqa: S311
        if target.config.topic_filter_type == MULTI_TAG:
            header.sys_flag |= MULTI_TAGS
        if topic.startswith(RETRY_PREFIX):
            return self._retry_target(header, command, target, queue_id)
        if is_compacted(target.config) and not header.batch:
            keys = _value(header.properties or "", properties.KEYS)
            if not keys.strip():
                raise Refusal(
                    codes.MESSAGE_ILLEGAL,
                    f"Required message key is missing: topic {topic} has "
                    "cleanup.policy=COMPACTION, by which each message needs one; set it (KEYS)",
                )
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
            self.stats.dead_letter(header.topic, header.producer_group)
            text = without(header.properties or "", ["DELAY"])
            header.properties = f"{text}DELAY\x01-1\x02"  # a dead letter waits no more
            return self.topics.dead_letters(DLQ_PREFIX + name), 0
        return target, queue_id

    def _put_batches(self) -> None:
        """Store the batches that were taken in and answer those who sent them."""
        taken = self._batches.taken
        try:
            given = self._batches.put()
        except Exception:
            for command, connection, *_ in taken:
                connection.respond(command, our_fault(command))
            return
        for (command, connection, *_, waits), (reply, end) in zip(taken, given, strict=True):
            if isinstance(reply, StoreError | Refusal):
                connection.respond(command, self._declined(reply))
            else:
                self._give(command, connection, reply, end if waits else 0)

    def _give(
        self, command: Command, connection: Connection, reply: Response | bytes, end: int
    ) -> None:
        """Answer, once the log is on disk up to `end` unless that is 0."""
        if end and self.syncer is not None:
            self.syncer.after_all(end, [(connection, command, reply)])
        else:
            connection.respond(command, reply)

    def _declined(self, wrong: StoreError | Refusal) -> Response:
        if isinstance(wrong, Refusal):
            return Response(wrong.code, self._error_fields, wrong.remark)
        self.stats.failures.messages += 1
        code = codes.SERVICE_NOT_AVAILABLE
        if isinstance(wrong, IllegalMessage):
            code = codes.MESSAGE_ILLEGAL
        return Response(code, self._error_fields, str(wrong))


def _value(text: str, name: str) -> str:
    """The value of a property in a properties text, empty when it isn't there."""
    return properties.decode(text).get(name, "")


def _no_batch() -> Refusal:
    return Refusal(
        codes.MESSAGE_ILLEGAL,
        "the message has the property INNER_NUM, which only batches in batch queues have; send it "
        "as a batch, or leave the property out",
    )


def _busy() -> Refusal:
    return Refusal(
        codes.SYSTEM_BUSY,
        f"[OVERLOAD]{WAITING_MAX} messages wait for the disk or for slaves, which is the limit; "
        "try again later, or set flushDiskType=ASYNC_FLUSH and inSyncReplicas=1",
    )
