"""The pages about messages: by key and id, searched in a time, one with its way, waiting ones."""

from collections.abc import AsyncIterator
from typing import Any

from ...client.base.identity import host_text, now_ms
from ...client.errors import ClientError
from ...protocol.bodies.body import MessageQueue
from ...protocol.codec import java_properties
from ...protocol.errors import Malformed
from ...protocol.filters.sql92 import Predicate, SqlError, predicate
from ...protocol.message import properties as props
from ...protocol.message.message_id import PORT_BYTES, parse_offset_message_id
from ...protocol.message.record import Record, decode_all
from ..messages import waiting
from ..messages.search import HITS_MAX, Progress, search
from ..messages.shown import brief, id_of, shown
from ..messages.way import way_of
from .look import BadQuery, Look, NotFound, patient

HOUR_MS = 3_600_000
EVER_MS = 253_402_300_799_000
CHECKER = "CID_RMQ_SYS_TRANS"  # the group whose offsets tell how far brokers checked transactions


async def messages(look: Look) -> dict[str, Any]:
    """The forms, and the messages of a topic with a key or an id."""
    topic, key = look.text("topic"), look.text("key").strip()
    names = list(look.watched.collector.topics())
    found: list[dict[str, Any]] | None = None
    if topic and key:
        found = [row_of(one, "") for one in await _by_key(look, topic, key)]
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
    admin = look.watched.admin
    try:
        host, _ = parse_offset_message_id(key)
    except ValueError:
        host = None
    # An id names an address: it is only followed to a broker of this cluster.
    if host is not None and address_of(host) in look.watched.addresses():
        return [await patient(admin.message(key))]
    unique = await patient(admin.query(topic, key, unique=True))
    more = await patient(admin.query(topic, key))
    known = {(one.store_host, one.log_offset) for one in unique}
    return unique + [one for one in more if (one.store_host, one.log_offset) not in known]


async def message(look: Look) -> dict[str, Any]:
    """One message: as stored, its body, its way."""
    queue, record = await _one(look)
    body = shown(record)
    pairs = record.properties
    steps = await way_of(look.watched.admin, record, queue.broker_name)
    return {
        "topic": record.topic,
        "broker": queue.broker_name,
        "row": row_of(record, queue.broker_name),
        "offset_id": record.offset_id,
        "flag": record.flag,
        "is_intact": record.is_body_intact,
        "own": sorted(props.own(pairs).items()),
        "system": sorted((k, v) for k, v in pairs.items() if k in props.SYSTEM),
        "body": body,
        "way": steps,
    }


async def _one(look: Look) -> tuple[MessageQueue, Record]:
    """The message at a place of a queue, or the first one with an id."""
    topic, key = look.required("topic"), look.text("id")
    if key:
        found = await _by_key(look, topic, key)
        if not found:
            raise NotFound(f"no message with key or id {key} is in topic {topic} any more")
        return MessageQueue(topic, await _broker_of(look, found[0]), found[0].queue_id), found[0]
    queue = MessageQueue(topic, look.required("broker"), look.number("queue", 0, 0, 1 << 30))
    offset = look.number("offset", 0, 0, 1 << 62)
    if queue not in await patient(look.watched.reader.queues(topic)):
        raise NotFound(f"topic {topic} has no queue {queue.queue_id} on {queue.broker_name}")
    pulled = await patient(look.watched.reader.pull(queue, offset, 1))
    try:
        records = decode_all(pulled.body)
    except Malformed as wrong:
        raise ClientError(f"the broker gave a broken message: {wrong}") from None
    if not records or records[0].queue_offset != offset:
        raise NotFound(f"no message is at offset {offset} of queue {queue.queue_id} any more")
    return queue, records[0]


async def _broker_of(look: Look, record: Record) -> str:
    """The name of the broker that stored a message."""
    address = address_of(record.store_host)
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
        return predicate(text, fields=True)
    except SqlError as wrong:
        raise BadQuery(str(wrong)) from None


async def found_in(look: Look) -> AsyncIterator[dict[str, Any] | Progress]:
    """The rows of a search and its progress, as they come."""
    begin = look.time_ms("begin", now_ms() - HOUR_MS)
    end = look.time_ms("end", now_ms() + HOUR_MS)
    if end <= begin:
        raise BadQuery(f"the time from {begin} to {end} ms is empty; give an end after the begin")
    names = {one.address: one.name for one in look.watched.collector.brokers.values()}
    async for one in search(
        look.watched.reader,
        look.required("topic"),
        begin,
        min(end, EVER_MS),
        condition(look),
        cursor=look.text("cursor"),
        hits_max=look.number("limit", HITS_MAX, 1, HITS_MAX),
    ):
        if isinstance(one, Progress):
            yield one
        else:
            yield row_of(one, names.get(address_of(one.store_host), ""))


async def found_all(look: Look) -> dict[str, Any]:
    """The same as one answer, for programs."""
    rows: list[dict[str, Any]] = []
    progress = Progress()
    async for one in found_in(look):
        if isinstance(one, Progress):
            progress = one
        else:
            rows.append(one)
    return {"found": rows, "progress": progress}


async def tail(look: Look) -> dict[str, Any]:
    """The page of a live view; its rows come from `tail/events`."""
    condition(look)
    topic = look.required("topic")
    if topic not in look.watched.collector.topics():
        raise NotFound(f"topic {topic} is on no broker that was asked; see the list of topics")
    return {"topic": topic, "expression": look.text("where")}


async def scheduled(look: Look) -> dict[str, Any]:
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
    return _cut(rows, scanned, [*faults.values(), *away.values()]) | {"recallable": recallable}


async def transactions(look: Look) -> dict[str, Any]:
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
    return _cut(rows, scanned, list(faults.values()))


def _cut(rows: list[Any], scanned: waiting.Scan, faults: list[str]) -> dict[str, Any]:
    cut = scanned.cut
    if len(rows) > waiting.ROWS_MAX:
        cut = f"the first {waiting.ROWS_MAX} of {len(rows):,}" + (f"; {cut}" if cut else "")
    return {
        "rows": rows[: waiting.ROWS_MAX],
        "count": None if scanned.cut or faults or scanned.faults else len(rows),
        "cut": cut,
        "faults": [*faults, *scanned.faults],
        "now_ms": now_ms(),
    }


def row_of(record: Record, broker: str) -> dict[str, Any]:
    """A row about a message."""
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
        "brief": brief(record),
    }


def address_of(host: bytes) -> str:
    """The address of a broker from the bytes in its messages."""
    return host_text(host[:-PORT_BYTES], int.from_bytes(host[-PORT_BYTES:], "big"))
