"""Headers of pop: POP_MESSAGE (200050), ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME and the rest.

Times in ms; `born_ms` is when the client asked, on its clock. `queue_id` -1 means all queues.
"""

from typing import ClassVar

from .. import codes
from ..codec.frame import HEAD, LENGTH_BYTES
from ..command import CODEC_JSON, RESPONSE_LANGUAGE, VERSION, Command, Response
from ..wire import Header, Int32, Int64, field
from .offsets import GroupQueue


class PopMessage(GroupQueue):
    """POP_MESSAGE (200050). `init_mode` 0: a new group begins at the start, 1: at the end."""

    may_miss: ClassVar = {
        "queueId": "0",
        "maxMsgNums": "0",
        "invisibleTime": "0",
        "pollTime": "0",
        "initMode": "0",
    }

    max_messages: Int32 = field(name="maxMsgNums")
    invisible_ms: Int64 = field(name="invisibleTime")
    poll_ms: Int64 = field(name="pollTime")
    init_mode: Int32 = field(name="initMode")
    born_ms: Int64 = field(name="bornTime", default=0)
    expression_type: str | None = field(name="expType", default=None)
    expression: str | None = field(name="exp", default=None)
    order: bool = False
    attempt_id: str | None = field(name="attemptId", default=None)


class PeekMessage(GroupQueue):
    """PEEK_MESSAGE (200052): what a pop would find. Answered as one, with nothing but the rest."""

    may_miss: ClassVar = {"queueId": "0", "maxMsgNums": "0"}

    max_messages: Int32 = field(name="maxMsgNums")


class PopMessageResponse(Header):
    """The response to a pop, whatever its code. The infos are described in `pop_handles`."""

    pop_ms: Int64 = field(name="popTime", default=0)
    invisible_ms: Int64 = field(name="invisibleTime", default=0)
    revive_queue_id: Int32 = field(name="reviveQid", default=0)
    rest: Int64 = field(name="restNum", default=0)
    start_offset_info: str | None = field(name="startOffsetInfo", default=None)
    msg_offset_info: str | None = field(name="msgOffsetInfo", default=None)
    order_count_info: str | None = field(name="orderCountInfo", default=None)


class AckMessage(GroupQueue):
    """ACK_MESSAGE (200051). `topic` is where the message lies, a retry topic for a retried one."""

    extra_info: str = field(name="extraInfo")
    offset: Int64


class ChangeInvisibleTime(AckMessage):
    """CHANGE_MESSAGE_INVISIBLETIME (200053): so much longer, from now on."""

    invisible_ms: Int64 = field(name="invisibleTime")


class ChangeInvisibleTimeResponse(Header):
    """The parts of the new handle; zeros beside an error, because clients read them first."""

    pop_ms: Int64 = field(name="popTime", default=0)
    invisible_ms: Int64 = field(name="invisibleTime", default=0)
    revive_queue_id: Int32 = field(name="reviveQid", default=0)


class Notification(GroupQueue):
    """NOTIFICATION (200054): is there a message to pop?"""

    may_miss: ClassVar = {"queueId": "0", "pollTime": "0"}

    poll_ms: Int64 = field(name="pollTime")
    born_ms: Int64 = field(name="bornTime", default=0)
    order: bool = False
    attempt_id: str | None = field(name="attemptId", default=None)


class NotificationResponse(Header):
    """`polling_full`: there was none, and no place to wait for one either."""

    has_message: bool = field(name="hasMsg", default=False)
    polling_full: bool = field(name="pollingFull", default=False)


class PollingInfo(GroupQueue):
    """POLLING_INFO (200055): how many pops wait?"""

    may_miss: ClassVar = {"queueId": "0"}


class PollingInfoResponse(Header):
    """The number of pops that wait under this topic, group and queue id."""

    count: Int32 = field(name="pollingNum", default=0)


def popped_response(
    request: Command, answer: PopMessageResponse, records: list[bytes | memoryview], size: int
) -> Response | bytes:
    """A pop that found `records` (`size` bytes in all): the finished frame for a JSON request.

    The infos hold no character that JSON would escape.
    """
    if request.codec != CODEC_JSON:
        return Response(codes.SUCCESS, answer.to_fields(), "FOUND", records)
    counts = answer.order_count_info
    count_field = "" if counts is None else f'"orderCountInfo":"{counts}",'
    header = (
        f'{{"code":0,"extFields":{{"invisibleTime":"{answer.invisible_ms}",'
        f'"msgOffsetInfo":"{answer.msg_offset_info}",{count_field}"popTime":"{answer.pop_ms}",'
        f'"restNum":"{answer.rest}","reviveQid":"{answer.revive_queue_id}",'
        f'"startOffsetInfo":"{answer.start_offset_info}"}},"flag":1,"language":"{RESPONSE_LANGUAGE}",'
        f'"opaque":{request.opaque},"remark":"FOUND","serializeTypeCurrentRPC":"JSON",'
        f'"version":{VERSION}}}'
    ).encode()
    head = HEAD.pack(LENGTH_BYTES + len(header) + size, len(header))
    return b"".join((head, header, *records))
