"""The copy of one queue: every message once, in order."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.message import properties as props
from ...protocol.message.batch import ENTRY_BYTES_MIN, Entry, encode_batch
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ..errors import AerobeeError, BrokerError
from ..group.process_queue import name_of
from ..producer.batch import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX
from ..producer.encoding import EncodedMessage
from .origin import GROUP, PROPERTY, Origin
from .side import Side
from .source import SAFE_PROPERTIES_BYTES, Copyable, Source

log = logging.getLogger(__name__)

TAIL_MESSAGES = 32  # one pull of the search for the last copied message
TAIL_MESSAGES_MAX = 4_096  # of other senders behind the last copied message
PASSED_OVER_SHOWN_MAX = 10  # offsets of a queue in the report
MARK_BYTES = 300  # room for the property, in the size of a batch


class QueueCopy:
    """Copies `source` to `target`, where this mirror is the only one that copies it.

    `offset` is the next one to be copied, `end` the source's end as it was last seen, and
    `target_offset` where the last copied message is in the target. One request is under way at a
    time. When its outcome is unknown the target's newest messages tell: so nothing is copied twice,
    unless other senders put more than `TAIL_MESSAGES_MAX` messages behind the last copied one.
    """

    def __init__(
        self,
        sides: tuple[Source, Side],
        queues: tuple[MessageQueue, MessageQueue],
        cluster: str,
    ) -> None:
        self._from, self._to = sides
        self.source, self.target = queues
        self.origin = Origin(cluster, self.source)
        self.offset = 0
        self.end = 0
        self.target_offset = -1  # unknown
        self.copied = 0
        self.store_ms = 0  # of the message that was copied last
        self.failure: Exception | None = None  # why it does not go on
        self.passed_over = 0  # messages that can't be copied
        self._passed_over: list[str] = []  # the first of them
        self._is_doubtful = True  # `offset` may be too low

    @property
    def lag(self) -> int:
        """The number of messages of the source that are not copied."""
        return max(0, self.end - self.offset) + self.passed_over

    @property
    def failures(self) -> list[str]:
        """The error that stops the copy, and the messages that it has passed over."""
        found = [] if self.failure is None else [str(self.failure)]
        more = self.passed_over - len(self._passed_over)
        return found + self._passed_over + ([f"{more} more can't be copied"] if more else [])

    @property
    def is_behind(self) -> bool:
        """There is something to be copied, or to be found out."""
        return self.offset < self.end or self._is_doubtful

    async def catch_up(self, first_offset: Callable[[bool], Awaitable[int]]) -> None:
        """Copy up to the source's `end`; `failure` says why it could not.

        A queue without any copied message begins at `first_offset`, which is told whether the
        target has never had one.
        """
        before, self.failure = self.failure, None
        try:
            if self._is_doubtful:
                await self._resume(first_offset)
            while self.offset < self.end:
                await self._copy_some()
        except AerobeeError as wrong:
            self.failure = wrong
        except Exception as wrong:  # of ours: the other queues go on
            if repr(before) != repr(wrong):
                log.exception("%s can't be copied", name_of(self.source))
            self.failure = wrong

    async def translate(self, offset: int) -> int | None:
        """The target's offset for an offset of the source, None while it is not known.

        All copies before the target's offset are of messages before the source's.
        """
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

    async def _resume(self, first_offset: Callable[[bool], Awaitable[int]]) -> None:
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
            self.offset = await first_offset(begin == 0)
        self._is_doubtful = False

    async def _copy_some(self) -> None:
        found = await self._from.read(self.source, self.offset)
        for part in parts(found.messages, self.target.topic):
            await self._send(part)
        if not found.messages and found.next_offset > self.offset:
            log.info(
                "%s has nothing to copy at %d to %d",
                name_of(self.source),
                self.offset,
                found.next_offset - 1,
            )
        elif found.next_offset <= self.offset and not found.messages:
            self.end = self.offset  # it said more than there is
        self.offset = max(self.offset, found.next_offset)

    async def _send(self, part: list[Copyable]) -> None:
        first, last = part[0], part[-1]
        if _is_too_wide(first):
            size, most = len(first.raw_properties), props.PROPERTIES_BYTES_MAX
            self._pass_over(first, f"{size} bytes, the limit is {most}")
            return
        if len(part) == 1:
            code, body, flags, flag = codes.SEND_MESSAGE_V2, first.body, first.sys_flag, first.flag
            text = self._properties(first).decode(errors="replace")
        else:
            code, flags, text, flag = codes.SEND_BATCH_MESSAGE, 0, "", 0
            body = encode_batch(
                Entry(each.flag, each.body, self._properties(each)) for each in part
            )
        copy = EncodedMessage(
            self.target.topic, code, body, text, flag, flags, "", batch=len(part) > 1
        )
        header = copy.header(GROUP, self.target)
        header.born_ms, header.reconsume_times = first.born_ms, first.reconsume_times
        self._is_doubtful = True  # until the response is there
        try:
            at = await self._to.send(code, header, self.target, body)
        except BrokerError as wrong:
            self._is_doubtful = False
            if wrong.code != codes.MESSAGE_ILLEGAL or not any(map(_is_wide, part)):
                raise
            if len(part) == 1:
                self._pass_over(first, str(wrong))
                return
            for each in part:
                await self._send([each])
            return
        self._is_doubtful = False
        self.target_offset = at + len(part) - 1
        self.offset = last.offset + 1
        self.store_ms = last.store_ms
        self.copied += len(part)

    def _pass_over(self, message: Copyable, why: str) -> None:
        text = f"message {message.offset} can't be copied: its properties are too large: {why}"
        log.warning("%s: %s", name_of(self.source), text)
        self.offset = message.offset + 1
        self.passed_over += 1
        if len(self._passed_over) < PASSED_OVER_SHOWN_MAX:
            self._passed_over.append(text)

    def _properties(self, message: Copyable) -> bytes:
        """The properties of the copy, in their stored form."""
        kept, mark = message.raw_properties, self.origin.pair(message.offset)
        if len(kept) + len(mark) > props.PROPERTIES_BYTES_MAX:
            log.warning(
                "message %d of %s has %d bytes of properties: its copy lacks the property %s, for "
                "which %d are needed, and comes twice if the mirror stops right behind it",
                message.offset,
                name_of(self.source),
                len(kept),
                PROPERTY,
                len(mark),
            )
            return kept
        return kept + mark


def _is_wide(message: Copyable) -> bool:
    """True if the properties may leave the broker no room for those that it adds."""
    return len(message.raw_properties) > SAFE_PROPERTIES_BYTES


def _is_too_wide(message: Copyable) -> bool:
    """True if the properties don't fit into a record."""
    return len(message.raw_properties) > props.PROPERTIES_BYTES_MAX


def parts(messages: Iterable[Copyable], topic: str) -> Iterator[list[Copyable]]:
    """Divide messages into the parts that one request each sends.

    The messages of a batch have one born time and no compressed body. A message that does not fit
    into a record is alone. There are no batches for retry and dead letter topics.
    """
    is_single = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    part: list[Copyable] = []
    size = 0
    for message in messages:
        more = ENTRY_BYTES_MIN + len(message.body) + len(message.raw_properties) + MARK_BYTES
        if part and (
            is_single
            or message.sys_flag
            or part[0].sys_flag
            or _is_too_wide(message)
            or _is_too_wide(part[0])
            or message.reconsume_times != part[0].reconsume_times
            or message.born_ms != part[0].born_ms
            or len(part) >= BATCH_MESSAGES_MAX
            or size + more > BATCH_BYTES_MAX
        ):
            yield part
            part, size = [], 0
        part.append(message)
        size += more
    if part:
        yield part
