"""A search over the messages of a time, by queue and offset: streamed, with its progress, and
resumable. `newest` has the one that begins at the end."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from ...client.base.concurrent import each
from ...client.errors import AerobeeError
from ...client.pull.reader import Reader
from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.errors import Malformed
from ...protocol.filters.sql92 import Predicate
from ...protocol.message.record import Record, decode_all
from ..texts import Text, TextError
from ..times import TIME_MS_MAX
from .fields import Fields, Reads

PULL_MESSAGES = 1_024  # of one request; a broker may give fewer
SLICE_MESSAGES = 64  # checked before others are served
CURSOR_CHARS_MAX = 16 << 10
HITS_MAX = 500
SCANNED_MAX = 5_000_000


class BadCursor(TextError):
    """A cursor that is none of this search."""


@dataclass(slots=True)
class Progress:
    """The progress of a search. `left` counts the messages not checked, `why` says why the search
    ended before them, None at its end. `faults` are queues that could not be read, and why."""

    scanned: int = 0
    found: int = 0
    left: int = 0
    why: str | None = None
    cursor: str | None = None
    faults: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Part:
    """What is to be read of a queue: the messages from `offset` to before `end`."""

    queue: MessageQueue
    offset: int
    end: int

    @property
    def place(self) -> tuple[str, int]:
        """The queue, as a cursor has it."""
        return self.queue.broker_name, self.queue.queue_id


async def search(
    reader: Reader,
    topic: str,
    begin_ms: int,
    end_ms: int,
    matches: Predicate | None,
    *,
    cursor: str = "",
    hits_max: int = HITS_MAX,
    scanned_max: int = SCANNED_MAX,
    reads: Reads | None = None,
) -> AsyncIterator[Record | Progress]:
    """The messages stored from `begin_ms` to before `end_ms` that match, all without `matches`.

    After each pull comes the progress, the last one with `why` or at the end. BadCursor for a
    cursor that is none of this topic. `reads` gives the values of bodies that have a type.
    """
    progress = Progress()
    within = within_time(begin_ms, end_ms, matches, reads)
    parts = await parts_of(reader, topic, begin_ms, end_ms, progress)
    if cursor:
        offsets = places(cursor, topic)
        for part in parts:
            part.offset = max(part.offset, offsets.get(part.place, part.end))
        parts = [part for part in parts if part.offset < part.end]
    while parts and progress.why is None:
        part = parts.pop(0)
        try:
            pulled = await reader.pull(
                part.queue, part.offset, min(PULL_MESSAGES, part.end - part.offset), bulk=True
            )
            records = decode_all(pulled.body)
        except (AerobeeError, Malformed) as wrong:
            progress.faults.append(fault(part.queue, wrong))
            continue
        before = part.offset
        part.offset = min(part.end, max(pulled.next_offset, before))
        if pulled.code == codes.SUCCESS:
            async for record in _hits(records, part, within, progress):
                yield record
                if progress.found >= hits_max:
                    part.offset = record.queue_offset + 1
                    progress.why = found_all(hits_max)
                    break
        elif part.offset == before:
            part.offset = part.end  # nothing is there, and nothing will come
        if progress.scanned >= scanned_max and progress.why is None:
            progress.why = looked_at_all(scanned_max)
        if part.offset < part.end:
            parts.append(part)
        progress.left = sum(one.end - one.offset for one in parts)
        progress.cursor = cursor_of(topic, {one.place: one.offset for one in parts})
        yield progress
    if not progress.scanned:
        yield progress


async def _hits(
    records: list[Record],
    part: Part,
    within: Callable[[Record], bool],
    progress: Progress,
) -> AsyncIterator[Record]:
    for number, record in enumerate(records, 1):
        if number % SLICE_MESSAGES == 0:
            await asyncio.sleep(0)
        if record.queue_offset >= part.end:
            return
        progress.scanned += 1
        if within(record):
            progress.found += 1
            yield record


def within_time(
    begin_ms: int, end_ms: int, matches: Predicate | None, reads: Reads | None
) -> Callable[[Record], bool]:
    """True for the messages of this time that match."""

    def within(record: Record) -> bool:
        return begin_ms <= record.store_ms < end_ms and (
            matches is None or matches(Fields(record, reads))
        )

    return within


def found_all(count: int) -> Text:
    """Why a search ends: it has found enough."""
    return Text("%(count)s messages were found, the limit of one page", count=f"{count:,}")


def looked_at_all(count: int) -> Text:
    """Why a search ends: it has read enough."""
    return Text("%(count)s messages were looked at, the limit of one search", count=f"{count:,}")


async def parts_of(
    reader: Reader, topic: str, begin_ms: int, end_ms: int, progress: Progress
) -> list[Part]:
    """The queues with their offsets of this time; where a broker is away that is noted."""

    async def bounds(queue: MessageQueue) -> Part | None:
        try:
            least, most = await reader.min_offset(queue), await reader.max_offset(queue)
            begin = max(least, await reader.offset_at(queue, begin_ms)) if begin_ms else least
            # One more than by time: brokers differ in what they answer for an exact time.
            ends = end_ms >= TIME_MS_MAX
            end = most if ends else min(most, await reader.offset_at(queue, end_ms) + 1)
        except AerobeeError as wrong:
            progress.faults.append(fault(queue, wrong))
            return None
        return Part(queue, begin, end) if begin < end else None

    found = [one for one in await each(await reader.queues(topic), bounds) if one is not None]
    progress.left = sum(one.end - one.offset for one in found)
    return found


def fault(queue: MessageQueue, wrong: Exception) -> Text:
    """A queue that could not be read, and why."""
    return Text(
        "queue %(queue_id)s of %(broker_name)s: %(wrong)s",
        queue_id=queue.queue_id,
        broker_name=queue.broker_name,
        wrong=wrong,
    )


def cursor_of(topic: str, offsets: dict[tuple[str, int], int]) -> str | None:
    """A text to go on with from these offsets; None where nothing is left."""
    if not offsets:
        return None
    rows = [[broker, queue, offset] for (broker, queue), offset in offsets.items()]
    return base64.urlsafe_b64encode(json.dumps([topic, rows]).encode()).decode()


def places(cursor: str, topic: str) -> dict[tuple[str, int], int]:
    """The offsets of a cursor; BadCursor for one that is none of this topic."""
    try:
        if len(cursor) > CURSOR_CHARS_MAX:
            raise ValueError
        of, rows = json.loads(base64.urlsafe_b64decode(cursor))
        if of != topic:
            raise ValueError
        return {(str(broker), int(queue)): int(offset) for broker, queue, offset in rows}
    except (ValueError, TypeError, RecursionError):
        raise BadCursor(
            "the cursor is none of a search in %(topic)s; begin the search again without it",
            topic=topic,
        ) from None
