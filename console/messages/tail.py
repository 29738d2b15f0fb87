"""Messages as they come, without a group and without a committed offset."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from ...client.base.identity import monotonic
from ...client.errors import AerobeeError
from ...client.pull.reader import Reader
from ...protocol import codes
from ...protocol.errors import Malformed
from ...protocol.filters.sql92 import Predicate
from ...protocol.message.record import Record, decode_all
from ..clusters.pace import Pace
from .fields import Fields

ROWS_MAX = 20  # shown of one step
PULL_MESSAGES = 256
REST_SECONDS_MAX = 0.02  # of the brokers between two pulls
STEP_SECONDS = 0.1  # from one step to the next; many queues take longer, as brokers rest


class Step(NamedTuple):
    """The messages of one step; `seen` counts all that came, of which ROWS_MAX at most are in
    `records`. `wrong` says why a queue could not be read."""

    records: list[Record]
    seen: int
    wrong: str | None


async def tail(reader: Reader, topic: str, matches: Predicate | None) -> AsyncIterator[Step]:
    """Steps without an end. A step without a message is given as well: the reader of a page may
    have left. Each queue that falls behind what can be shown goes on at its end."""
    pace = Pace(monotonic, rest_max=REST_SECONDS_MAX)
    queues = {queue: await reader.max_offset(queue) for queue in await reader.queues(topic)}
    while True:
        began = monotonic()
        found: list[Record] = []
        seen, wrong = 0, None
        for queue, offset in queues.items():
            try:
                pulled = await pace.ask(
                    lambda queue=queue, offset=offset: reader.pull(  # type: ignore[misc]
                        queue, offset, PULL_MESSAGES
                    )
                )
                records = decode_all(pulled.body)
            except (AerobeeError, Malformed) as fault:
                wrong = str(fault)
                continue
            queues[queue] = pulled.next_offset
            if pulled.code != codes.SUCCESS:
                continue
            seen += len(records)
            found += [one for one in records if matches is None or matches(Fields(one))]
            if pulled.max_offset - pulled.next_offset > PULL_MESSAGES:
                seen += pulled.max_offset - pulled.next_offset
                queues[queue] = pulled.max_offset
        found.sort(key=lambda one: one.store_ms)
        yield Step(found[-ROWS_MAX:], seen, wrong)
        await asyncio.sleep(max(0.0, began + STEP_SECONDS - monotonic()))
