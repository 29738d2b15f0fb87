"""Headers of pulling: PULL_MESSAGE (11), LITE_PULL_MESSAGE (361) and their answer."""

from typing import ClassVar, Protocol, Self

from .. import codes
from ..codec.frame import HEAD, LENGTH_BYTES
from ..command import CODEC_JSON, RESPONSE_LANGUAGE, VERSION, Command, Response
from ..wire import Header, Int32, Int64, field
from .offsets import GroupQueue

# Bits of the header's sysFlag
COMMIT_OFFSET = 1
SUSPEND = 2
SUBSCRIPTION = 4
CLASS_FILTER = 8
LITE_PULL = 16
BULK = 1 << 16  # aerobee's own: as many as asked for at once; RocketMQ's brokers ignore it

# The fields that differ from pull to pull of one queue.
OFFSET, COMMIT, FLAGS = "queueOffset", "commitOffset", "sysFlag"


_TEMPLATE = (
    b'{"code":0,"extFields":{"groupSysFlag":"%%d","maxOffset":"%%d","minOffset":"%%d",'
    b'"nextBeginOffset":"%%d","suggestWhichBrokerId":"%%d","topicSysFlag":"%%d"},"flag":1,'
    b'"language":"%b","opaque":%%d,"remark":"FOUND","serializeTypeCurrentRPC":"JSON",'
    b'"version":%d}'
) % (RESPONSE_LANGUAGE.encode(), VERSION)


class Page(Protocol):
    """The result of a pull: whole records of `size` bytes, the next offset, the bounds of the
    queue."""

    next_offset: int
    min_offset: int
    max_offset: int
    records: list[bytes | memoryview]
    size: int


class PullMessage(GroupQueue):
    """PULL_MESSAGE and LITE_PULL_MESSAGE."""

    may_miss: ClassVar = {COMMIT: "0", "suspendTimeoutMillis": "0", "subVersion": "0"}

    offset: Int64 = field(name=OFFSET)
    max_messages: Int32 = field(name="maxMsgNums")
    sys_flag: Int32 = field(name=FLAGS)
    commit_offset: Int64 = field(name=COMMIT)
    suspend_ms: Int64 = field(name="suspendTimeoutMillis")
    sub_version: Int64 = field(name="subVersion")
    subscription: str | None = None
    expression_type: str | None = field(name="expressionType", default=None)
    max_bytes: Int32 | None = field(name="maxMsgBytes", default=None)
    request_source: Int32 | None = field(name="requestSource", default=None)
    proxy_forward_client_id: str | None = field(name="proxyFrowardClientId", default=None)
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None  # false: queue id and offset are physical, also of a static topic

    def found(
        self,
        request: Command,
        page: Page,
        topic_sys_flag: int,
        group_sys_flag: int,
        suggested_broker_id: int = 0,
    ) -> Response | bytes:
        """The response with the records of `page`: the finished frame for a JSON request."""
        if request.codec == CODEC_JSON:
            header = _TEMPLATE % (
                group_sys_flag,
                page.max_offset,
                page.min_offset,
                page.next_offset,
                suggested_broker_id,
                topic_sys_flag,
                request.opaque,
            )
            head = HEAD.pack(LENGTH_BYTES + len(header) + page.size, len(header))
            return b"".join((head, header, *page.records))
        answer = PullMessageResponse.of(page, topic_sys_flag, group_sys_flag, suggested_broker_id)
        return Response(codes.SUCCESS, answer.to_fields(), "FOUND", page.records)

    def missed(self, code: int, answer: "PullMessageResponse", remark: str) -> Response:
        """The answer without messages."""
        return Response(code, answer.to_fields(), remark)


class PullMessageResponse(Header):
    """The response to a pull, whatever its code."""

    suggested_broker_id: Int64 = field(name="suggestWhichBrokerId", default=0)
    next_offset: Int64 = field(name="nextBeginOffset", default=0)
    min_offset: Int64 = field(name="minOffset", default=0)
    max_offset: Int64 = field(name="maxOffset", default=0)
    offset_delta: Int64 | None = field(name="offsetDelta", default=None)
    topic_sys_flag: Int32 | None = field(name="topicSysFlag", default=None)
    group_sys_flag: Int32 | None = field(name="groupSysFlag", default=None)
    forbidden_type: Int32 | None = field(name="forbiddenType", default=None)

    @classmethod
    def of(
        cls, page: Page, topic_sys_flag: int, group_sys_flag: int, suggested_broker_id: int = 0
    ) -> Self:
        """The fields for what was read, with the flags of topic and group."""
        return cls(
            suggested_broker_id,
            page.next_offset,
            page.min_offset,
            page.max_offset,
            topic_sys_flag=topic_sys_flag,
            group_sys_flag=group_sys_flag,
        )
