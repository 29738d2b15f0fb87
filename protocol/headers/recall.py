"""Headers of RECALL_MESSAGE (370): a producer takes a timer message back."""

from typing import ClassVar

from ..wire import Header, field


class RecallMessage(Header):
    """RECALL_MESSAGE. The handle is that of the send's answer."""

    may_miss: ClassVar = {"topic": "", "recallHandle": ""}

    topic: str
    recall_handle: str = field(name="recallHandle")
    producer_group: str | None = field(name="producerGroup", default=None)


class RecallMessageResponse(Header):
    """What a recall answers: the unique key of the message taken back."""

    msg_id: str = field(name="msgId")
