"""Batches: many messages in one request (320), stored as neighbours, all of them or none."""

from ...protocol import codes
from ...protocol.aio.connection import Connection
from ...protocol.command import Command, Response
from ...protocol.errors import Malformed, Refusal
from ...protocol.headers.send import SendMessage, SendMessageResponse, SendMessageV1, send_response
from ...protocol.message.batch import split_batch
from ...protocol.message.properties import TAGS, UNIQ_KEY, ended
from ...protocol.message.property_effects import DELAYS
from ...protocol.message.record import NEED_UNWRAP
from ...protocol.message.tags import TAG_HASHES
from ...protocol.names import RETRY_PREFIX, TOPIC_CHARS_MAX
from ...store.engine.messages import Batch, Message
from ...store.engine.store import MessageStore
from ..runtime.arrivals import type_of
from ..scheduled.delivery_policy import DeliveryPolicy
from ..settings.config import BrokerConfig
from ..topics.topics import Target, Topics
from .finish import SendFinish

Header = SendMessage | SendMessageV1


class Batches:
    """Stores batches; the broker adds `suffix` to their properties."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: Topics,
        delivery_policy: DeliveryPolicy,
        finish: SendFinish,
    ) -> None:
        self._store = store
        self._topics = topics
        self._delivery_policy = delivery_policy
        self._finish = finish
        self.suffix = b""
        self._region_id = config.region_id
        self._config = config

    def put(
        self,
        header: Header,
        command: Command,
        connection: Connection,
        target: Target,
        queue_id: int,
        pairs: dict[str, str],
    ) -> tuple[int, Response | bytes]:
        """Store and count a batch; `pairs` are its properties.

        Where it ends in the log, and the response. Refusal or StoreError when it is not stored.
        """
        if len(header.topic) > TOPIC_CHARS_MAX:
            raise _refused(
                f"a batch topic has {len(header.topic)} characters, the limit is {TOPIC_CHARS_MAX}"
            )
        if header.topic.startswith(RETRY_PREFIX):
            raise _refused("batches can't be sent to a retry topic; send the messages singly")
        body = command.body
        if not body:
            raise _unreadable("is empty; send at least one message")
        if not DELAYS.isdisjoint(pairs):
            place = self._delivery_policy.place(header.properties or "", header.topic, queue_id)
            if place.topic != header.topic:
                raise _refused("a batch can't wait for its time; send the messages singly")
        key = target.keys[queue_id]
        if target.name in self._topics.with_batch_queues and self._store.has_batch_queue(*key):
            return self._put_whole(header, connection.host, body, target, queue_id, pairs)
        batch = Batch(
            key,
            header.sys_flag,
            header.born_ms,
            connection.host,
            body,
            header.reconsume_times or 0,
        )
        try:
            first, offsets, end = self._store.put_batch(batch, self.suffix)
        except Malformed as wrong:
            raise _unreadable(f"can't be read: {wrong}") from None
        first = target.offset(queue_id, first)
        host_hex, unique = self._store.host_hex, pairs.get(UNIQ_KEY, "").encode()
        ids = (host_hex + b"%016X,") * (len(offsets) - 1) % tuple(offsets[:-1])
        size = end - offsets[0]
        self._finish.count(target, key, type_of(pairs), len(offsets), size, batches=1)
        reply = send_response(
            command,
            queue_id,
            unique,
            ids + host_hex,
            offsets[-1],
            self._region_id.encode(),
            first,
            trace_on=self._config.trace_on,
        )
        return end, reply

    def _put_whole(
        self,
        header: Header,
        host: bytes,
        body: bytes,
        target: Target,
        queue_id: int,
        pairs: dict[str, str],
    ) -> tuple[int, Response]:
        """Store a batch for a batch queue: one record, which the consumer takes apart."""
        try:
            count = len(split_batch(body))
        except Malformed as wrong:
            raise _unreadable(f"can't be read: {wrong}") from None
        start, first, end = self._store.put_in_batch_queue(
            Message(
                target.keys[queue_id],
                header.flag,
                header.sys_flag | NEED_UNWRAP,
                header.born_ms,
                host,
                body,
                ended(header.properties or "").encode() + self.suffix,
                TAG_HASHES[pairs.get(TAGS, "")],
                header.reconsume_times or 0,
            ),
            count,
        )
        first = target.offset(queue_id, first)
        unique = pairs.get(UNIQ_KEY)
        answer = SendMessageResponse(
            f"{self._store.host_hex.decode()}{start:016X}",
            queue_id,
            first,
            unique,
            # What tells the producer that the batch has this id, and not its messages theirs.
            batch_uniq_id=unique,
            region=self._region_id,
            trace_on=self._config.trace_on,
        )
        kind, key = type_of(pairs), target.keys[queue_id]
        self._finish.count(target, key, kind, count, end - start, batches=1)
        return end, Response(codes.SUCCESS, answer.to_fields())


def _refused(text: str) -> Refusal:
    return Refusal(codes.MESSAGE_ILLEGAL, text)


def _unreadable(why: str) -> Refusal:
    return Refusal(codes.SYSTEM_ERROR, f"the batch body {why}")  # the code of Java's exceptions
