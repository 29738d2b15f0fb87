"""SEND_MESSAGE (10, 310) and SEND_BATCH_MESSAGE (320): messages come in, one at a time.

The messages of a loop iteration are collected in a `SendBatch`, and are stored and answered
together at its end. The frequent kind takes one straight path: known topic, queue id in range,
nothing special in its properties. All else (unknown topics, retry topics, messages that wait, half
messages, batches) branches off.
"""

from collections.abc import Callable

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row, our_fault
from ...protocol.aio.rpc_latency import RpcLatency
from ...protocol.codec.frame import HEADS
from ...protocol.command import CODEC_JSON, FLAG_ONEWAY, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.send import SendMessage, SendMessageV1, response_template, send_response
from ...protocol.message import properties
from ...protocol.message.message_id import UniqueIds
from ...protocol.message.property_effects import Effect, names_with
from ...protocol.message.record import TRANSACTION_MASK
from ...protocol.message.tags import TAG_HASHES
from ...protocol.names import (
    RETRY_PREFIX,
)
from ...store.base.errors import IllegalMessage, StoreError
from ...store.engine.messages import MessageFields
from ...store.engine.store import MessageStore
from ..access import gates, needs
from ..runtime.arrivals import NORMAL, SMALL_BYTES, TRANSACTION, type_of
from ..runtime.stats import Stats
from ..runtime.syncer import WAITING_MAX, Answers, EachResponse
from ..scheduled.delivery_policy import DeliveryPolicy, without
from ..settings.config import BrokerConfig
from ..topics.topics import Target, Topics
from ..transactions.counts import TransactionCounts
from ..transactions.transactions import HALF_TOPIC, half_properties
from .batch import PendingSend, SendBatch, StoredTimers, TimerSlot
from .batches import Batches
from .finish import SendFinish
from .router import SEND_V2_OK, Router

HALF_KEY = (HALF_TOPIC, 0)
SPECIAL_PROPERTIES = names_with(Effect.ORDER, Effect.DELAY, Effect.SINGLE)


class SendHandlers:
    """Takes messages into the store: the broker has `store_batch` called each loop iteration."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: Topics,
        router: Router,
        delivery_policy: DeliveryPolicy,
        stats: Stats,
        finish: SendFinish,
        ids: UniqueIds,
        transactions: TransactionCounts,
        latency: RpcLatency,
        now_ms: Callable[[], int],
    ) -> None:
        self.latency = latency
        self.config = config
        self.store = store
        self.topics = topics
        self.router = router
        self.delivery_policy = delivery_policy
        self.stats = stats
        self.finish = finish
        self.syncer = finish.syncer
        self.ids = ids
        self.transactions = transactions
        self.now_ms = now_ms
        self._batch = SendBatch()
        self._placed = delivery_policy.placed
        self._name = config.broker_name
        self._host_hex = store.host_hex
        self._region = config.region_id.encode()
        self._batches = Batches(config, store, topics, delivery_policy, finish)
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
        return [
            Row(codes.SEND_MESSAGE, SendMessageV1, self.on_send, needs.SEND, gates.SEND),
            Row(
                codes.SEND_MESSAGE_V2,
                SendMessage,
                self.on_send,
                needs.SEND_SHORT,
                gates.SEND,
                hot=True,
            ),
            Row(
                codes.SEND_BATCH_MESSAGE,
                SendMessage,
                self.on_send,
                needs.SEND_SHORT,
                gates.SEND,
                hot=True,
            ),
        ]

    def on_send(
        self, header: SendMessage | SendMessageV1, command: Command, connection: Connection
    ) -> Response | None:
        """Take a message into the batch of this loop iteration; a response if it is refused."""
        syncer = self.syncer
        try:
            if syncer is not None and syncer.is_full:
                raise _busy()
            target = self.topics.targets.get(header.topic)
            queue_id = header.queue_id
            if target is None or not 0 <= queue_id < target.queues or target.special:
                target, queue_id = self.router.target(header, command, connection)
            text = header.properties or ""
            if text and text[-1] != properties.PAIR_SEPARATOR:
                text += properties.PAIR_SEPARATOR
            pairs = properties.decode(text)
            waits = syncer is not None and pairs.get(properties.WAIT) != "false"
            if waits:
                self._check_slaves()
            if header.batch:
                self._take_batch(header, command, connection, target, queue_id, pairs, waits=waits)
                return None
            body = command.body
            if body is None:
                raise Refusal(
                    codes.SYSTEM_ERROR, "the message body is empty; send at least one byte"
                )
            unique = pairs.get(properties.UNIQ_KEY)
            if unique is None:
                unique = self.ids.next()
                text += f"UNIQ_KEY\x01{unique}\x02"
            key, sys_flag, kind = target.keys[queue_id], header.sys_flag, NORMAL
            slot: TimerSlot | None = None
            code: int | None = TAG_HASHES[pairs.get(properties.TAGS, "")]
            if not SPECIAL_PROPERTIES.isdisjoint(pairs):
                key, sys_flag, kind, text, code, slot = self._read_special(
                    header, target, key, text, pairs, unique, code
                )
            found = unique.encode()
            self._batch.messages.append(
                (
                    key,
                    header.flag,
                    sys_flag,
                    header.born_ms,
                    connection.host,
                    body,
                    (text + self.suffix).encode(),
                    code,
                    header.reconsume_times or 0,
                    0,
                    None if properties.KEYS in pairs else found,
                )
            )
            self._batch.pending.append(
                (command, connection, queue_id, found, target, waits, kind, slot)
            )
        except (StoreError, Refusal) as wrong:
            return self._declined(wrong)
        return None

    # --- inside ---------------------------------------------------------------------------------

    def _take_batch(
        self,
        header: SendMessage | SendMessageV1,
        command: Command,
        connection: Connection,
        target: Target,
        queue_id: int,
        pairs: dict[str, str],
        *,
        waits: bool,
    ) -> None:
        """Store a batch at once, and have its sender answered."""
        if self._batch.pending or self.topics.made:
            self.store_batch()  # what came before it lies before it
        if self.topics.get(header.topic) is None:
            raise StoreError(
                f"topic {header.topic} can't be kept: topics.json can't be written; "
                "look at the broker's disk"
            )
        end, reply = self._batches.put(header, command, connection, target, queue_id, pairs)
        answers = [(connection, command, reply)]
        if waits and self.syncer is not None:
            responses = self.syncer.each(answers)
        else:
            responses = EachResponse(answers)
        self.finish.respond(end, responses, is_waiting=waits)

    def _read_special(
        self,
        header: SendMessage | SendMessageV1,
        target: Target,
        key: tuple[str, int],
        text: str,
        pairs: dict[str, str],
        unique: str,
        code: int | None,
    ) -> tuple[tuple[str, int], int, str, str, int | None, TimerSlot | None]:
        """The queue, system flag, type, properties, tag hash and timer slot of a message with
        properties that need more than the usual: it may be half, or have a delay."""
        if properties.INNER_NUM in pairs:
            raise _no_batch()
        if properties.POP_CK in pairs:  # the client would pass it off as one that it popped
            text = without(text, (properties.POP_CK,))
        sys_flag, kind = header.sys_flag, type_of(pairs)
        if properties.TRAN_MSG in pairs and self._is_half(text, pairs, header):
            self.transactions.begun(target.name)
            text = half_properties(text, *key, unique)
            # That it is half, its topic says.
            return HALF_KEY, sys_flag & ~TRANSACTION_MASK, TRANSACTION, text, code, None
        if target.name != header.topic:  # a dead letter: it does not wait
            return key, sys_flag, kind, text, code, None
        placed, text, slot_ms = self._placed(text, pairs, key, self.now_ms())
        slot: TimerSlot | None = None
        if slot_ms:
            # Retries can't be recalled; a message that recalls another, the timers read.
            if not (target.special and target.name.startswith(RETRY_PREFIX)):
                slot = TimerSlot(slot_ms, properties.TIMER_DEL_UNIQKEY not in pairs)
        elif placed is not key:
            code = None  # the level of that queue says how long
        return placed, sys_flag, kind, text, code, slot

    def store_batch(self) -> None:
        """Store the messages of this loop iteration, and have their senders answered."""
        if not (self._batch.pending or self.topics.made):
            return
        template, count, end, sent = self._template, self.finish.count, 0, 0
        late: Answers = []
        timers: StoredTimers | None = None
        if self.topics.made:
            self._save_topics()
        messages, pending = self._batch.messages, self._batch.pending
        self._batch.messages, self._batch.pending = [], []
        try:
            places = self.store.put_all(messages)
        except Exception:
            for command, connection, *_ in pending:
                connection.respond(command, our_fault(command))
            return
        for place, message, waiting in zip(places, messages, pending, strict=True):
            command, connection, queue_id, unique, target, waits, kind, slot = waiting
            if isinstance(place, StoreError):
                self._not_stored(message, waiting, place)
                continue
            log_offset, queue_offset, end = place
            size, key, handle = end - log_offset, message[0], b""
            count(target, key, kind, 1, size, (size,) if size > SMALL_BYTES else ())
            if slot is not None:
                timers = timers or StoredTimers(self._name)
                handle = timers.add(slot, target.name, unique, queue_offset, log_offset, size)
            elif target.is_logical and key[0] == target.name:
                queue_offset = target.offset(queue_id, queue_offset)
            reply: Response | bytes
            if command.codec == CODEC_JSON and unique.isalnum() and not handle:
                head = template % (queue_id, unique, log_offset, queue_offset, command.opaque)
                reply = HEADS[len(head)] + head
            else:
                reply = self._response(command, queue_id, unique, log_offset, queue_offset, handle)
            if waits:
                late.append((connection, command, reply))
            elif (
                command.flag & FLAG_ONEWAY
                or type(reply) is not bytes
                or command.code != codes.SEND_MESSAGE_V2
            ):
                connection.respond(command, reply)
            else:  # the connection is flushed at the end of this loop iteration
                connection.transport.out.append(reply)
                sent += 1
        if sent:
            self.latency.answered[SEND_V2_OK] += sent
        if timers is not None:
            self.finish.tell_timers(timers.entries, timers.topics)
        if late and self.syncer is not None:
            self.finish.respond(end, self.syncer.each(late), is_waiting=True)

    def _response(
        self,
        command: Command,
        queue_id: int,
        unique: bytes,
        log_offset: int,
        queue_offset: int,
        handle: bytes,
    ) -> Response | bytes:
        """The response to a send that the usual template does not fit."""
        if command.codec == CODEC_JSON and unique.isalnum():
            head = self._with_handle % (
                handle,
                queue_id,
                unique,
                log_offset,
                queue_offset,
                command.opaque,
            )
            return HEADS[len(head)] + head
        return send_response(
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

    def _save_topics(self) -> None:
        """Write down the topics that were made for the batch; if it fails, their messages are not
        stored."""
        made = {config.topic_name for config in self.topics.made}
        try:
            self.topics.save_made()
        except StoreError as wrong:
            for message, pending in self._batch.remove(made):
                self._not_stored(message, pending, wrong)

    def _not_stored(self, message: MessageFields, pending: PendingSend, why: StoreError) -> None:
        command, connection, _, _, target, *_ = pending
        if message[0] is HALF_KEY:
            self.transactions.not_begun(target.name)
        connection.respond(command, self._declined(why))

    def _is_half(
        self, text: str, pairs: dict[str, str], header: SendMessage | SendMessageV1
    ) -> bool:
        """True if the message begins a transaction; Refusal when it may not."""
        if pairs.get(properties.TRAN_MSG, "").lower() != "true":
            return False
        if (header.reconsume_times or 0) > 0 and self.delivery_policy.level(pairs.get("DELAY")) > 0:
            return False  # a consumer's retry of a message that was committed
        # A delay that would be refused once the message is committed is refused now.
        self._placed(text, pairs, (header.topic, 0), self.now_ms())
        if self.config.reject_transaction_message:
            raise Refusal(
                codes.NO_PERMISSION,
                f"the broker[{self.config.broker_ip1}] sending transaction message is forbidden "
                "(rejectTransactionMessage)",
            )
        return True

    def _check_slaves(self) -> None:
        """Refusal where too few brokers are there for a message that waits for slaves."""
        if self.syncer is not None and self.syncer.shortage:
            raise Refusal(codes.SYSTEM_ERROR, self.syncer.shortage)

    def _declined(self, wrong: StoreError | Refusal) -> Response:
        if isinstance(wrong, Refusal):
            return Response(wrong.code, self._error_fields, wrong.remark)
        self.stats.failures.messages += 1
        code = codes.SERVICE_NOT_AVAILABLE
        if isinstance(wrong, IllegalMessage):
            code = codes.MESSAGE_ILLEGAL
        return Response(code, self._error_fields, str(wrong))


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
