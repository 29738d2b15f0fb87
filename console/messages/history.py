"""The history of one message: what happened to it, when, and what proves each step.

A committed offset beyond the message proves that a group passed it, not that it was processed; a
trace proves processing. Evidence that is missing is a step as well, and says why.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from ...client.errors import AerobeeError, NoRouteError
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.clients import ConsumerConnection
from ...protocol.bodies.subscription import SQL92, SUB_ALL, SubscriptionData
from ...protocol.errors import Malformed
from ...protocol.filters.sql92 import SqlError, predicate
from ...protocol.message import properties as props
from ...protocol.message.compression import CompressionMissing
from ...protocol.message.message_id import PORT_BYTES
from ...protocol.message.pop_handles import retry_topic
from ...protocol.message.record import Record
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ..clusters.asking import Asking
from ..texts import Text, joined, text_of
from .shown import id_of, unpacked

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
BROADCASTING = "BROADCASTING"
GROUPS_MAX = 50
FOUND_MAX = 64  # records of one query by key
ABSENT = Text("the topic does not exist")
REDRIVEN = "redriven:"  # how the key of a dead letter that was sent again begins


@dataclass(frozen=True, slots=True)
class Step:
    """`at_ms` is None where no time is known; `group` is empty for steps of the message itself."""

    at_ms: int | None
    what: str
    proof: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    """The present or former place of the message. `first` is the first offset that the queue still
    has, None if unknown; `address` is None for a broker that can't be asked."""

    queue: MessageQueue
    offset: int
    first: int | None
    address: str | None

    @property
    def is_gone(self) -> bool:
        return self.first is not None and self.offset < self.first


async def history_of(admin: Asking, record: Record, broker: str) -> list[Step]:
    """The history of a stored message; steps with a time come first."""
    key = id_of(record)
    stored = Step(
        record.store_ms,
        Text(
            "stored in %(topic)s, queue %(queue_id)s of %(broker)s, offset %(queue_offset)s",
            topic=record.topic,
            queue_id=record.queue_id,
            broker=broker,
            queue_offset=record.queue_offset,
        ),
        Text("the message itself"),
    )
    queue = MessageQueue(record.topic, broker, record.queue_id)
    place = await _place(admin, queue, record.queue_offset)
    # Steps of one millisecond stay in this order.
    steps = [_sent(record), *await _waits(admin, record.topic, key), stored]
    return await _whole(admin, record.topic, key, steps, place, record)


async def history_of_deleted(
    admin: Asking, topic: str, key: str, queue: MessageQueue | None = None, offset: int = 0
) -> list[Step]:
    """Reconstruct the history of a deleted message from traces, retries and dead letters.

    The message is given by its id (`key`), or by queue and offset with an empty `key`. The list
    is empty when nothing proves that the message existed.
    """
    place = None if queue is None else await _place(admin, queue, offset)
    steps: list[Step] = []
    if place is None:
        steps += await _waits(admin, topic, key)
        proof = Text("no broker finds a record with this id in %(topic)s", topic=topic)
        gone = [Step(None, Text("is not in %(topic)s any more", topic=topic), proof)]
    elif not place.is_gone:
        return []
    else:
        gone = []
    found = await _whole(admin, topic, key, steps, place, None)
    is_proved = place is not None or any(one.at_ms is not None for one in found)
    return found + gone if is_proved else []


async def _whole(
    admin: Asking,
    topic: str,
    key: str,
    steps: list[Step],
    place: _Place | None,
    record: Record | None,
) -> list[Step]:
    """Add to `steps` what is known of the message, then what each group did with the message."""
    if place is not None and place.is_gone:
        proof = Text(
            "the queue begins at offset %(first)s, the message's was %(offset)s",
            first=place.first,
            offset=place.offset,
        )
        steps.append(Step(None, Text("gone from its queue by retention"), proof))
    traced: dict[str, list[Step]] = {}
    if key:
        traced = await _traces(admin, topic, key, steps)
    else:
        steps.append(Step(None, Text("no trace"), Text("the id of the message is not known")))
    groups: list[str] = []
    try:
        where = await admin.readable(topic)
        if place is not None and await admin.lacks_master(topic, place.queue.broker_name):
            proof = Text("a slave answers; what it has not copied is missing here")
            steps.append(Step(None, Text("its broker has no master now"), proof))
        for address in where.values():
            groups += await admin.readers_at(address, topic)
    except AerobeeError as wrong:
        steps.append(Step(None, Text("which groups read the topic is not known"), text_of(wrong)))
    groups = sorted({*groups, *(one for one in traced if one)})
    for group in groups[:GROUPS_MAX]:
        steps += traced.get(group, [])
        steps += await _retries(admin, topic, group, key)
        steps += await _in_group(admin, record, place, group, traced.get(group, []))
    if len(groups) > GROUPS_MAX:
        cut = Text("%(count)s groups read the topic", count=len(groups))
        steps.append(
            Step(
                None,
                Text("only the first %(count)s groups are shown", count=GROUPS_MAX),
                cut,
            )
        )
    return sorted(steps, key=lambda one: (one.at_ms is None, one.at_ms or 0))


async def _place(admin: Asking, queue: MessageQueue, offset: int) -> _Place:
    first = address = None
    with suppress(AerobeeError):  # what is not known is said by the steps that need it
        address = (await admin.readable(queue.topic)).get(queue.broker_name)
        if address is not None:
            first = await admin.first_offset(queue)
    return _Place(queue, offset, first, address)


def _sent(record: Record) -> Step:
    """The step of the send; a message sent through a proxy names the client's address."""
    client = record.properties.get(props.BORN_HOST)
    if client is None:
        what, proof = (
            Text("sent from %(host)s", host=_host(record.born_host)),
            Text("the time in the message"),
        )
    else:
        what = Text(
            "sent from %(client)s through the proxy at %(host)s",
            client=client,
            host=_host(record.born_host),
        )
        proof = Text(
            "the time in the message, and its property %(born_host)s", born_host=props.BORN_HOST
        )
    return Step(record.born_ms, what, proof)


async def _retries(admin: Asking, topic: str, group: str, key: str) -> list[Step]:
    """The steps that the records of a message in a group's retry and dead letter topics prove."""
    if not key:
        return []
    steps = []
    popped = [retry_topic(topic, group, v2=is_new) for is_new in (False, True)]
    for name in (RETRY_PREFIX + group, *popped, DLQ_PREFIX + group):
        found, wrong = await _query(admin, name, key)
        if wrong not in (None, ABSENT):
            steps.append(
                Step(None, Text("what %(name)s has is not known", name=name), wrong, group)
            )
        for one in found:
            keys = one.properties.get(props.KEYS, "").split(props.KEY_SEPARATOR)
            if name.startswith(DLQ_PREFIX):
                what = Text("given up: a dead letter")
            elif any(word.startswith(REDRIVEN) for word in keys) and not one.reconsume_times:
                what = Text("redriven: a dead letter sent to the group again")
            else:
                what = Text("retried, retry %(count)s", count=one.reconsume_times)
            steps.append(Step(one.store_ms, what, Text("a record in %(name)s", name=name), group))
    return steps


async def _in_group(
    admin: Asking, record: Record | None, place: _Place | None, group: str, traced: list[Step]
) -> list[Step]:
    """The step that a group's offset proves about the message, or that it is not known."""
    if place is None:
        why = Text("the message's place in its queue is not known any more")
        return [Step(None, Text("how far the group is is not known"), why, group)]
    if place.address is None:
        why = Text("broker %(broker_name)s can't be asked", broker_name=place.queue.broker_name)
        return [Step(None, Text("how far the group is is not known"), why, group)]
    try:
        progress = await admin.progress_at(place.address, group, place.queue.topic)
        online = await admin.members_at(place.address, group)
    except AerobeeError as wrong:
        return [Step(None, Text("how far the group is is not known"), text_of(wrong), group)]
    if online is not None and online.message_model == BROADCASTING:
        what = Text("goes to every member; whether it was processed is not known")
        why = Text("the group is broadcasting, so each member keeps its own offset")
        return [Step(None, what, why, group)]
    at = progress.offset_table.get(place.queue)
    if at is None or at.consumer_offset < 0:
        why = Text("it has no offset in this queue")
        return [Step(None, Text("the group has not read the queue"), why, group)]
    proof = Text(
        "its offset is %(consumer_offset)s, the message's %(offset)s",
        consumer_offset=at.consumer_offset,
        offset=place.offset,
    )
    if at.consumer_offset <= place.offset:
        what = (
            Text("was gone before the group came to it")
            if place.is_gone
            else Text("waits for the group")
        )
        return [Step(None, what, proof, group)]
    filtered = None if record is None else _filtered(record, online)
    if filtered is not None:
        return [Step(None, Text("passed: filtered out"), joined("; ", [proof, filtered]), group)]
    if not any("processed" in one.what for one in traced):
        proof = Text("%(proof)s; no trace tells whether it was processed", proof=proof)
    return [Step(None, Text("passed by the group"), proof, group)]


def _filtered(record: Record, online: ConsumerConnection | None) -> str | None:
    """The reason why a group's present subscription refuses a message; None if it does not."""
    wanted = None if online is None else online.subscription_table.get(record.topic)
    if wanted is None or wanted.sub_string in (None, "", SUB_ALL):
        return None
    return (
        None
        if _fits(wanted, record.properties)
        else Text("it wants %(sub_string)s", sub_string=wanted.sub_string)
    )


def _fits(wanted: SubscriptionData, pairs: Mapping[str, str]) -> bool:
    if wanted.expression_type == SQL92:
        try:
            return predicate(wanted.sub_string or "")(pairs)
        except SqlError:
            return True
    return pairs.get(props.TAGS, "") in [
        tag.strip() for tag in (wanted.sub_string or "").split("||")
    ]


async def _waits(admin: Asking, for_topic: str, key: str) -> list[Step]:
    """The steps that records prove in topics where messages for `for_topic` wait: for the end of a
    transaction, for a time or for their next try."""
    found, _ = await _query(admin, HALF_TOPIC, key)
    steps = [
        Step(
            one.store_ms,
            Text("prepared in a transaction"),
            Text("a record in %(name)s", name=HALF_TOPIC),
        )
        for one in found
        if one.properties.get(props.REAL_TOPIC) == for_topic
    ]
    for topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        found, _ = await _query(admin, topic, key)
        for one in found:
            pairs = one.properties
            to = pairs.get(props.REAL_TOPIC, Text("a topic that it does not name"))
            until = pairs.get(props.TIMER_OUT_MS, "")
            how = (
                Text("level %(level)s", level=one.queue_id + 1)
                if topic == SCHEDULE_TOPIC
                else Text("until %(until)s ms", until=until)
            )
            steps.append(
                Step(
                    one.store_ms,
                    Text("delayed, %(how)s, for %(to)s", how=how, to=to),
                    Text("a record in %(name)s", name=topic),
                )
            )
    return steps


async def _traces(admin: Asking, topic: str, key: str, steps: list[Step]) -> dict[str, list[Step]]:
    """The steps that traces tell, by group; what they tell of the sender goes to `steps`."""
    found, wrong = await _query(admin, TRACE_TOPIC, key)
    if wrong is not None:
        steps.append(Step(None, Text("no trace"), joined(": ", [TRACE_TOPIC, wrong])))
    elif not found:
        steps.append(
            Step(None, Text("no trace"), Text("neither its sender nor a consumer was traced"))
        )
    by_group: dict[str, list[Step]] = {}
    proof = Text("a trace in %(name)s", name=TRACE_TOPIC)
    begun: dict[str, str] = {}  # group by request id
    for fields in sorted(_records(found), key=lambda one: one[0] == "SubAfter"):
        if fields[0] == "Pub" and len(fields) > 10 and fields[4:6] == [topic, key]:
            steps.append(
                Step(_ms(fields[1]), Text("sent by group %(group)s", group=fields[3]), proof)
            )
        elif fields[0] == "SubBefore" and len(fields) > 6 and fields[5] == key:
            begun[fields[4]] = fields[3]
            what = Text("given to a consumer, retry %(count)s", count=fields[6])
            by_group.setdefault(fields[3], []).append(Step(_ms(fields[1]), what, proof, fields[3]))
        elif fields[0] == "SubAfter" and len(fields) > 4 and fields[2] == key:
            group = fields[8] if len(fields) > 8 else begun.get(fields[1], "")
            how = Text("processed") if fields[4] == "true" else Text("its consumer failed")
            at = _ms(fields[7]) if len(fields) > 7 else None
            what = Text("%(how)s, after %(ms)s ms", how=how, ms=fields[3])
            by_group.setdefault(group, []).append(Step(at, what, proof, group))
    return by_group


def _records(found: list[Record]) -> list[list[str]]:
    texts = []
    for one in found:
        with suppress(Malformed, CompressionMissing):  # then it is no trace
            texts.append(unpacked(one).decode(errors="replace"))
    return [part.split("\x01") for text in texts for part in text.split("\x02")]


async def _query(admin: Asking, topic: str, key: str) -> tuple[list[Record], str | None]:
    """The records of a topic with a key, the first stored first, and why there are none where that
    failed."""
    found: dict[tuple[bytes, int], Record] = {}
    try:
        async with asyncio.timeout(5):
            for address in (await admin.readable(topic)).values():
                for one in await admin.query_at(address, topic, key, FOUND_MAX):
                    if one.topic == topic:  # a broker's answer proves nothing about another
                        found[one.store_host, one.log_offset] = one
    except NoRouteError:
        return [], ABSENT
    except TimeoutError:
        return [], Text("no answer within 5 s")
    except AerobeeError as wrong:
        return [], text_of(wrong)
    return sorted(found.values(), key=lambda one: (one.store_ms, one.log_offset)), None


def _ms(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def _host(host: bytes) -> str:
    address = host[:-PORT_BYTES]
    text = ".".join(map(str, address)) if len(address) == 4 else address.hex(":", 2)
    return f"{text}:{int.from_bytes(host[-PORT_BYTES:], 'big')}"
