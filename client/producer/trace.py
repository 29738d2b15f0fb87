"""Message trace: records of sends and deliveries, sent to a trace topic.

In the format of Java's AsyncTraceDispatcher, so `mqadmin queryMsgTraceById` and RocketMQ's
dashboards read it: records of fields in one message body, with the ids and keys of the traced
messages as its keys. Best effort: records that the trace topic refuses are logged and dropped.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, Protocol

from ...protocol.message import properties as props
from ...protocol.names import GROUP_CHARS_MAX
from ..base.identity import now_ms
from ..base.message import Message
from ..base.message_view import MessageView
from ..base.receipts import SendReceipt, SendStatus
from ..errors import AerobeeError
from .encoding import EncodedMessage

log = logging.getLogger(__name__)

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
BATCH_MAX = 10  # records of one message (traceMsgBatchNum)
BATCH_BYTES_MAX = 128_000
WAITING_MAX = 2_048  # records not sent yet; more are dropped
FLUSH_SECONDS = 5.0
SEND_SECONDS = 5.0
FIELD, RECORD = "\x01", "\x02"
NORMAL, HALF, COMMIT, DELAYED = 0, 1, 2, 3  # ordinals of Java's MessageType
DELAYS = (props.DELAY, props.TIMER_DELAY_MS, props.TIMER_DELAY_SEC, props.TIMER_DELIVER_MS)

_numbers = itertools.count()


class TraceRecords(NamedTuple):
    """Records of one trace message, with its topic and keys."""

    topic: str
    text: str
    keys: tuple[str, ...]


class TraceProducer(Protocol):
    """Sends trace messages: as much of a `Producer` as a tracer uses."""

    async def start(self) -> None:
        """Get ready to send."""

    async def send(self, message: Message, *, timeout: float) -> SendReceipt:  # noqa: ASYNC109
        """Send and wait until a broker has stored the message."""
        ...

    async def close(self) -> None:
        """Close the connections."""


class Tracer:
    """Collects records and sends them, ten at a time or after five seconds.

    `make` gives a producer of the tracer's own, for this group; it is not traced itself. `kind` is
    PRODUCE or CONSUME: what `group` does.
    """

    def __init__(
        self, topic: str, group: str, make: Callable[[str], TraceProducer], kind: str = "PRODUCE"
    ) -> None:
        self._topic = topic
        self._group = group
        # Group names are limited in length; the unique suffix must survive.
        name = f"_INNER_TRACE_PRODUCER-{group}"[: GROUP_CHARS_MAX - 20]
        self._producer = make(f"{name}-{kind}-{next(_numbers)}")
        self._waiting: list[TraceRecords] = []
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._dropped = 0

    @property
    def topic(self) -> str:
        """Messages of this topic are not traced."""
        return self._topic

    @property
    def group(self) -> str:
        """The group of the traced messages."""
        return self._group

    async def start(self) -> None:
        """Begin to send."""
        await self._producer.start()
        self._task = asyncio.create_task(self._run(), name=f"trace-{self._group}")

    async def close(self) -> None:
        """Send the waiting records and stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._send_all()
        await self._producer.close()

    def sent(
        self,
        encoded: EncodedMessage,
        receipt: SendReceipt,
        address: str,
        region: str,
        began_ms: int,
    ) -> None:
        """Record that the broker at `address` stored a message."""
        pairs = props.decode(encoded.properties)
        cost_ms = now_ms() - began_ms
        kind = NORMAL
        if props.TRAN_MSG in pairs:
            kind = HALF
        elif any(name in pairs for name in DELAYS):
            kind = DELAYED
        self.tell(
            encoded.topic,
            [
                (
                    "Pub",
                    began_ms,
                    region,
                    self._group,
                    encoded.topic,
                    receipt.msg_id,
                    pairs.get(props.TAGS),
                    pairs.get(props.KEYS),
                    address,
                    len(encoded.body),
                    cost_ms,
                    kind,
                    receipt.offset_msg_id,
                    flag(receipt.status is SendStatus.OK),
                )
            ],
            [*receipt.msg_id.split(","), *props.keys_of(pairs)],
        )

    def ended(
        self,
        receipt: SendReceipt,
        address: str,
        state: str,
        message: Message | MessageView | None,
        *,
        by_check: bool,
    ) -> None:
        """A transaction ended; `state` is COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""
        tags = message.tags if message is not None else None
        given = message.keys if message is not None else ()
        keys = props.keys_of({props.KEYS: given}) if isinstance(given, str) else list(given)
        topic, msg_id = receipt.queue.topic, receipt.msg_id
        self.tell(
            topic,
            [
                (
                    "EndTransaction",
                    now_ms(),
                    "DefaultRegion",
                    self._group,
                    topic,
                    msg_id,
                    tags,
                    " ".join(keys) or None,
                    address,
                    COMMIT,
                    receipt.transaction_id,
                    state,
                    flag(by_check),
                )
            ],
            [msg_id, *keys],
        )

    def recalled(self, topic: str, msg_id: str) -> None:
        """Record that a delayed message was recalled."""
        fields = ("Recall", now_ms(), "DefaultRegion", self._group, topic, msg_id, flag(True))
        self.tell(topic, [fields], [msg_id])

    def tell(self, topic: str, records: Iterable[Iterable[object]], keys: Iterable[str]) -> None:
        """Add records that go together, about messages of `topic`; dropped when too many wait."""
        if len(self._waiting) >= WAITING_MAX:
            self._dropped += 1
            return
        text = "".join(
            FIELD.join("null" if each is None else str(each) for each in fields) + RECORD
            for fields in records
        )
        self._waiting.append(TraceRecords(topic, text, tuple(keys)))
        if len(self._waiting) >= BATCH_MAX:
            self._more.set()

    # --- inside ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._more.wait()
            self._more.clear()
            await self._send_all()

    async def _send_all(self) -> None:
        if self._dropped:
            log.warning(
                "%d trace records of group %s were dropped: %d waited, which is the limit",
                self._dropped,
                self._group,
                WAITING_MAX,
            )
            self._dropped = 0
        while self._waiting:
            batch = _batch(self._waiting)
            del self._waiting[: len(batch)]
            keys = list(dict.fromkeys(key for told in batch for key in told.keys))
            body = "".join(told.text for told in batch).encode()
            try:
                message = Message(self._topic, body, keys=keys)
                await self._producer.send(message, timeout=SEND_SECONDS)
            except AerobeeError as wrong:
                log.warning("%d trace records are lost: %s", len(batch), wrong)


def _batch(waiting: list[TraceRecords]) -> list[TraceRecords]:
    """The first records that go together: of one topic, not too many, not too long."""
    found: list[TraceRecords] = []
    size = 0
    for told in waiting[:BATCH_MAX]:
        size += len(told.text)
        if found and (told.topic != found[0].topic or size > BATCH_BYTES_MAX):
            break
        found.append(told)
    return found


def trace_topic(trace: bool | str) -> str | None:
    """The topic that the option `trace` of a client means, None for no trace."""
    return TRACE_TOPIC if trace is True else trace or None


def flag(value: bool) -> str:
    """A boolean as Java writes it."""
    return "true" if value else "false"
