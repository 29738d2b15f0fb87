"""What waits: scheduled messages and open transactions, read from the system's topics."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ...client.errors import AerobeeError, NoRouteError
from ...client.pull.reader import Reader
from ...protocol.bodies.body import MessageQueue
from ...protocol.errors import Malformed
from ...protocol.message import properties as props
from ...protocol.message.record import Record, decode_all
from ..access.rights import Bodies
from ..texts import Text
from .history import SCHEDULE_TOPIC, TIMER_TOPIC
from .shown import brief, id_of

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SCANNED_MAX = 20_000  # messages of one page
ROWS_MAX = 500
PULL_MESSAGES = 512
UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that waits until `due_ms`, None where that is not known. It lies in the topic
    `place` of its broker. `brief` is the beginning of its body."""

    id: str
    topic: str
    due_ms: int | None
    stored_ms: int
    how: str
    broker: str
    place: str
    queue: int
    offset: int
    keys: str
    brief: str


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A half message that was neither committed nor rolled back, with its place as of Waiting.
    Each check stores it again, at a new `stored_ms`; `born_ms` stays."""

    id: str
    topic: str
    group: str
    born_ms: int
    stored_ms: int
    checks: int
    broker: str
    place: str
    queue: int
    offset: int
    keys: str
    brief: str


class Scan(NamedTuple):
    """The messages of queues from their offsets on; `cut` says that there are more."""

    records: list[tuple[MessageQueue, Record]]
    cut: str | None
    faults: list[str]


def level_waits(text: str) -> dict[int, int]:
    """The waits in ms by level of the setting messageDelayLevel, such as "1s 5s 2h"."""
    waits = {}
    for level, word in enumerate(text.split(), 1):
        if word[:-1].isdecimal() and word[-1:] in UNITS_MS:
            waits[level] = int(word[:-1]) * UNITS_MS[word[-1]]
    return waits


async def scan(reader: Reader, starts: Iterable[tuple[MessageQueue, int]]) -> Scan:
    """Up to SCANNED_MAX messages from these offsets on."""
    records: list[tuple[MessageQueue, Record]] = []
    faults: list[str] = []
    for queue, start in starts:
        offset = start
        while True:
            if len(records) >= SCANNED_MAX:
                cut = Text(
                    "only the first %(count)s messages were looked at",
                    count=f"{SCANNED_MAX:,}",
                )
                return Scan(records, cut, faults)
            try:
                pulled = await reader.pull(queue, offset, PULL_MESSAGES, bulk=True)
                found = decode_all(pulled.body)
            except (AerobeeError, Malformed) as wrong:
                faults.append(
                    Text(
                        "queue %(queue_id)s of %(broker_name)s: %(wrong)s",
                        queue_id=queue.queue_id,
                        broker_name=queue.broker_name,
                        wrong=wrong,
                    )
                )
                break
            records += [(queue, one) for one in found]
            is_on = pulled.next_offset > offset
            offset = pulled.next_offset
            if not is_on or offset >= pulled.max_offset:
                break
    return Scan(records, None, faults)


async def queues_of(reader: Reader, topic: str) -> list[MessageQueue]:
    """The queues of a system topic; none where no broker has it."""
    try:
        return await reader.queues(topic)
    except NoRouteError:
        return []


async def scheduled(
    reader: Reader,
    delivered: dict[str, dict[int, int]],
    waits: dict[str, dict[int, int]],
    now_ms: int,
    bodies: Bodies = Bodies.SHOWN,
) -> tuple[list[Waiting], Scan]:
    """The messages that wait for a level or a time, the next ones first.

    `delivered` is how far each level is by broker, without those of which nothing was delivered;
    `waits` are the levels' waits by broker.
    """
    starts = [
        (queue, delivered[queue.broker_name].get(queue.queue_id + 1, 0))
        for queue in await queues_of(reader, SCHEDULE_TOPIC)
        if queue.broker_name in delivered
    ]
    levels = await scan(reader, starts)
    found = []
    for queue, record in levels.records:
        level = queue.queue_id + 1
        wait = waits.get(queue.broker_name, {}).get(level)
        due_ms = None if wait is None else record.store_ms + wait
        found.append(_waiting(queue, record, due_ms, Text("level %(level)s", level=level), bodies))
    timers = [
        (queue, await reader.min_offset(queue)) for queue in await queues_of(reader, TIMER_TOPIC)
    ]
    wheel = await scan(reader, timers)
    recalled = {one.properties.get(props.TIMER_DEL_UNIQKEY) for _, one in wheel.records}
    for queue, record in wheel.records:
        pairs = record.properties
        due = pairs.get(props.TIMER_OUT_MS, "")
        is_waiting = due.isdecimal() and int(due) > now_ms and props.TIMER_DEL_UNIQKEY not in pairs
        if is_waiting and not _is_recalled(pairs, recalled):
            found.append(_waiting(queue, record, int(due), Text("time"), bodies))
    found.sort(key=lambda one: (one.due_ms is None, one.due_ms or 0))
    cut = levels.cut or wheel.cut
    return found, Scan([], cut, [*levels.faults, *wheel.faults])


async def transactions(
    reader: Reader, starts: dict[tuple[str, str, int], int], bodies: Bodies = Bodies.SHOWN
) -> tuple[list[OpenTransaction], Scan]:
    """The half messages that are open. `starts` are the offsets of the broker's own check, by
    topic, broker and queue."""
    half = await scan(reader, _from(await queues_of(reader, HALF_TOPIC), starts))
    done = await scan(reader, _from(await queues_of(reader, OP_TOPIC), starts))
    ended: set[tuple[str, int, int]] = set()
    for queue, record in done.records:
        for word in record.body.decode(errors="replace").split(","):
            if word.isdecimal():
                ended.add((queue.broker_name, queue.queue_id, int(word)))
    found = []
    for queue, record in half.records:
        pairs = record.properties
        # A half message that was checked is stored again, and may be ended under its first offset.
        first = pairs.get(props.TRAN_PREPARED_QUEUE_OFFSET, "")
        offsets = {record.queue_offset, int(first) if first.isdecimal() else record.queue_offset}
        if any((queue.broker_name, queue.queue_id, one) in ended for one in offsets):
            continue
        checks = pairs.get(props.TRANSACTION_CHECK_TIMES, "0")
        found.append(
            OpenTransaction(
                id_of(record),
                pairs.get(props.REAL_TOPIC, ""),
                pairs.get(props.PGROUP, ""),
                record.born_ms,
                record.store_ms,
                int(checks) if checks.isdecimal() else 0,
                *_place(queue, record, bodies),
            )
        )
    return found, Scan([], half.cut or done.cut, [*half.faults, *done.faults])


def _from(
    queues: list[MessageQueue], starts: dict[tuple[str, str, int], int]
) -> list[tuple[MessageQueue, int]]:
    return [
        (queue, starts.get((queue.topic, queue.broker_name, queue.queue_id), 0)) for queue in queues
    ]


def _is_recalled(pairs: dict[str, str], recalled: set[str | None]) -> bool:
    key = pairs.get(props.UNIQ_KEY)
    topic = pairs.get(props.REAL_TOPIC)
    return f"{topic}+{key}" in recalled


def _waiting(
    queue: MessageQueue, record: Record, due_ms: int | None, how: str, bodies: Bodies
) -> Waiting:
    topic = record.properties.get(props.REAL_TOPIC, "")
    return Waiting(
        id_of(record), topic, due_ms, record.store_ms, how, *_place(queue, record, bodies)
    )


def _place(
    queue: MessageQueue, record: Record, bodies: Bodies
) -> tuple[str, str, int, int, str, str]:
    """The fields of a row from `broker` on."""
    keys = record.properties.get(props.KEYS, "")
    offset = record.queue_offset
    return queue.broker_name, queue.topic, queue.queue_id, offset, keys, brief(record, bodies)
