"""The pages about messages: newest ones, by key and id, searched, one's history, waiting ones."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeVar

from ...client.admin.dead_letters import origin_of
from ...client.base.concurrent import each
from ...client.base.identity import now_ms
from ...client.errors import AerobeeError, ClientError, NoRouteError
from ...protocol.bodies.body import MessageQueue
from ...protocol.codec import java_properties
from ...protocol.errors import Malformed
from ...protocol.filters.sql92 import Predicate, SqlError, predicate
from ...protocol.message import properties as props
from ...protocol.message.message_id import host_text, parse_offset_message_id
from ...protocol.message.record import Record, decode_all
from ...protocol.names import DLQ_PREFIX
from ..access.rights import Bodies, Right
from ..clusters.samples import TopicRow
from ..messages import waiting
from ..messages.fields import Bodiless, Sought, sought_by
from ..messages.history import Step, given_up, history_of, history_of_deleted
from ..messages.newest import newest_first
from ..messages.search import HITS_MAX, Progress, places
from ..messages.shown import brief, id_of, shown
from ..texts import Text, TextError, joined, text_of
from ..times import TIME_MS_MAX
from . import answers
from .request_context import (
    ROWS,
    TOPIC_COLUMNS,
    BadExpression,
    BadQuery,
    Forbidden,
    NotFound,
    NotKnown,
    RequestContext,
    cut_at,
    listed,
    patient,
)

TOPICS_MAX = 1_000  # to choose from
DEAD_TOPICS_MAX = 20  # of which the newest dead letters are read
HALF_TOPICS = (waiting.HALF_TOPIC, "TRANS_CHECK_MAX_TIME_TOPIC")
READ_AS = ("key", "expression")  # what the text of the search bar can be said to be
BODY_NAMED = re.compile(r"\bbody\b", re.IGNORECASE)
Waits = TypeVar("Waits", waiting.Waiting, waiting.OpenTransaction)
CHECKER = "CID_RMQ_SYS_TRANS"  # the group whose offsets tell how far brokers checked transactions


def sought(context: RequestContext) -> Sought:
    """The text `q`, read as the parameter `as` says, or else as an id or a key where it has no
    blank and no sign of SQL92; or `key` or `where` by themselves."""
    text, key = context.text("q").strip(), context.text("key").strip()
    if text:
        return Sought(text, "") if _is_key(text, context.text("as")) else Sought("", text)
    return Sought(key, "" if key else context.text("where").strip())


def _is_key(text: str, given: str = "") -> bool:
    if given and given not in READ_AS:
        raise BadQuery(
            "as is %(text)s; give one of %(known)s, or nothing",
            text=f"{given[:80]!r}",
            known=", ".join(READ_AS),
        )
    return given == "key" or (not given and bool(sought_by(text).key))


def _read_as(context: RequestContext, words: Sought) -> str:
    """What the text of the search bar is said to be; empty where that is clear by itself."""
    text = words.key or words.expression
    wanted = "key" if words.key else "expression"
    if not text or (not context.text("as") and _is_key(text) == bool(words.key)):
        return ""
    return wanted


def is_search(context: RequestContext) -> bool:
    """True if messages are to be searched, by an expression or a time; else the newest ones or
    those with a key are wanted."""
    words = sought(context)
    return not words.key and bool(words.expression or context.text("begin") or context.text("end"))


async def messages(context: RequestContext) -> answers.Messages:
    """The newest messages of a topic, or the ones with a key or an id; without a topic the choice
    of one."""
    topic, key = context.text("topic"), sought(context).key
    found: list[answers.MessageRow] = []
    progress: Progress | None = None
    try:
        if topic and key:
            bodies, (begin, end) = context.visitor.bodies, _time(context)
            found = [
                row_of(one, "", bodies)
                for one in await _by_key(context, topic, key)
                if begin <= one.store_ms < end
            ]
            progress = Progress(faults=_away(context))
        elif topic:
            found, progress = await patient(newest(context, topic, context.text("cursor")))
    except NoRouteError:
        raise NotFound(
            "topic %(topic)s is on no broker that was asked; see the list of topics", topic=topic
        ) from None
    return {**form(context), "found": found, "progress": progress}


def form(context: RequestContext) -> answers.SearchForm:
    """The search bar as it was filled in, and the topics to choose from."""
    rows = sorted(context.topics("users"), key=lambda row: row.last_ms or 0, reverse=True)
    words = sought(context)
    return {
        "topic": context.text("topic"),
        "key": words.key,
        "expression": words.expression,
        "read_as": _read_as(context, words),
        "begin": context.text("begin"),
        "end": context.text("end"),
        "cursor": context.text("cursor"),
        "topics": [row.name for row in rows[:TOPICS_MAX]],
    }


async def newest(
    context: RequestContext, topic: str, cursor: str = ""
) -> tuple[list[answers.MessageRow], Progress]:
    """The newest ROWS messages of a topic, or those before a cursor. They are read here: that
    needs few requests, and no process."""
    names, progress = broker_names(context), Progress()
    rows: list[answers.MessageRow] = []
    steps = newest_first(
        context.watched.reader, topic, 0, TIME_MS_MAX, None, cursor=cursor, hits_max=ROWS
    )
    async for one in steps:
        if isinstance(one, Progress):
            progress = one
        else:
            rows.append(row_of(one, broker_of(one, names), context.visitor.bodies))
    progress.faults += _away(context)
    return rows, progress


def _away(context: RequestContext) -> list[str]:
    """The masters that do not answer, of whose messages nothing is known."""
    return [
        Text("broker %(name)s does not answer: its messages are not looked at", name=name)
        for name in absent(context)
    ]


def absent(context: RequestContext) -> dict[str, str]:
    """The masters that do not answer, and why."""
    return {one.name: one.wrong for one in context.masters() if one.wrong is not None}


def _absent(context: RequestContext, text: Text) -> TextError:
    """That a message is not there; with a broker away that is not known."""
    away = _away(context)
    return NotKnown(joined("; ", [text, *away])) if away else NotFound(text)


def _time(context: RequestContext) -> tuple[int, int]:
    """The begin and the end of the time to search, in ms. BadQuery for an empty one."""
    begin = context.time_ms("begin", 0)
    end = min(context.time_ms("end", TIME_MS_MAX), TIME_MS_MAX)
    if end <= begin:
        raise BadQuery(Text("the time is empty: its end is not after its begin"))
    return begin, end


async def dead_letters(context: RequestContext) -> answers.DeadLetters:
    """The dead letter topics, and the newest letters of those that got one last; of one group its
    letters."""
    rows = [row for row in context.topic_rows().values() if row.name.startswith(DLQ_PREFIX)]
    if group := context.text("group"):
        return await _dead_letters_of(context, group, rows)
    late = sorted(
        (row for row in rows if row.messages != 0), key=lambda row: row.last_ms or 0, reverse=True
    )
    faults: list[str] = []

    async def letters(row: TopicRow) -> list[answers.MessageRow]:
        try:
            found, progress = await patient(newest(context, row.name))
        except NoRouteError:
            return []  # it is gone since it was sampled
        except AerobeeError as wrong:
            faults.append(text_of(wrong))
            return []
        faults.extend(progress.faults)
        return found

    read = await each(late[:DEAD_TOPICS_MAX], letters)
    found = [one for part in read for one in part]
    found.sort(key=lambda one: one["stored_ms"], reverse=True)
    return {
        "list": listed(context, rows, TOPIC_COLUMNS, "-messages"),
        "prefix": DLQ_PREFIX,
        "group": "",
        "newest": found[:ROWS],
        "cursor": None,
        "faults": faults,
    }


async def _dead_letters_of(
    context: RequestContext, group: str, rows: list[TopicRow]
) -> answers.DeadLetters:
    topic = DLQ_PREFIX + group
    try:
        found, progress = await patient(newest(context, topic, context.text("cursor")))
    except NoRouteError:
        if group not in context.group_rows():
            raise NotFound(
                "group %(name)s is on no broker that was asked; see the list of groups", name=group
            ) from None
        found, progress = [], Progress()  # it never had one
    own = [row for row in rows if row.name == topic]
    return {
        "list": listed(context, own, TOPIC_COLUMNS, "-messages"),
        "prefix": DLQ_PREFIX,
        "group": group,
        "newest": found,
        "cursor": progress.cursor,
        "faults": progress.faults,
    }


async def _by_key(context: RequestContext, topic: str, key: str) -> list[Record]:
    """Messages by a key, by the sender's id, or by the id that says where it lies."""
    found = await _asked_by_key(context, topic, key)
    # An id may lead to a message of any topic.
    return [one for one in found if context.may(Right.VIEW, topic=one.topic)]


async def _asked_by_key(context: RequestContext, topic: str, key: str) -> list[Record]:
    admin = context.watched.admin
    try:
        host, _ = parse_offset_message_id(key)
    except ValueError:
        host = None
    # An id names an address: it is only followed to a broker of this cluster.
    if host is not None and host_text(host) in context.watched.addresses():
        return [await patient(admin.message(key))]
    unique = await patient(admin.query(topic, key, unique=True))
    more = await patient(admin.query(topic, key))
    known = {(one.store_host, one.log_offset) for one in unique}
    return unique + [one for one in more if (one.store_host, one.log_offset) not in known]


async def message(context: RequestContext) -> answers.Message | answers.MessageGone:
    """One message: as stored, its body, its history. Of a deleted message only the history is
    known."""
    try:
        queue, record = await _one(context)
    except NotFound:
        gone = await _gone(context)
        if not gone:
            raise
        return {"topic": context.text("topic"), "row": None, "way": _seen(context, gone)}
    types = context.types
    wanted = context.text("as", "" if types is None else types.by_topic.get(record.topic, ""))
    body = shown(record, context.visitor.bodies, types, wanted)
    pairs = record.properties
    groups = context.watched.collector.groups()
    steps = await history_of(context.watched.admin, record, queue.broker_name, groups)
    return {
        "topic": record.topic,
        "broker": queue.broker_name,
        "row": row_of(record, queue.broker_name, context.visitor.bodies),
        "offset_id": record.offset_id,
        "flag": record.flag,
        "half_topic": pairs.get(props.REAL_TOPIC) if record.topic in HALF_TOPICS else None,
        "dead": _dead(record),
        "is_intact": record.is_body_intact,
        "own": sorted(props.own(pairs).items()),
        "system": sorted((k, v) for k, v in pairs.items() if k in props.SYSTEM),
        "body": body,
        "as": wanted,
        "types": [] if types is None else types.names,
        "way": _seen(context, steps),
    }


def _dead(record: Record) -> answers.DeadLetter | None:
    """What a dead letter is; None for another message."""
    if not record.topic.startswith(DLQ_PREFIX):
        return None
    pairs, group = record.properties, record.topic.removeprefix(DLQ_PREFIX)
    first = pairs.get(props.UNIQ_KEY) or pairs.get(props.ORIGIN_MESSAGE_ID, "")
    return {
        "group": group,
        "what": given_up(record),
        "topic": origin_of(record, group),
        "id": first or pairs.get(props.DLQ_ORIGIN_MESSAGE_ID, ""),
    }


def _seen(context: RequestContext, steps: list[Step]) -> list[Step]:
    """The steps of groups that the visitor may see."""
    return [one for one in steps if not one.group or context.may(Right.VIEW, group=one.group)]


async def _gone(context: RequestContext) -> list[Step]:
    """The history of a deleted message; empty when nothing proves that the message existed."""
    admin, topic, key = context.watched.admin, context.topic(), context.text("id")
    if key:
        return await history_of_deleted(admin, topic, key)
    queue = MessageQueue(topic, context.required("broker"), context.number("queue", 0, 0, 1 << 30))
    return await history_of_deleted(
        admin, topic, "", queue, context.number("offset", 0, 0, 1 << 62)
    )


async def _one(context: RequestContext) -> tuple[MessageQueue, Record]:
    """The message at a place of a queue, or the first one with an id."""
    topic, key = context.topic(), context.text("id")
    if key:
        found = await _by_key(context, topic, key)
        if not found:
            raise _absent(
                context,
                Text(
                    "no message with key or id %(key)s is in topic %(topic)s any more",
                    key=key,
                    topic=topic,
                ),
            )
        return MessageQueue(topic, await _broker_of(context, found[0]), found[0].queue_id), found[0]
    queue = MessageQueue(topic, context.required("broker"), context.number("queue", 0, 0, 1 << 30))
    offset = context.number("offset", 0, 0, 1 << 62)
    if queue not in await patient(context.watched.reader.queues(topic)):
        raise _absent(
            context,
            Text(
                "topic %(topic)s has no queue %(queue_id)s on %(broker_name)s",
                topic=topic,
                queue_id=queue.queue_id,
                broker_name=queue.broker_name,
            ),
        )
    pulled = await patient(context.watched.reader.pull(queue, offset, 1))
    try:
        records = decode_all(pulled.body)
    except Malformed as wrong:
        raise ClientError(
            Text("the broker gave a broken message: %(wrong)s", wrong=wrong)
        ) from None
    if not records or records[0].queue_offset != offset:
        raise NotFound(
            "no message is at offset %(offset)s of queue %(queue_id)s any more",
            offset=offset,
            queue_id=queue.queue_id,
        )
    return queue, records[0]


async def _broker_of(context: RequestContext, record: Record) -> str:
    """The name of the broker that stored a message."""
    address = host_text(record.store_host)
    for one in context.watched.collector.brokers.values():
        if one.address == address:
            return one.name
    return address


def condition(context: RequestContext) -> Predicate | None:
    """The expression of a search; BadExpression with the place of its fault."""
    return condition_of(context, sought(context).expression)


def condition_of(context: RequestContext, text: str) -> Predicate | None:
    """An expression as this visitor may ask it. BadExpression, Forbidden."""
    if not text:
        return None
    try:
        found = predicate(text, fields=True, is_whole=True)
    except SqlError as wrong:
        refused = BadExpression(text_of(wrong))
        refused.at = wrong.at
        raise refused from None
    if context.visitor.bodies == Bodies.SHOWN:
        return found
    if BODY_NAMED.search(text):
        raise Forbidden(
            "bodies are %(bodies)s for %(name)s, so an expression can't ask about them; "
            "leave body out",
            bodies=Text(context.visitor.bodies),
            name=context.visitor.name,
        )
    return lambda fields: found(Bodiless(fields))


async def found_records(
    context: RequestContext, most: int, *, is_newest_first: bool = False
) -> AsyncGenerator[Record | Progress]:
    """The messages of a search, `most` at most, and its progress, as they come."""
    (begin, end), topic, cursor = _time(context), context.topic(), context.text("cursor")
    condition(context)
    if cursor:
        places(cursor, topic)
    away = _away(context)
    steps = context.searches.search(
        context.watched,
        topic,
        begin,
        end,
        sought(context).expression,
        sees_bodies=context.visitor.bodies == Bodies.SHOWN,
        cursor=cursor,
        hits_max=most,
        is_newest_first=is_newest_first,
    )
    async with aclosing(steps):
        async for one in steps:
            if isinstance(one, Progress):
                one.faults += away
            yield one


async def found_in(
    context: RequestContext, most: int
) -> AsyncGenerator[answers.MessageRow | Progress]:
    """The rows of a search and its progress, as they come, the newest first: `most` where no
    limit is asked for."""
    names, most = broker_names(context), context.number("limit", most, 1, HITS_MAX)
    async with aclosing(found_records(context, most, is_newest_first=True)) as steps:
        async for one in steps:
            if isinstance(one, Progress):
                yield one
            else:
                yield row_of(one, broker_of(one, names), context.visitor.bodies)


def broker_names(context: RequestContext) -> dict[str, str]:
    """The names of the cluster's brokers by address."""
    return {one.address: one.name for one in context.watched.collector.brokers.values()}


def broker_of(record: Record, names: dict[str, str]) -> str:
    """The name of the broker that stored a message, empty when it is not known."""
    return names.get(host_text(record.store_host), "")


async def found_all(context: RequestContext) -> answers.Found:
    """The same as one answer, for programs."""
    rows: list[answers.MessageRow] = []
    progress = Progress()
    async for one in found_in(context, HITS_MAX):
        if isinstance(one, Progress):
            progress = one
        else:
            rows.append(one)
    return {"found": rows, "progress": progress}


async def tail(context: RequestContext) -> answers.SearchForm:
    """The page of a live view; its rows come from `tail/events`."""
    topic = context.topic()
    if topic not in context.topic_rows():
        raise NotFound(
            "topic %(topic)s is on no broker that was asked; see the list of topics", topic=topic
        )
    condition(context)
    return form(context)


async def scheduled(context: RequestContext) -> answers.Scheduled:
    """Messages that wait for a time or a level."""
    masters = context.masters()
    admin = context.watched.admin
    delays, faults = await context.ask(masters, admin.delays_at)
    texts, away = await context.ask(masters, admin.broker_config)
    settings = {name: java_properties.parse(text) for name, text in texts.items()}
    waits = {
        name: waiting.level_waits(one.get("messageDelayLevel", ""))
        for name, one in settings.items()
    }
    rows, scanned = await waiting.scheduled(
        context.watched.reader, delays, waits, now_ms(), context.visitor.bodies
    )
    recallable = {name: one.get("recallMessageEnable") for name, one in settings.items()}
    faults_of_all = [*faults.values(), *away.values()]
    shown, scan = _cut(context, rows, scanned, faults_of_all)
    return {"rows": shown, "recallable": recallable, **scan}


async def transactions(context: RequestContext) -> answers.Transactions:
    """Half messages that were neither committed nor rolled back."""
    masters, admin = context.masters(), context.watched.admin

    async def checked(address: str) -> Any:
        return await admin.progress_at(address, CHECKER)

    progress, faults = await context.ask(masters, checked)
    starts = {
        (queue.topic, queue.broker_name, queue.queue_id): max(0, one.consumer_offset)
        for table in progress.values()
        for queue, one in table.offset_table.items()
    }
    rows, scanned = await waiting.transactions(
        context.watched.reader, starts, context.visitor.bodies
    )
    shown, scan = _cut(context, rows, scanned, list(faults.values()))
    return {"rows": shown, **scan}


def _cut(
    context: RequestContext, rows: list[Waits], scanned: waiting.Scan, faults: list[str]
) -> tuple[list[Waits], answers.Scan]:
    """The rows that the visitor sees, and how far they were read."""
    rows = [one for one in rows if context.may(Right.VIEW, topic=one.topic)]
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
        "offset_id": record.offset_id,
        "tag": pairs.get(props.TAGS, ""),
        "keys": pairs.get(props.KEYS, ""),
        "stored_ms": record.store_ms,
        "born_ms": record.born_ms,
        "retries": record.reconsume_times,
        "brief": brief(record, bodies),
    }
