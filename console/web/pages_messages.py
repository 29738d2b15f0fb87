"""The pages about messages: by key and id, searched in a time, one's history, waiting ones."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeVar

from ...client.base.identity import now_ms
from ...client.errors import ClientError
from ...protocol.bodies.body import MessageQueue
from ...protocol.codec import java_properties
from ...protocol.errors import Malformed
from ...protocol.filters.sql92 import Predicate, SqlError, predicate
from ...protocol.message import properties as props
from ...protocol.message.message_id import host_text, parse_offset_message_id
from ...protocol.message.record import Record, decode_all
from ..access.rights import Bodies, Right
from ..messages import waiting
from ..messages.fields import Bodiless
from ..messages.history import Step, history_of, history_of_deleted
from ..messages.search import HITS_MAX, Progress
from ..messages.shown import brief, id_of, shown
from ..texts import Text, joined
from . import answers
from .look import BadQuery, Forbidden, Look, NotFound, cut_at, patient

HOUR_MS = 3_600_000
EVER_MS = 253_402_300_799_000
HALF_TOPICS = (waiting.HALF_TOPIC, "TRANS_CHECK_MAX_TIME_TOPIC")
QUOTED = re.compile(r"'(?:[^']|'')*'")
BODY_NAMED = re.compile(r"\bbody\b", re.IGNORECASE)
Waits = TypeVar("Waits", waiting.Waiting, waiting.OpenTransaction)
CHECKER = "CID_RMQ_SYS_TRANS"  # the group whose offsets tell how far brokers checked transactions


async def messages(look: Look) -> answers.Messages:
    """The forms, and the messages of a topic with a key or an id."""
    topic, key = look.text("topic"), look.text("key").strip()
    names = list(look.topic_rows())
    found: list[answers.MessageRow] | None = None
    if topic and key:
        found = [row_of(one, "", look.visitor.bodies) for one in await _by_key(look, topic, key)]
    return {
        "topic": topic,
        "key": key,
        "found": found,
        "topics": names[:1_000],
        "expression": look.text("where"),
        "begin": look.text("begin"),
        "end": look.text("end"),
        "cursor": look.text("cursor"),
    }


async def _by_key(look: Look, topic: str, key: str) -> list[Record]:
    """Messages by a key, by the sender's id, or by the id that says where it lies."""
    found = await _asked_by_key(look, topic, key)
    # An id may lead to a message of any topic.
    return [one for one in found if look.may(Right.VIEW, topic=one.topic)]


async def _asked_by_key(look: Look, topic: str, key: str) -> list[Record]:
    admin = look.watched.admin
    try:
        host, _ = parse_offset_message_id(key)
    except ValueError:
        host = None
    # An id names an address: it is only followed to a broker of this cluster.
    if host is not None and host_text(host) in look.watched.addresses():
        return [await patient(admin.message(key))]
    unique = await patient(admin.query(topic, key, unique=True))
    more = await patient(admin.query(topic, key))
    known = {(one.store_host, one.log_offset) for one in unique}
    return unique + [one for one in more if (one.store_host, one.log_offset) not in known]


async def message(look: Look) -> answers.Message | answers.MessageGone:
    """One message: as stored, its body, its history. Of a deleted message only the history is
    known."""
    try:
        queue, record = await _one(look)
    except NotFound:
        gone = await _gone(look)
        if not gone:
            raise
        return {"topic": look.text("topic"), "row": None, "way": _seen(look, gone)}
    types = look.types
    wanted = look.text("as", "" if types is None else types.by_topic.get(record.topic, ""))
    body = shown(record, look.visitor.bodies, types, wanted)
    pairs = record.properties
    steps = await history_of(look.watched.admin, record, queue.broker_name)
    return {
        "topic": record.topic,
        "broker": queue.broker_name,
        "row": row_of(record, queue.broker_name, look.visitor.bodies),
        "offset_id": record.offset_id,
        "flag": record.flag,
        "half_topic": pairs.get(props.REAL_TOPIC) if record.topic in HALF_TOPICS else None,
        "is_intact": record.is_body_intact,
        "own": sorted(props.own(pairs).items()),
        "system": sorted((k, v) for k, v in pairs.items() if k in props.SYSTEM),
        "body": body,
        "as": wanted,
        "types": [] if types is None else types.names,
        "way": _seen(look, steps),
    }


def _seen(look: Look, steps: list[Step]) -> list[Step]:
    """The steps of groups that the visitor may see."""
    return [one for one in steps if not one.group or look.may(Right.VIEW, group=one.group)]


async def _gone(look: Look) -> list[Step]:
    """The history of a deleted message; empty when nothing proves that the message existed."""
    admin, topic, key = look.watched.admin, look.required("topic"), look.text("id")
    if key:
        return await history_of_deleted(admin, topic, key)
    queue = MessageQueue(topic, look.required("broker"), look.number("queue", 0, 0, 1 << 30))
    return await history_of_deleted(admin, topic, "", queue, look.number("offset", 0, 0, 1 << 62))


async def _one(look: Look) -> tuple[MessageQueue, Record]:
    """The message at a place of a queue, or the first one with an id."""
    topic, key = look.required("topic"), look.text("id")
    if key:
        found = await _by_key(look, topic, key)
        if not found:
            raise NotFound(
                "no message with key or id %(key)s is in topic %(topic)s any more",
                key=key,
                topic=topic,
            )
        return MessageQueue(topic, await _broker_of(look, found[0]), found[0].queue_id), found[0]
    queue = MessageQueue(topic, look.required("broker"), look.number("queue", 0, 0, 1 << 30))
    offset = look.number("offset", 0, 0, 1 << 62)
    if queue not in await patient(look.watched.reader.queues(topic)):
        raise NotFound(
            "topic %(topic)s has no queue %(queue_id)s on %(broker_name)s",
            topic=topic,
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
        )
    pulled = await patient(look.watched.reader.pull(queue, offset, 1))
    try:
        records = decode_all(pulled.body)
    except Malformed as wrong:
        raise ClientError(f"the broker gave a broken message: {wrong}") from None
    if not records or records[0].queue_offset != offset:
        raise NotFound(
            "no message is at offset %(offset)s of queue %(queue_id)s any more",
            offset=offset,
            queue_id=queue.queue_id,
        )
    return queue, records[0]


async def _broker_of(look: Look, record: Record) -> str:
    """The name of the broker that stored a message."""
    address = host_text(record.store_host)
    for one in look.watched.collector.brokers.values():
        if one.address == address:
            return one.name
    return address


def condition(look: Look) -> Predicate | None:
    """The expression of a search; BadQuery with the place of its fault."""
    text = look.text("where").strip()
    if not text:
        return None
    try:
        found = predicate(text, fields=True)
    except SqlError as wrong:
        raise BadQuery(str(wrong)) from None
    if look.visitor.bodies == Bodies.SHOWN:
        return found
    if BODY_NAMED.search(QUOTED.sub("", text)):
        raise Forbidden(
            "bodies are %(bodies)s for %(name)s, so an expression can't ask about them; "
            "leave body out",
            bodies=Text(look.visitor.bodies),
            name=look.visitor.name,
        )
    return lambda fields: found(Bodiless(fields))


async def found_records(look: Look, most: int) -> AsyncGenerator[Record | Progress]:
    """The messages of a search, `most` at most, and its progress, as they come."""
    begin = look.time_ms("begin", now_ms() - HOUR_MS)
    end = look.time_ms("end", now_ms() + HOUR_MS)
    if end <= begin:
        raise BadQuery(
            "the time from %(begin)s to %(end)s ms is empty; give an end after the begin",
            begin=begin,
            end=end,
        )
    condition(look)
    steps = look.searches.search(
        look.watched,
        look.required("topic"),
        begin,
        min(end, EVER_MS),
        look.text("where").strip(),
        sees_bodies=look.visitor.bodies == Bodies.SHOWN,
        cursor=look.text("cursor"),
        hits_max=most,
    )
    async with aclosing(steps):
        async for one in steps:
            yield one


async def found_in(look: Look) -> AsyncGenerator[answers.MessageRow | Progress]:
    """The rows of a search and its progress, as they come."""
    names = broker_names(look)
    async with aclosing(found_records(look, look.number("limit", HITS_MAX, 1, HITS_MAX))) as steps:
        async for one in steps:
            if isinstance(one, Progress):
                yield one
            else:
                yield row_of(one, broker_of(one, names), look.visitor.bodies)


def broker_names(look: Look) -> dict[str, str]:
    """The names of the cluster's brokers by address."""
    return {one.address: one.name for one in look.watched.collector.brokers.values()}


def broker_of(record: Record, names: dict[str, str]) -> str:
    """The name of the broker that stored a message, empty when it is not known."""
    return names.get(host_text(record.store_host), "")


async def found_all(look: Look) -> answers.Found:
    """The same as one answer, for programs."""
    rows: list[answers.MessageRow] = []
    progress = Progress()
    async for one in found_in(look):
        if isinstance(one, Progress):
            progress = one
        else:
            rows.append(one)
    return {"found": rows, "progress": progress}


async def tail(look: Look) -> answers.Tail:
    """The page of a live view; its rows come from `tail/events`."""
    condition(look)
    topic = look.required("topic")
    if topic not in look.topic_rows():
        raise NotFound(
            "topic %(topic)s is on no broker that was asked; see the list of topics", topic=topic
        )
    return {"topic": topic, "expression": look.text("where")}


async def scheduled(look: Look) -> answers.Scheduled:
    """Messages that wait for a time or a level."""
    masters = look.masters()
    admin = look.watched.admin
    delays, faults = await look.ask(masters, admin.delays_at)
    texts, away = await look.ask(masters, admin.broker_config)
    settings = {name: java_properties.parse(text) for name, text in texts.items()}
    waits = {
        name: waiting.level_waits(one.get("messageDelayLevel", ""))
        for name, one in settings.items()
    }
    rows, scanned = await waiting.scheduled(look.watched.reader, delays, waits, now_ms())
    recallable = {name: one.get("recallMessageEnable") for name, one in settings.items()}
    faults_of_all = [*faults.values(), *away.values()]
    shown, scan = _cut(look, rows, scanned, faults_of_all)
    return {"rows": shown, "recallable": recallable, **scan}


async def transactions(look: Look) -> answers.Transactions:
    """Half messages that were neither committed nor rolled back."""
    masters, admin = look.masters(), look.watched.admin

    async def checked(address: str) -> Any:
        return await admin.progress_at(address, CHECKER)

    progress, faults = await look.ask(masters, checked)
    starts = {
        (queue.topic, queue.broker_name, queue.queue_id): max(0, one.consumer_offset)
        for table in progress.values()
        for queue, one in table.offset_table.items()
    }
    rows, scanned = await waiting.transactions(look.watched.reader, starts)
    shown, scan = _cut(look, rows, scanned, list(faults.values()))
    return {"rows": shown, **scan}


def _cut(
    look: Look, rows: list[Waits], scanned: waiting.Scan, faults: list[str]
) -> tuple[list[Waits], answers.Scan]:
    """The rows that the visitor sees, and how far they were read."""
    rows = [one for one in rows if look.may(Right.VIEW, topic=one.topic)]
    cuts = [one for one in (cut_at(waiting.ROWS_MAX, len(rows)), scanned.cut) if one]
    return rows[: waiting.ROWS_MAX], {
        "count": None if scanned.cut or faults or scanned.faults else len(rows),
        "cut": joined("; ", cuts) if cuts else None,
        "faults": [*faults, *scanned.faults],
        "now_ms": now_ms(),
    }


def row_of(record: Record, broker: str, bodies: Bodies) -> answers.MessageRow:
    """A row about a message, with as much of its body as a visitor may see."""
    pairs = record.properties
    return {
        "topic": record.topic,
        "broker": broker,
        "queue": record.queue_id,
        "offset": record.queue_offset,
        "id": id_of(record),
        "tag": pairs.get(props.TAGS, ""),
        "keys": pairs.get(props.KEYS, ""),
        "stored_ms": record.store_ms,
        "born_ms": record.born_ms,
        "retries": record.reconsume_times,
        "brief": brief(record, bodies),
    }
