"""Messages: send one, have a member consume one, cancel a scheduled one, check a transaction."""

import random
from functools import partial

from ...client.base.identity import now_ms
from ...client.base.message import Message
from ...client.errors import ClientError, IllegalMessageError
from ...protocol.codec import java_properties
from ...protocol.message import properties as props
from ...protocol.message import recall_handle
from ...protocol.message.message_id import host_text, parse_offset_message_id
from ...protocol.message.record import Record
from ..clusters.clusters import Watched
from ..messages.history import TIMER_TOPIC
from ..messages.shown import id_of
from ..messages.waiting import HALF_TOPIC, queues_of, scan
from ..texts import Text, counted, joined, quoted, text_of
from ..times import time_text
from .action import Action, Change, Field, Pins, Plan, Unfit, Values
from .groups import GROUP
from .places import chosen, masters_of
from .topics import TOPIC

RECALL = "recallMessageEnable"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
PROPERTIES_MAX = 64
BODY_CHARS_MAX = 256 << 10  # a form has 1 MiB at most
TOLD_CHARS_MAX = 200  # of a field, in a preview
SUCCESS = "CR_SUCCESS"


async def _send(watched: Watched, values: Values, pins: Pins) -> Plan:
    topic = values["topic"]
    addresses = await masters_of(watched, topic)
    queues = await watched.admin.publish_queues(topic)
    if values["broker"]:
        queues = [one for one in queues if one.broker_name == values["broker"]]
    if values["queue"] is not None:
        queues = [one for one in queues if one.queue_id == values["queue"]]
    if not queues or not addresses:
        raise Unfit(
            "topic %(topic)s has no such queue that can be written; see its page", topic=topic
        )
    message = message_of(values)
    number = pins.setdefault("queue", random.randrange(len(queues)))  # noqa: S311
    queue = queues[min(number, len(queues) - 1)]

    async def do() -> str:
        receipt = await watched.admin.send_once(message, queue)
        return Text(
            "%(status)s: id %(id)s, offset %(offset)s",
            status=receipt.status,
            id=receipt.msg_id,
            offset=receipt.queue_offset,
        )

    after = Text(
        "%(size)s, tag %(tag)s",
        size=counted(len(message.body), "1 byte", "%(count)s bytes"),
        tag=message.tags or Text("none"),
    )
    place = Text(
        "%(name)s, queue %(queue)s",
        name=queue.broker_name,
        queue=queue.queue_id,
    )
    return Plan([Change(place, "", after, do)], _told(message, values), pins=pins)


def _told(message: Message, values: Values) -> list[str]:
    """What a message has, as its fields said it; the body as it begins."""
    pairs = [f"{name}={value}" for name, value in (message.properties or {}).items()]
    notes = []
    if message.keys:
        notes.append(Text("keys: %(keys)s", keys=_cut(" ".join(message.keys))))
    if pairs:
        notes.append(Text("properties: %(properties)s", properties=_cut(", ".join(pairs))))
    if values["delay"]:
        notes.append(counted(values["delay"], "delivered after 1 s", "delivered after %(count)s s"))
    return [*notes, Text("body: %(body)s", body=_cut(values["body"] or ""))]


def _cut(text: str) -> str:
    return text[:TOLD_CHARS_MAX] + ("…" if len(text) > TOLD_CHARS_MAX else "")


def message_of(values: Values) -> Message:
    """The message of a form; Unfit."""
    pairs: dict[str, str] = {}
    for line in (values["properties"] or "").splitlines():
        name, separator, value = line.partition("=")
        if not separator:
            raise Unfit(
                "the property %(line)s has no =; give one name=value a line", line=f"{line[:80]!r}"
            )
        if not name.strip():
            raise Unfit(
                "the property %(line)s has no name; give one name=value a line",
                line=f"{line[:80]!r}",
            )
        pairs[name.strip()] = value
    if len(pairs) > PROPERTIES_MAX:
        raise Unfit(
            "%(count)s properties are given, the limit is %(properties_max)s",
            count=len(pairs),
            properties_max=PROPERTIES_MAX,
        )
    body = (values["body"] or "").encode()
    try:
        message = Message(
            values["topic"],
            body,
            tags=values["tag"] or "",
            keys=(values["keys"] or "").split(),
            properties=pairs,
            delay=values["delay"] or None,
        )
        message.check()
        message.all_properties()
    except IllegalMessageError as wrong:
        raise Unfit(text_of(wrong)) from None
    return message


async def stored(watched: Watched, offset_id: str) -> tuple[str, str, Record]:
    """The broker and the address of a message, and the message. Only brokers of this cluster are
    asked: an id names an address."""
    try:
        host, _ = parse_offset_message_id(offset_id)
    except ValueError as wrong:
        raise Unfit(text_of(wrong)) from None
    address = host_text(host)
    for name, known in (await watched.admin.masters()).items():
        if known == address:
            return name, address, await watched.admin.message(offset_id)
    raise Unfit(
        "message %(offset_id)s is at %(address)s, which is no master of this cluster; "
        "take the offset id of its page",
        offset_id=offset_id,
        address=address,
    )


def _check_topic(given: str, topic: str) -> None:
    """Raise Unfit unless the form's topic, by which rights are checked, is the message's."""
    if given != topic:
        raise Unfit(
            "the message is of topic %(topic)s, not of %(given)s; give its topic",
            topic=topic,
            given=given[:200],
        )


async def _resend(watched: Watched, values: Values, pins: Pins) -> Plan:
    group, client = values["group"], values["client"]
    name, address, record = await stored(watched, values["id"])
    _check_topic(values["topic"], record.topic)
    plan = Plan(
        notes=[
            Text(
                "the message: %(id)s of %(topic)s, %(size)s",
                id=id_of(record),
                topic=record.topic,
                size=counted(len(record.body), "1 byte", "%(count)s bytes"),
            )
        ]
    )
    online = await watched.admin.members_at(address, group)
    members = [one.client_id for one in online.connection_set] if online else []
    if client not in members:
        known = ", ".join(str(one) for one in members[:20]) or Text("none")
        plan.refuse(
            "%(client)s is no member of %(group)s at %(name)s; members: %(known)s",
            client=client,
            group=group,
            name=name,
            known=known,
        )

    async def do() -> str:
        found = await watched.admin.consume_at(address, group, client, values["id"], record.topic)
        if found.consume_result != SUCCESS:
            raise ClientError(
                Text(
                    "the member answered %(result)s: %(remark)s",
                    result=found.consume_result,
                    remark=quoted(found.remark or ""),
                )
            )
        return Text(
            "consumed in %(ms)s ms; its offset and its retries stay", ms=found.spent_time_mills
        )

    plan.changes.append(
        Change(Text("member %(client)s", client=client), "", Text("consumes it now"), do)
    )
    return plan


async def _cancel(watched: Watched, values: Values, pins: Pins) -> Plan:
    broker = values["broker"]
    addresses = await chosen(watched, broker)
    settings = java_properties.parse(await watched.admin.broker_config(addresses[broker]))
    plan = Plan()
    if settings.get(RECALL) != "true":
        plan.refuse(
            "broker %(broker)s recalls no message: %(setting)s is %(value)s; set it to true first",
            broker=broker,
            setting=RECALL,
            value=settings.get(RECALL, Text("not set")),
        )
    record = await _timer(watched, broker, values["id"])
    pairs = record.properties
    topic, due = pairs.get(props.REAL_TOPIC, ""), int(pairs[props.TIMER_OUT_MS])
    _check_topic(values["topic"], topic)
    if due <= now_ms():
        plan.refuse("it is due now: it is delivered, or about to be")
    handle = recall_handle.encode(topic, broker, due + 1, pairs.get(props.UNIQ_KEY, ""))
    do = partial(watched.admin.recall_at, addresses[broker], topic, handle)
    before = Text(
        "waits for %(time)s, %(size)s to topic %(topic)s",
        time=time_text(due),
        size=counted(len(record.body), "1 byte", "%(count)s bytes"),
        topic=topic,
    )
    plan.changes.append(
        Change(Text("broker %(name)s", name=broker), before, Text("is never delivered"), do)
    )
    return plan


async def _timer(watched: Watched, broker: str, key: str) -> Record:
    """The message with this id that waits on a broker for a time."""
    starts = [
        (queue, await watched.reader.min_offset(queue))
        for queue in await queues_of(watched.reader, TIMER_TOPIC)
        if queue.broker_name == broker
    ]
    found = await scan(watched.reader, starts)
    known = [one for _, one in found.records if one.properties.get(props.UNIQ_KEY) == key]
    waiting = [one for one in known if props.TIMER_OUT_MS in one.properties]
    waits = [one for one in waiting if props.TIMER_DEL_UNIQKEY not in one.properties]
    gone = {one.properties.get(props.TIMER_DEL_UNIQKEY) for _, one in found.records}
    for one in reversed(waits):
        if f"{one.properties.get(props.REAL_TOPIC)}+{key}" in gone:
            raise Unfit("message %(key)s was cancelled already", key=key)
        if one.properties[props.TIMER_OUT_MS].isdecimal():
            return one
    more = Text("; %(faults)s", faults=joined("; ", found.faults)) if found.faults else ""
    raise Unfit(
        "no message %(key)s waits for a time on %(broker)s; one that waits for a delay "
        "level can't be cancelled%(more)s",
        key=key,
        broker=broker,
        more=more,
    )


async def _check(watched: Watched, values: Values, pins: Pins) -> Plan:
    name, address, record = await stored(watched, values["id"])
    if record.topic not in (HALF_TOPIC, GIVEN_UP_TOPIC):
        raise Unfit(
            "message %(id)s is in topic %(topic)s; give the offset id of a half message, "
            "in %(name)s",
            id=values["id"],
            topic=record.topic,
            name=GIVEN_UP_TOPIC,
        )
    pairs = record.properties
    _check_topic(values["topic"], pairs.get(props.REAL_TOPIC, ""))
    checks = pairs.get(props.TRANSACTION_CHECK_TIMES, "0")
    before = Text(
        "half message of %(topic)s, %(checks)s checks",
        topic=pairs.get(props.REAL_TOPIC, ""),
        checks=checks,
    )
    do = partial(watched.admin.resume_transaction, address, values["id"])
    return Plan(
        [
            Change(
                Text("broker %(name)s", name=name), before, Text("its producer is asked again"), do
            )
        ]
    )


ID = Field("id", "Offset id", is_required=True, chars_max=56)
ACTIONS = (
    Action(
        "message-send",
        "Send a message",
        (
            TOPIC,
            Field("body", "Body", "long", True, chars_max=BODY_CHARS_MAX),
            Field("tag", "Tag", chars_max=200),
            Field("keys", "Keys", note="blanks between", chars_max=1_000),
            Field("properties", "Properties", "long", note="name=value, one a line"),
            Field("delay", "Deliver after", "number", most=86_400 * 365, note="seconds"),
            Field("broker", "Broker", note="empty: any", names="brokers"),
            Field("queue", "Queue", "number", most=100_000, note="empty: any"),
        ),
        _send,
        topics=("topic",),
    ),
    Action(
        "message-resend",
        "Have a member consume a message again",
        (
            GROUP,
            Field("client", "Member", is_required=True, chars_max=512, note="its client id"),
            TOPIC,
            ID,
        ),
        _resend,
        topics=("topic",),
        groups=("group",),
    ),
    Action(
        "message-cancel",
        "Cancel a scheduled message",
        (
            TOPIC,
            Field("broker", "Broker", is_required=True, chars_max=255, names="brokers"),
            Field("id", "Message id", is_required=True, chars_max=255),
        ),
        _cancel,
        topics=("topic",),
        loses=True,
    ),
    Action(
        "transaction-check", "Check a transaction again", (TOPIC, ID), _check, topics=("topic",)
    ),
)
