"""The copy of one queue: every message once, in order."""

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.headers.send import SendMessage
from ...protocol.message import properties as props
from ...protocol.message.batch import ENTRY_BYTES_MIN, Entry, encode_batch, unwrap_all
from ...protocol.message.record import (
    COMPRESSED,
    COMPRESSION_MASK,
    MULTI_TAGS,
    Record,
    decode_all,
)
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ..cluster.routes import TEMPLATE_QUEUES_MAX, TEMPLATE_TOPIC
from ..errors import AerobeeError, BrokerError, ClientError
from ..group.process_queue import name_of
from ..producer.batch import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX
from ..pull.reader import Pulled
from .origin import PROPERTY, Origin, is_copy
from .side import Side

log = logging.getLogger(__name__)

PRODUCER_GROUP = "aerobee-mirror"
PULL_MESSAGES = 1_024
TAIL_MESSAGES = 32  # one pull of the search for the last copied message
TAIL_MESSAGES_MAX = 4_096  # of other senders behind the last copied message
MARK_BYTES = 300  # room for the property, in the size of a batch
KEPT_FLAGS = COMPRESSED | COMPRESSION_MASK | MULTI_TAGS  # of the system flag
# A broker acts on these, or writes them: what they asked for has been done at the source.
DROPPED = (
    *(props.TRAN_MSG, props.DELAY, props.REAL_TOPIC, props.REAL_QID, props.POP_CK, props.CRC32),
    *(props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS, props.TIMER_DELIVER_MS, props.TIMER_DEL_UNIQKEY),
    PROPERTY,
)
MAY_BE_DROPPED = re.compile("|".join(map(re.escape, DROPPED)).encode())


class QueueCopy:
    """Copies `source` to `target`, where this mirror is the only one that copies it.

    `offset` is the next one to be copied, `end` the source's end as it was last seen, and
    `target_offset` where the last copied message is in the target. One request is under way at a
    time. When its outcome is unknown the target's newest messages tell: so nothing is copied twice,
    unless other senders put more than `TAIL_MESSAGES_MAX` messages behind the last copied one.
    With `relay` the copies of another mirror are copied, too.
    """

    def __init__(
        self,
        sides: tuple[Side, Side],
        queues: tuple[MessageQueue, MessageQueue],
        cluster: str,
        *,
        relay: bool = False,
    ) -> None:
        self._from, self._to = sides
        self.source, self.target = queues
        self.origin = Origin(cluster, self.source)
        self._relay = relay
        self.offset = 0
        self.end = 0
        self.target_offset = -1  # unknown
        self.copied = 0
        self.store_ms = 0  # of the message that was copied last
        self.failure: AerobeeError | None = None  # why it does not go on
        self._is_doubtful = True  # `offset` may be too low

    @property
    def lag(self) -> int:
        """How many messages of the source are not copied yet."""
        return max(0, self.end - self.offset)

    @property
    def is_behind(self) -> bool:
        """There is something to be copied, or to be found out."""
        return self.offset < self.end or self._is_doubtful

    async def catch_up(self, first_offset: Callable[[], Awaitable[int]]) -> None:
        """Copy up to the source's `end`; `failure` says why it could not.

        A queue without any copied message begins at `first_offset`.
        """
        self.failure = None
        try:
            if self._is_doubtful:
                await self._resume(first_offset)
            while self.offset < self.end:
                await self._copy_some()
        except AerobeeError as wrong:
            self.failure = wrong

    async def translate(self, offset: int) -> int | None:
        """The offset of the target that means this one of the source: all copies before it are of
        messages before it. None while nothing tells."""
        if self._is_doubtful or self.target_offset < 0:
            return None
        if offset >= self.offset:
            return self.target_offset + 1
        low, high = await self._to.min_offset(self.target), self.target_offset + 1
        while low < high:  # for the first copy of a message at `offset` or behind it
            middle = (low + high) // 2
            at, found = await self._next_copy(middle, high)
            if found is None or found >= offset:
                high = middle
            else:
                low = at + 1
        at, found = await self._next_copy(low, self.target_offset + 1)
        return low if found is None else at

    # --- inside ---------------------------------------------------------------------------------

    async def _next_copy(self, offset: int, end: int) -> tuple[int, int | None]:
        """The first copied message in this part of the target: its offset there and at the source;
        `end` and None when there is none."""
        while offset < end:
            records = await self._to.records(self.target, offset, min(TAIL_MESSAGES, end - offset))
            for record in records:
                found = self.origin.offset_of(record)
                if found is not None:
                    return record.queue_offset, found
            offset = records[-1].queue_offset + 1 if records else end
        return end, None

    async def _resume(self, first_offset: Callable[[], Awaitable[int]]) -> None:
        """Find out how far the copy is."""
        end = await self._to.max_offset(self.target)
        begin = max(await self._to.min_offset(self.target), end - TAIL_MESSAGES_MAX)
        while end > begin:
            start = max(begin, end - TAIL_MESSAGES)
            for record in reversed(await self._to.records(self.target, start, end - start)):
                copied = self.origin.offset_of(record)
                if copied is not None:
                    self.offset = max(self.offset, copied + 1)  # it may have passed over others
                    self.target_offset = record.queue_offset
                    self._is_doubtful = False
                    return
            end = start
        if not self.offset:
            self.offset = await first_offset()
        self._is_doubtful = False

    async def _copy_some(self) -> None:
        pulled = await self._from.pull(self.source, self.offset, PULL_MESSAGES, bulk=True)
        if pulled.code != codes.SUCCESS:
            self._pass_over(pulled)
            return
        records = [
            record
            for record in unwrap_all(decode_all(pulled.body))
            if record.queue_offset >= self.offset
        ]
        for part in parts(record for record in records if self._relay or not is_copy(record)):
            await self._send(part)
        self.offset = max(self.offset, pulled.next_offset)

    def _pass_over(self, pulled: Pulled) -> None:
        """The source does not have the message at `offset`."""
        if pulled.next_offset > self.offset:
            log.warning(
                "messages %d to %d of %s were deleted before they were copied",
                self.offset,
                pulled.next_offset - 1,
                name_of(self.source),
            )
            self.offset = pulled.next_offset
            return
        if pulled.max_offset < self.offset:
            raise ClientError(
                f"{name_of(self.source)} ends at {pulled.max_offset}, and was copied up to "
                f"{self.offset}: it has lost messages, or is another topic of this name; delete "
                "the topic at the target to copy it from its beginning"
            )
        self.end = self.offset

    async def _send(self, part: list[Record]) -> None:
        first = part[0]
        if len(part) == 1:
            code, body, flags = codes.SEND_MESSAGE_V2, first.body, first.sys_flag & KEPT_FLAGS
            text, flag = self._properties(first).decode(errors="replace"), first.flag
        else:
            code, flags, text, flag = codes.SEND_BATCH_MESSAGE, 0, "", 0
            body = encode_batch(
                Entry(record.flag, record.body, self._properties(record)) for record in part
            )
        header = SendMessage(
            PRODUCER_GROUP,
            self.target.topic,
            TEMPLATE_TOPIC,
            TEMPLATE_QUEUES_MAX,
            self.target.queue_id,
            flags,
            first.born_ms,
            flag,
            text,
            reconsume_times=first.reconsume_times,
            unit_mode=False,
            batch=len(part) > 1,
            broker_name=self.target.broker_name,
        )
        self._is_doubtful = True  # until the response is there
        try:
            at = await self._to.send(code, header, self.target, body)
        except BrokerError:
            self._is_doubtful = False
            raise
        self._is_doubtful = False
        self.target_offset = at + len(part) - 1
        self.offset = part[-1].queue_offset + 1
        self.store_ms = part[-1].store_ms
        self.copied += len(part)

    def _properties(self, record: Record) -> bytes:
        """The properties of the copy, in their stored form."""
        kept = record.raw_properties
        if MAY_BE_DROPPED.search(kept) is not None:
            kept = props.without(kept, *DROPPED)
        kept, mark = props.ended(kept), self.origin.pair(record.queue_offset)
        if len(kept) + len(mark) > props.PROPERTIES_BYTES_MAX:
            log.warning(
                "message %d of %s has %d bytes of properties: its copy lacks the property %s, for "
                "which %d are needed, and comes twice if the mirror stops right behind it",
                record.queue_offset,
                name_of(self.source),
                len(kept),
                PROPERTY,
                len(mark),
            )
            return kept
        return kept + mark


def parts(records: Iterable[Record]) -> Iterator[list[Record]]:
    """What goes in one request each: a batch has one born time, and no compressed body."""
    part: list[Record] = []
    size = 0
    for record in records:
        more = ENTRY_BYTES_MIN + len(record.body) + len(record.raw_properties) + MARK_BYTES
        if part and not (
            _is_for_batch(record)
            and _is_for_batch(part[0])
            and record.born_ms == part[0].born_ms
            and len(part) < BATCH_MESSAGES_MAX
            and size + more <= BATCH_BYTES_MAX
        ):
            yield part
            part, size = [], 0
        part.append(record)
        size += more
    if part:
        yield part


def _is_for_batch(record: Record) -> bool:
    return (
        not record.sys_flag & KEPT_FLAGS
        and not record.reconsume_times
        and not record.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    )
