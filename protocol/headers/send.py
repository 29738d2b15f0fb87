"""Headers of sending: SEND_MESSAGE (10), its short-named form (310, 320), and their answer; and of
RECALL_MESSAGE (370), by which a producer takes a timer message back.

A send and a success answer to it are written from templates, because they go out once a message.
"""

from typing import ClassVar

import msgspec

from .. import codes
from ..codec.frame import HEAD, LENGTH_BYTES
from ..command import CODEC_JSON, LANGUAGE, RESPONSE_LANGUAGE, VERSION, Command, Response
from ..wire import Header, Int32, Int64, field


class SendMessage(Header):
    """SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320): one letter a field."""

    may_miss: ClassVar = {"a": "", "c": "", "d": "0"}

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queues: Int32 = field(name="d")
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f")
    born_ms: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(name="i", default=None)
    reconsume_times: Int32 | None = field(name="j", default=None)
    unit_mode: bool | None = field(name="k", default=None)
    max_reconsume_times: Int32 | None = field(name="l", default=None)
    batch: bool | None = field(name="m", default=None)
    broker_name: str | None = field(name="n", default=None)


class SendMessageV1(Header):
    """SEND_MESSAGE (10): the same with the names written out."""

    may_miss: ClassVar = {"producerGroup": "", "defaultTopic": "", "defaultTopicQueueNums": "0"}

    producer_group: str = field(name="producerGroup")
    topic: str
    default_topic: str = field(name="defaultTopic")
    default_topic_queues: Int32 = field(name="defaultTopicQueueNums")
    queue_id: Int32 = field(name="queueId")
    sys_flag: Int32 = field(name="sysFlag")
    born_ms: Int64 = field(name="bornTimestamp")
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = field(name="reconsumeTimes", default=None)
    unit_mode: bool | None = field(name="unitMode", default=None)
    max_reconsume_times: Int32 | None = field(name="maxReconsumeTimes", default=None)
    batch: bool | None = None
    broker_name: str | None = field(name="bname", default=None)


class SendMessageResponse(Header):
    """The response to a send. `msg_id` is the offset message id, of a batch a comma list of ids."""

    msg_id: str = field(name="msgId")
    queue_id: Int32 = field(name="queueId")
    queue_offset: Int64 = field(name="queueOffset")
    transaction_id: str | None = field(name="transactionId", default=None)
    batch_uniq_id: str | None = field(name="batchUniqId", default=None)
    recall_handle: str | None = field(name="recallHandle", default=None)
    region: str | None = field(name="MSG_REGION", default=None)
    trace_on: bool | None = field(name="TRACE_ON", default=None)


class ConsumerSendMsgBack(Header):
    """CONSUMER_SEND_MSG_BACK (36): a message that a consumer could not process."""

    offset: Int64
    group: str
    delay_level: Int32 = field(name="delayLevel")
    origin_msg_id: str | None = field(name="originMsgId", default=None)
    origin_topic: str | None = field(name="originTopic", default=None)
    unit_mode: bool = field(name="unitMode", default=False)
    max_reconsume_times: Int32 | None = field(name="maxReconsumeTimes", default=None)


class ReplyMessage(Header):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326): a reply on its way to the client that asked.

    `born_host` and `store_host` are "ip:port".
    """

    producer_group: str = field(name="producerGroup")
    topic: str
    default_topic: str = field(name="defaultTopic")
    default_topic_queues: Int32 = field(name="defaultTopicQueueNums")
    queue_id: Int32 = field(name="queueId")
    sys_flag: Int32 = field(name="sysFlag")
    born_ms: Int64 = field(name="bornTimestamp")
    flag: Int32
    born_host: str = field(name="bornHost")
    store_host: str = field(name="storeHost")
    store_ms: Int64 = field(name="storeTimestamp")
    properties: str | None = None
    reconsume_times: Int32 | None = field(name="reconsumeTimes", default=None)
    unit_mode: bool | None = field(name="unitMode", default=None)


_text = msgspec.json.Encoder().encode


class SendTemplate:
    """Writes the headers of SEND_MESSAGE_V2 requests of one producer group to one queue, JSON, byte
    for byte as `frame.encode_request` does it with a `SendMessage`: first tries, outside of
    batches."""

    __slots__ = ("end", "start")

    def __init__(
        self,
        group: str,
        topic: str,
        default_topic: str,
        default_queues: int,
        queue_id: int,
        broker_name: str,
    ) -> None:
        a, b, c, n = (_text(each).decode() for each in (group, topic, default_topic, broker_name))
        self.start = (
            f'{{"code":{codes.SEND_MESSAGE_V2},"extFields":{{"a":{a},"b":{b},"c":{c},'
            f'"d":"{default_queues}","e":"{queue_id}","f":"'
        )
        self.end = (
            f',"j":"0","k":"false","m":"false","n":{n}}},"flag":0,"language":"{LANGUAGE}","opaque":'
        )

    def before_opaque(self, sys_flag: int, born_ms: int, flag: int, properties: str) -> str:
        """The header up to its opaque; behind that comes `header_json.AFTER_OPAQUE`."""
        i = _text(properties).decode()
        return f'{self.start}{sys_flag}","g":"{born_ms}","h":"{flag}","i":{i}{self.end}'

    def before_opaque_of_unique(self, born_ms: int, flag: int, unique: str) -> str:
        """The same for a message whose only property is its UNIQ_KEY."""
        i = f"UNIQ_KEY\\u0001{unique}\\u0002"
        return f'{self.start}0","g":"{born_ms}","h":"{flag}","i":"{i}"{self.end}'


# MSG_REGION and TRACE_ON are always there: Java's client reads them without a null check.
_TEMPLATE = (
    b'{"code":0,"extFields":{"queueId":"%%d","transactionId":"%%b","msgId":"%%b%%016X",'
    b'"TRACE_ON":"true","MSG_REGION":"%%b","queueOffset":"%%d"},"flag":1,"language":"%b",'
    b'"opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
) % (RESPONSE_LANGUAGE.encode(), VERSION)
# The same for a timer message.
_WITH_HANDLE = _TEMPLATE.replace(b'"extFields":{', b'"extFields":{"recallHandle":"%b",')
_NO_TRACE = b'"TRACE_ON":"true"', b'"TRACE_ON":"false"'
# Without and with a handle, by whether clients are to trace.
_TEMPLATES = {
    True: (_TEMPLATE, _WITH_HANDLE),
    False: (_TEMPLATE.replace(*_NO_TRACE), _WITH_HANDLE.replace(*_NO_TRACE)),
}


def response_template(
    host_hex: bytes, region: bytes, *, with_handle: bool = False, trace_on: bool = True
) -> bytes:
    """The header of a success answer to one message, of a broker with this host and region.

    `% (queue_id, transaction_id, log_offset, queue_offset, opaque)` fills it in, byte for byte as
    `send_response`; the transaction id must be letters and digits. With a handle that one is first.
    """
    template = _TEMPLATES[trace_on][with_handle]
    template = template.replace(b"%d", b"%%d").replace(b"%016X", b"%%016X")
    template = template.replace(b'"recallHandle":"%b"', b'"recallHandle":"%%b"')
    template = template.replace(b'"transactionId":"%b"', b'"transactionId":"%%b"')
    return template % (host_hex, region.replace(b"%", b"%%"))


def response_parts(host_hex: bytes, region: bytes, *, trace_on: bool = True) -> list[bytes]:
    """The texts between the values of `response_template`: before the first without a handle,
    before and behind a handle, behind each of the other values; and the text before the offset of
    each further message of a batch."""
    found = []
    for has_handle in (False, True):
        template = response_template(host_hex, region, with_handle=has_handle, trace_on=trace_on)
        marked = template.replace(b"%016X", b"%b").replace(b"%d", b"%b")
        found.append([part.replace(b"%%", b"%") for part in marked.split(b"%b")])
    without_handle, with_handle = found
    assert with_handle[2:] == without_handle[1:]
    return [without_handle[0], *with_handle, b"," + host_hex]


def send_response(
    request: Command,
    queue_id: int,
    transaction_id: bytes,
    host_hex: bytes,
    log_offset: int,
    region: bytes,
    queue_offset: int,
    recall_handle: str | None = None,
    *,
    trace_on: bool = True,
) -> Response | bytes:
    """A success answer to a send: the finished frame for a JSON request, else a Response.

    The message id is `host_hex` and the log offset; a batch has the ids of its earlier messages in
    front, with commas. `transaction_id` (the UNIQ_KEY) may be any UTF-8, left out when empty;
    the rest is ASCII, `recall_handle` base64.
    """
    if request.codec == CODEC_JSON and transaction_id.isalnum():
        values = (
            queue_id,
            transaction_id,
            host_hex,
            log_offset,
            region,
            queue_offset,
            request.opaque,
        )
        without_handle, with_handle = _TEMPLATES[trace_on]
        if recall_handle is None:
            header = without_handle % values
        else:
            header = with_handle % (recall_handle.encode(), *values)
        size = len(header)
        return HEAD.pack(LENGTH_BYTES + size, size) + header
    answer = SendMessageResponse(
        f"{host_hex.decode()}{log_offset:016X}",
        queue_id,
        queue_offset,
        transaction_id.decode(errors="replace") or None,
        recall_handle=recall_handle,
        region=region.decode(),
        trace_on=trace_on,
    )
    return Response(codes.SUCCESS, answer.to_fields())


class RecallMessage(Header):
    """RECALL_MESSAGE. The handle is that of the send's answer."""

    may_miss: ClassVar = {"topic": "", "recallHandle": ""}

    topic: str
    recall_handle: str = field(name="recallHandle")
    producer_group: str | None = field(name="producerGroup", default=None)


class RecallMessageResponse(Header):
    """The response to a recall: the unique key of the message taken back."""

    msg_id: str = field(name="msgId")
