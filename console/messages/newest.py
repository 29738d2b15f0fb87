"""A search that gives the newest messages first, over all queues of a topic.

Each queue is read from its end towards its begin, a chunk at a time: next the queue whose rest may
have the newest message. What was found waits until no rest can have a newer one.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator
from dataclasses import dataclass
from math import inf

from ...client.errors import AerobeeError
from ...client.pull.reader import Reader
from ...protocol import codes
from ...protocol.errors import Malformed
from ...protocol.filters.sql92 import Predicate
from ...protocol.message.record import Record, decode_all
from .fields import Reads
from .search import (
    HITS_MAX,
    PULL_MESSAGES,
    SCANNED_MAX,
    SLICE_MESSAGES,
    Part,
    Progress,
    cursor_of,
    fault,
    found_all,
    looked_at_all,
    parts_of,
    places,
    within_time,
)

CHUNK_MESSAGES_MIN = 4


@dataclass(slots=True)
class _Rest:
    """What is to be read of a queue: none of it was stored after `newest_ms`. `chunk` messages are
    read next."""

    part: Part
    chunk: int
    newest_ms: float = inf


async def newest_first(
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
    """The messages stored from `begin_ms` to before `end_ms` that match, the newest first.

    The rest is as of `search`: progress comes after each chunk, BadCursor for a cursor that is
    none.
    """
    progress = Progress()
    within = within_time(begin_ms, end_ms, matches, reads)
    parts = await parts_of(reader, topic, begin_ms, end_ms, progress)
    if cursor:
        ends = places(cursor, topic)
        for part in parts:
            part.end = min(part.end, ends.get(part.place, part.offset))
        parts = [part for part in parts if part.offset < part.end]
    total = sum(part.end - part.offset for part in parts)
    read = 0  # with those that will be read again
    chunk = max(CHUNK_MESSAGES_MIN, min(PULL_MESSAGES, 2 * hits_max // max(1, len(parts))))
    rests = [_Rest(part, chunk) for part in parts]
    held: list[tuple[float, int, Part, Record]] = []  # a heap, the newest first
    number = 0  # of what was held, so that records are not compared
    while rests and progress.why is None:
        rest = max(rests, key=lambda one: one.newest_ms)
        try:
            records = await _before(reader, rest)
        except (AerobeeError, Malformed) as wrong:
            progress.faults.append(fault(rest.part.queue, wrong))
            records, rest.part.end = [], rest.part.offset
        for each, record in enumerate(reversed(records), 1):
            if each % SLICE_MESSAGES == 0:
                await asyncio.sleep(0)
            # Within a queue offsets decide, also where a broker's clock went back.
            rest.newest_ms = min(rest.newest_ms, record.store_ms)
            if within(record):
                number += 1
                heapq.heappush(held, (-rest.newest_ms, number, rest.part, record))
        read += len(records)
        if rest.part.offset >= rest.part.end:
            rests.remove(rest)
        newest_ms = max((one.newest_ms for one in rests), default=-inf)
        while held and -held[0][0] >= newest_ms and progress.found < hits_max:
            progress.found += 1
            yield heapq.heappop(held)[-1]
        if progress.found >= hits_max and (held or rests):
            progress.why = found_all(hits_max)
        elif read >= scanned_max and rests and newest_ms < inf:
            # Each queue was read once, so that the one with the newest rest has none held: a search
            # that goes on from here is further than this one was.
            progress.why = looked_at_all(scanned_max)
        ends = {rest.part.place: rest.part.end for rest in rests}
        for _, _, part, record in held:  # to be read again
            ends[part.place] = max(ends.get(part.place, 0), record.queue_offset + 1)
        progress.left = sum(ends[part.place] - part.offset for part in parts if part.place in ends)
        progress.scanned = total - progress.left
        progress.cursor = cursor_of(topic, ends)
        yield progress
    if not parts:
        yield progress


async def _before(reader: Reader, rest: _Rest) -> list[Record]:
    """The next chunk of a queue, which is then no part of its rest any more."""
    part = rest.part
    at = begin = max(part.offset, part.end - rest.chunk)
    records: list[Record] = []
    while at < part.end:
        pulled = await reader.pull(part.queue, at, min(PULL_MESSAGES, part.end - at), bulk=True)
        if pulled.code == codes.SUCCESS:
            records += [one for one in decode_all(pulled.body) if at <= one.queue_offset < part.end]
        if pulled.next_offset <= at:
            break  # nothing is there, and nothing will come
        at = pulled.next_offset
    part.end = begin
    rest.chunk = min(PULL_MESSAGES, 2 * rest.chunk)
    return records
