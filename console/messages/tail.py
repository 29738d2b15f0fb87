"""Messages as they come, without a group and without a committed offset."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import NamedTuple

from ...client.base.identity import monotonic
from ...client.errors import AerobeeError, NoRouteError
from ...client.pull.reader import Reader
from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.errors import Malformed
from ...protocol.filters.sql92 import Predicate
from ...protocol.message.record import Record, decode_all
from ..clusters.pace import Pace
from ..texts import text_of
from .fields import Fields

ROWS_MAX = 20  # shown of one step
PULL_MESSAGES = 256
REST_SECONDS_MAX = 0.02  # of the brokers between two pulls
QUEUES_SECONDS = 10.0  # after which the topic's queues are asked for again
STEP_SECONDS = 0.1  # from one step to the next; many queues take longer, as brokers rest


class Step(NamedTuple):
    """The messages of one step; `seen` counts all that came, of which ROWS_MAX at most are in
    `records`. `gone` are the brokers that can't be read since this step, and why; `back` are those
    that can be read again."""

    records: list[Record]
    seen: int
    gone: dict[str, str]
    back: list[str]


async def tail(
    reader: Reader,
    topic: str,
    matches: Predicate | None,
    absent: Callable[[], Mapping[str, str]] = dict,
) -> AsyncIterator[Step]:
    """Steps without an end. A step without a message is given as well: the reader of a page may
    have left. Each queue that falls behind what can be shown goes on at its end.

    `absent` gives the brokers that do not answer, and why: the name servers may list the queues of
    such a broker no more."""
    pace = Pace(monotonic, rest_max=REST_SECONDS_MAX)
    offsets: dict[MessageQueue, int | None] = {}  # None: it begins at the end, once that is known
    away: dict[str, str] = {}
    due = monotonic()
    while True:
        began = monotonic()
        if began >= due:
            due = began + QUEUES_SECONDS
            offsets = _with(await _queues(reader, topic, is_first=not offsets), offsets)
        found: list[Record] = []
        seen = 0
        wrong: dict[str, str] = {}
        for queue, offset in offsets.items():
            try:
                if offset is None:
                    offset = await pace.ask(partial(reader.max_offset, queue))
                pulled = await pace.ask(partial(reader.pull, queue, offset, PULL_MESSAGES))
                records = decode_all(pulled.body)
            except (AerobeeError, Malformed) as fault:
                offsets[queue] = offset
                wrong.setdefault(queue.broker_name, text_of(fault))
                continue
            offsets[queue] = pulled.next_offset
            if pulled.code != codes.SUCCESS:
                continue
            seen += len(records)
            found += [one for one in records if matches is None or matches(Fields(one))]
            if pulled.max_offset - pulled.next_offset > PULL_MESSAGES:
                seen += pulled.max_offset - pulled.next_offset
                offsets[queue] = pulled.max_offset
        read = {queue.broker_name for queue in offsets}
        wrong |= {name: why for name, why in absent().items() if name not in read}
        gone = {name: why for name, why in wrong.items() if name not in away}
        back = [name for name in away if name not in wrong]
        if back:
            due = began  # it may have queues that are not known yet
        away = wrong
        found.sort(key=lambda one: one.store_ms)
        yield Step(found[-ROWS_MAX:], seen, gone, back)
        await asyncio.sleep(max(0.0, began + STEP_SECONDS - monotonic()))


async def _queues(reader: Reader, topic: str, *, is_first: bool) -> list[MessageQueue]:
    """The queues of a topic; none while the name servers do not tell."""
    try:
        return await reader.queues(topic)
    except NoRouteError:
        return []  # its brokers are away, which `absent` says
    except AerobeeError:
        if is_first:
            raise
        return []


def _with(
    listed: list[MessageQueue], offsets: dict[MessageQueue, int | None]
) -> dict[MessageQueue, int | None]:
    """The offsets of the listed queues, and of the ones whose broker is not listed now."""
    names = {queue.broker_name for queue in listed}
    kept = {queue: at for queue, at in offsets.items() if queue.broker_name not in names}
    return {queue: offsets.get(queue) for queue in listed} | kept
