"""A search over the messages of a time: streamed, with its progress, and resumable."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from ...client.errors import AerobeeError, ClientError
from ...client.pull.reader import Reader
from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.errors import Malformed
from ...protocol.filters.sql92 import Predicate
from ...protocol.message.record import Record, decode_all
from ..texts import Text
from .fields import Fields, Reads

PULL_MESSAGES = 1_024  # of one request; a broker may give fewer
SLICE_MESSAGES = 64  # checked before others are served
CURSOR_CHARS_MAX = 16 << 10
HITS_MAX = 500
SCANNED_MAX = 5_000_000


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
class _Part:
    queue: MessageQueue
    offset: int
    end: int


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

    After each pull comes the progress, the last one with `why` or at the end. ClientError for a
    cursor that is none of this topic. `reads` gives the values of bodies that have a type.
    """
    progress = Progress()

    def within(record: Record) -> bool:
        return begin_ms <= record.store_ms < end_ms and (
            matches is None or matches(Fields(record, reads))
        )

    parts = await _parts(reader, topic, begin_ms, end_ms, progress)
    if cursor:
        _resume(parts, cursor, topic)
    while parts and progress.why is None:
        part = parts.pop(0)
        try:
            pulled = await reader.pull(
                part.queue, part.offset, min(PULL_MESSAGES, part.end - part.offset), bulk=True
            )
            records = decode_all(pulled.body)
        except (AerobeeError, Malformed) as wrong:
            progress.faults.append(_fault(part.queue, wrong))
            continue
        before = part.offset
        part.offset = min(part.end, max(pulled.next_offset, before))
        if pulled.code == codes.SUCCESS:
            async for record in _hits(records, part, within, progress):
                yield record
                if progress.found >= hits_max:
                    part.offset = record.queue_offset + 1
                    progress.why = Text(
                        "%(count)s messages were found, the limit of one page",
                        count=f"{hits_max:,}",
                    )
                    break
        elif part.offset == before:
            part.offset = part.end  # nothing is there, and nothing will come
        if progress.scanned >= scanned_max and progress.why is None:
            progress.why = Text(
                "%(count)s messages were looked at, the limit of one search",
                count=f"{scanned_max:,}",
            )
        if part.offset < part.end:
            parts.append(part)
        progress.left = sum(one.end - one.offset for one in parts)
        progress.cursor = _cursor(parts) if parts else None
        yield progress
    if not progress.scanned:
        yield progress


async def _hits(
    records: list[Record],
    part: _Part,
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


async def _parts(
    reader: Reader, topic: str, begin_ms: int, end_ms: int, progress: Progress
) -> list[_Part]:
    """The queues with their offsets of this time; where a broker is away that is noted."""
    found = []
    for queue in await reader.queues(topic):
        try:
            least, most = await reader.min_offset(queue), await reader.max_offset(queue)
            begin = max(least, await reader.offset_at(queue, begin_ms)) if begin_ms else least
            # One more than by time: brokers differ in what they answer for an exact time.
            end = min(most, await reader.offset_at(queue, end_ms) + 1)
        except AerobeeError as wrong:
            progress.faults.append(_fault(queue, wrong))
            continue
        if begin < end:
            found.append(_Part(queue, begin, end))
    progress.left = sum(one.end - one.offset for one in found)
    return found


def _fault(queue: MessageQueue, wrong: Exception) -> str:
    return Text(
        "queue %(queue_id)s of %(broker_name)s: %(wrong)s",
        queue_id=queue.queue_id,
        broker_name=queue.broker_name,
        wrong=wrong,
    )


def _cursor(parts: list[_Part]) -> str:
    rows = [[one.queue.broker_name, one.queue.queue_id, one.offset] for one in parts]
    return base64.urlsafe_b64encode(json.dumps(rows).encode()).decode()


def _resume(parts: list[_Part], cursor: str, topic: str) -> None:
    """Go on where an earlier search ended."""
    try:
        if len(cursor) > CURSOR_CHARS_MAX:
            raise ValueError
        rows = json.loads(base64.urlsafe_b64decode(cursor))
        offsets = {(str(broker), int(queue)): int(offset) for broker, queue, offset in rows}
    except (ValueError, TypeError, RecursionError):
        raise ClientError(
            f"the cursor is none of a search in {topic}; begin the search again without it"
        ) from None
    for part in list(parts):
        offset = offsets.get((part.queue.broker_name, part.queue.queue_id))
        if offset is None or offset >= part.end:
            parts.remove(part)
        else:
            part.offset = max(part.offset, offset)
