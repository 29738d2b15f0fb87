"""END_TRANSACTION (37): a producer commits its half message or rolls it back; and
RESUME_CHECK_HALF_MESSAGE (323): a half message that was given up is checked again."""

from collections.abc import Callable
from dataclasses import dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.transactions import EndTransaction, ResumeCheck
from ...protocol.message import properties
from ...protocol.message.message_id import parse_offset_message_id
from ...protocol.message.property_effects import DELAYS
from ...protocol.message.record import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    Record,
    decode_record,
)
from ...protocol.message.tags import tag_hash
from ...store.base.errors import StoreError
from ...store.engine.messages import Message
from ...store.engine.store import MessageStore
from ..access import gates, needs
from ..runtime.stats import Stats
from ..runtime.syncer import Syncer
from ..scheduled.delivery_policy import DeliveryPolicy
from ..settings.config import BrokerConfig
from .counts import TransactionCounts
from .transactions import GIVEN_UP_TOPIC, HALF_TOPIC, Transactions, immunity_ms

NOT_KNOWN = 0  # TRANSACTION_NOT_TYPE


@dataclass(slots=True, eq=False)
class TransactionHandlers:
    """Ends transactions. `mark((topic, queue))` reports a committed message; `syncer` is None where
    responses don't wait for the disk."""

    config: BrokerConfig
    store: MessageStore
    delivery_policy: DeliveryPolicy
    transactions: Transactions
    counts: TransactionCounts
    stats: Stats
    syncer: Syncer | None
    mark: Callable[[tuple[str, int]], None]
    now_ms: Callable[[], int]

    def rows(self) -> list[Row]:
        return [
            Row(
                codes.END_TRANSACTION,
                EndTransaction,
                self.on_end,
                needs.END_TRANSACTION,
                gates.TRANSACTION,
                hot=True,
            ),
            Row(
                codes.RESUME_CHECK_HALF_MESSAGE,
                ResumeCheck,
                self.on_resume,
                needs.TOPIC_UPDATE,
                gates.TRANSACTION,
            ),
        ]

    def on_end(
        self, header: EndTransaction, command: Command, connection: Connection
    ) -> Response | None:
        if header.outcome == NOT_KNOWN:
            return None  # RocketMQ doesn't respond, and checks again later
        if header.outcome not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"commitOrRollback field wrong: it is {header.outcome}, and can be "
                f"{TRANSACTION_COMMIT} to commit, {TRANSACTION_ROLLBACK} to roll back, or "
                f"{NOT_KNOWN} where that is not known yet",
            )
        half, pairs = self._half(header)
        topic = pairs.get(properties.REAL_TOPIC, "")
        end = 0
        try:
            if header.outcome == TRANSACTION_COMMIT:
                end = self._commit(half, pairs)
            self.transactions.end(half.queue_offset)
        except StoreError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
        if not end:
            self.counts.rolled_back(topic)
            return OK
        self.counts.committed(topic, half.born_ms)
        if self.syncer is None:
            return OK
        # Late or not, it is stored: RocketMQ answers both the same.
        responses = self.syncer.each([(connection, command, OK)], lambda same, code: same)
        self.syncer.after(end, responses)
        return None

    def on_resume(self, header: ResumeCheck, command: Command, connection: Connection) -> Response:
        try:
            _, offset = parse_offset_message_id(header.msg_id)
        except ValueError as wrong:
            raise Refusal(
                codes.SYSTEM_ERROR, f"{wrong}; name the message by its offset id"
            ) from None
        data = self.store.message_at(offset)
        given_up = None if data is None else decode_record(data)
        if given_up is None or given_up.topic != GIVEN_UP_TOPIC:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed: no message of "
                f"{GIVEN_UP_TOPIC} begins at {offset}; pass on the id of one from there",
            )
        try:
            self.transactions.resume(given_up)
        except StoreError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
        return OK

    def _half(self, header: EndTransaction) -> tuple[Record, dict[str, str]]:
        """The half message of the request, with its properties; Refusal when it doesn't fit the
        request."""
        # The answer to a check can be here before readers may see the half message, which a check
        # writes again. Where that one is lost, what is written behind it is as well.
        place = header.log_offset
        data = self.store.message_at(place, all_written=True) if place >= 0 else None
        half = None if data is None else decode_record(data)
        if half is None or half.topic != HALF_TOPIC:
            raise Refusal(
                codes.SYSTEM_ERROR,
                "Find prepared transaction message failed: no half message begins at "
                f"{header.log_offset}; pass on the commitLogOffset of the send's msgId",
            )
        pairs = half.properties
        common_ms = self.config.transaction_time_out
        own_ms = immunity_ms(pairs, common_ms)
        if own_ms is not None and not header.from_check:
            limit_ms = max(own_ms, common_ms)
            age_ms = self.now_ms() - half.born_ms
            if age_ms > limit_ms:
                raise Refusal(
                    codes.ILLEGAL_OPERATION,
                    f"the transaction began {age_ms} ms ago, the limit is {limit_ms} ms "
                    "(CHECK_IMMUNITY_TIME_IN_SECONDS, transactionTimeOut); answer the next check",
                )
        group = pairs.get(properties.PGROUP)
        if group != header.group:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"The producer group wrong: the message is of {group}, the request of "
                f"{header.group}",
            )
        if half.queue_offset != header.queue_offset:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"The transaction state table offset wrong: the message has {half.queue_offset}, "
                f"the request {header.queue_offset}",
            )
        return half, pairs

    def _commit(self, half: Record, pairs: dict[str, str]) -> int:
        """Store the message for its readers; the log offset after it."""
        topic = pairs[properties.REAL_TOPIC]
        queue_id = self.store.queue_left(topic, int(pairs[properties.REAL_QID]))
        # The properties stay as they are: consumers may see those of the half message.
        raw = properties.ended(half.raw_properties)
        place = (topic, queue_id)
        if not DELAYS.isdisjoint(pairs):
            found = self.delivery_policy.place(raw.decode(errors="replace"), topic, queue_id)
            place, raw = (found.topic, found.queue_id), found.text.encode()
        start, _, end = self.store.put(
            Message(
                place,
                half.flag,
                half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
                half.born_ms,
                half.born_host,
                half.body,
                raw,
                tag_hash(pairs.get(properties.TAGS)),
                half.reconsume_times,
                half.log_offset,
            ),
            is_moved=True,
        )
        self.stats.put(place[0], end - start)
        self.mark(place)
        return end
