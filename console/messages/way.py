"""One message's way: what happened to it, when, and what proves each step.

A committed offset beyond the message proves that a group passed it, not that it was processed; a
trace proves processing. Evidence that is missing is a step as well, and says why.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from ...client.errors import AerobeeError, BrokerError, NoRouteError
from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.clients import ConsumerConnection
from ...protocol.bodies.subscription import SQL92, SUB_ALL, SubscriptionData
from ...protocol.errors import Malformed
from ...protocol.filters.sql92 import SqlError, predicate
from ...protocol.message import properties as props
from ...protocol.message.compression import CompressionMissing
from ...protocol.message.message_id import PORT_BYTES
from ...protocol.message.record import Record
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ..clusters.asking import Asking
from .shown import id_of, unpacked

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
GROUPS_MAX = 50
FOUND_MAX = 64  # records of one query by key


@dataclass(frozen=True, slots=True)
class Step:
    """`at_ms` is None where no time is known; `group` is empty for steps of the message itself."""

    at_ms: int | None
    what: str
    proof: str
    group: str = ""


async def way_of(admin: Asking, record: Record, broker: str) -> list[Step]:
    """The steps of a message, the ones with a time first."""
    key = id_of(record)
    steps = [
        Step(record.born_ms, f"sent from {_host(record.born_host)}", "the time in the message"),
        Step(
            record.store_ms,
            f"stored in {record.topic}, queue {record.queue_id} of {broker}, offset "
            f"{record.queue_offset}",
            "the message itself",
        ),
    ]
    steps += await _waits(admin, key)
    traced = await _traces(admin, key, steps)
    try:
        groups = await admin.groups_of_topic(record.topic)
    except AerobeeError as wrong:
        steps.append(Step(None, "which groups read the topic is not known", str(wrong)))
        groups = []
    for group in groups[:GROUPS_MAX]:
        steps += await _in_group(admin, record, broker, group, traced.get(group, []), key)
    if len(groups) > GROUPS_MAX:
        cut = f"{len(groups)} groups read the topic"
        steps.append(Step(None, f"only the first {GROUPS_MAX} groups are shown", cut))
    return sorted(steps, key=lambda one: (one.at_ms is None, one.at_ms or 0))


async def _in_group(
    admin: Asking, record: Record, broker: str, group: str, traced: list[Step], key: str
) -> list[Step]:
    """What a group made of it."""
    steps = list(traced)
    for prefix, what in ((RETRY_PREFIX, "retried"), (DLQ_PREFIX, "given up: a dead letter")):
        found, _ = await _query(admin, prefix + group, key)
        for one in found:
            tries = f", retry {one.reconsume_times}" if prefix == RETRY_PREFIX else ""
            steps.append(Step(one.store_ms, what + tries, f"a record in {prefix + group}", group))
    try:
        progress = await admin.consume_stats(group, record.topic)
        online = await admin.consumer_connection(group)
    except AerobeeError as wrong:
        return [*steps, Step(None, "how far the group is is not known", str(wrong), group)]
    queue = MessageQueue(record.topic, broker, record.queue_id)
    at = progress.offset_table.get(queue)
    if at is None:
        why = "it has no offset in this queue"
        return [*steps, Step(None, "the group has not read the queue", why, group)]
    proof = f"its offset is {at.consumer_offset}, the message's {record.queue_offset}"
    if at.consumer_offset <= record.queue_offset:
        return [*steps, Step(None, "waits for the group", proof, group)]
    filtered = _filtered(record, online)
    if filtered is not None:
        return [*steps, Step(None, "passed: filtered out", f"{proof}; {filtered}", group)]
    if not any("processed" in one.what for one in traced):
        proof += "; no trace tells whether it was processed"
    return [*steps, Step(None, "passed by the group", proof, group)]


def _filtered(record: Record, online: ConsumerConnection | None) -> str | None:
    """Why the present subscription of a group refuses a message; None if it does not."""
    wanted = None if online is None else online.subscription_table.get(record.topic)
    if wanted is None or wanted.sub_string in (None, "", SUB_ALL):
        return None
    return None if _fits(wanted, record.properties) else f"it wants {wanted.sub_string}"


def _fits(wanted: SubscriptionData, pairs: Mapping[str, str]) -> bool:
    if wanted.expression_type == SQL92:
        try:
            return predicate(wanted.sub_string or "")(pairs)
        except SqlError:
            return True
    return pairs.get(props.TAGS, "") in [
        tag.strip() for tag in (wanted.sub_string or "").split("||")
    ]


async def _waits(admin: Asking, key: str) -> list[Step]:
    """The records of the topics in which messages wait for a time or for their next try."""
    steps = []
    for topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        found, _ = await _query(admin, topic, key)
        for one in found:
            pairs = one.properties
            to = pairs.get(props.REAL_TOPIC, "a topic that it does not name")
            until = pairs.get(props.TIMER_OUT_MS, "")
            how = f"level {one.queue_id + 1}" if topic == SCHEDULE_TOPIC else f"until {until} ms"
            steps.append(Step(one.store_ms, f"delayed, {how}, for {to}", f"a record in {topic}"))
    return steps


async def _traces(admin: Asking, key: str, steps: list[Step]) -> dict[str, list[Step]]:
    """The steps that traces tell, by group; what they tell of the sender goes to `steps`."""
    found, wrong = await _query(admin, TRACE_TOPIC, key)
    if wrong is not None:
        steps.append(Step(None, "no trace", f"{TRACE_TOPIC}: {wrong}"))
    elif not found:
        steps.append(Step(None, "no trace", "neither its sender nor a consumer was traced"))
    by_group: dict[str, list[Step]] = {}
    proof = f"a trace in {TRACE_TOPIC}"
    begun: dict[str, str] = {}  # group by request id
    for fields in sorted(_records(found), key=lambda one: one[0] == "SubAfter"):
        if fields[0] == "Pub" and len(fields) > 10 and fields[5] == key:
            steps.append(Step(_ms(fields[1]), f"sent by group {fields[3]}", proof))
        elif fields[0] == "SubBefore" and len(fields) > 6 and fields[5] == key:
            begun[fields[4]] = fields[3]
            what = f"given to a consumer, retry {fields[6]}"
            by_group.setdefault(fields[3], []).append(Step(_ms(fields[1]), what, proof, fields[3]))
        elif fields[0] == "SubAfter" and len(fields) > 4 and fields[2] == key:
            group = fields[8] if len(fields) > 8 else begun.get(fields[1], "")
            how = "processed" if fields[4] == "true" else "its consumer failed"
            at = _ms(fields[7]) if len(fields) > 7 else None
            what = f"{how}, after {fields[3]} ms"
            by_group.setdefault(group, []).append(Step(at, what, proof, group))
    return by_group


def _records(found: list[Record]) -> list[list[str]]:
    texts = []
    for one in found:
        with suppress(Malformed, CompressionMissing):  # then it is no trace
            texts.append(unpacked(one).decode(errors="replace"))
    return [part.split("\x01") for text in texts for part in text.split("\x02")]


async def _query(admin: Asking, topic: str, key: str) -> tuple[list[Record], str | None]:
    """The records of a topic with a key, and why there are none where that failed."""
    try:
        async with asyncio.timeout(5):
            return await admin.query(topic, key, messages_max=FOUND_MAX), None
    except NoRouteError:
        return [], "the topic does not exist"
    except TimeoutError:
        return [], "no answer within 5 s"
    except BrokerError as wrong:
        return [], None if wrong.code == codes.QUERY_NOT_FOUND else str(wrong)
    except AerobeeError as wrong:
        return [], str(wrong)


def _ms(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def _host(host: bytes) -> str:
    address = host[:-PORT_BYTES]
    text = ".".join(map(str, address)) if len(address) == 4 else address.hex(":", 2)
    return f"{text}:{int.from_bytes(host[-PORT_BYTES:], 'big')}"
