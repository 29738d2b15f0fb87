"""Encoding of a message for the wire: checks, id, compression."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.headers.send import SendMessage
from ...protocol.message import properties as props
from ...protocol.message.compression import KINDS, LEVEL, CompressionMissing, compress
from ...protocol.message.record import COMPRESSED
from ...protocol.names import with_namespace
from ..base.identity import new_unique_ids, now_ms
from ..base.message import (
    BODY_BYTES_MAX,
    TOPICS_REMEMBERED,
    Message,
    check_message,
    encode_properties,
)
from ..cluster.routes import TEMPLATE_QUEUES_MAX, TEMPLATE_TOPIC
from ..errors import ClientError
from .batch import Part

COMPRESS_BYTES_MIN = 4_096  # compressMsgBodyOverHowmuch; 4 KiB in the real client, not 4 MiB


@dataclass(slots=True)
class EncodedMessage:
    """A send request without its queue."""

    topic: str
    code: int
    body: bytes
    properties: str
    flag: int
    sys_flag: int
    msg_id: str
    batch: bool

    def header(self, group: str, queue: MessageQueue) -> SendMessage:
        """The header of the request that sends it to `queue`."""
        return SendMessage(
            group,
            self.topic,
            TEMPLATE_TOPIC,
            TEMPLATE_QUEUES_MAX,
            queue.queue_id,
            self.sys_flag,
            now_ms(),
            self.flag,
            self.properties,
            reconsume_times=0,
            unit_mode=False,
            batch=self.batch,
            broker_name=queue.broker_name,
        )


class Packer:
    """Encodes messages; one instance per producer, because it also makes their ids.

    Bodies of `compress_bytes_min` bytes and more are compressed with `compression` (zlib, lz4 or
    zstd) at `level`, on its own scale; batches never are. ClientError for an unknown kind or a
    missing package.
    """

    def __init__(
        self,
        *,
        message_bytes_max: int = BODY_BYTES_MAX,
        compress_bytes_min: int = COMPRESS_BYTES_MIN,
        compression: str = "zlib",
        level: int = LEVEL,
        namespace: str = "",
    ) -> None:
        if compression not in KINDS:
            raise ClientError(f"compression is {compression!r}; give one of {', '.join(KINDS)}")
        self.ids = new_unique_ids()
        self.message_bytes_max = message_bytes_max
        self._compress_bytes_min = compress_bytes_min
        self._kind = KINDS[compression]
        self._level = level
        self._namespace = namespace
        # Valid topics, with their namespace.
        self.topics: dict[str, str] = {}
        # A body of fewer bytes is neither too long nor compressed.
        self.uncompressed_bytes = min(compress_bytes_min, message_bytes_max + 1)
        try:
            compress(b"", self._level, self._kind)
        except (CompressionMissing, ValueError) as wrong:
            raise ClientError(f"compression {compression} at level {level}: {wrong}") from None

    def pack(
        self,
        message: Message,
        more: Mapping[str, str] | None = None,
        *,
        sys_flag: int = 0,
        code: int = codes.SEND_MESSAGE_V2,
    ) -> EncodedMessage:
        """One message; `more` are properties that a user may not set. IllegalMessageError."""
        check_message(message)
        message.check(self.message_bytes_max)
        pairs = message.all_properties()
        if more:
            pairs |= more
        unique = pairs[props.UNIQ_KEY] = self.ids.next()
        body = bytes(message.body)
        if len(body) >= self._compress_bytes_min:
            smaller = compress(body, self._level, self._kind)
            if len(smaller) < len(body):
                body, sys_flag = smaller, sys_flag | COMPRESSED | self._kind
        text = encode_properties(pairs)
        topic = with_namespace(message.topic, self._namespace)
        if len(self.topics) < TOPICS_REMEMBERED:
            self.topics[message.topic] = topic
        return EncodedMessage(topic, code, body, text, message.flag, sys_flag, unique, batch=False)

    def pack_part(self, part: Part) -> EncodedMessage:
        """A part of a batch."""
        first = part.messages[0]
        pairs = {props.WAIT: "true" if first.wait_store else "false"}
        text = encode_properties(pairs)
        code = codes.SEND_BATCH_MESSAGE
        topic = with_namespace(first.topic, self._namespace)
        return EncodedMessage(topic, code, part.body, text, 0, 0, ",".join(part.ids), batch=True)
