"""Batches: many messages in one request (320), stored as neighbours, all of them or none."""

from ...protocol import codes
from ...protocol.batch import split_batch
from ...protocol.command import Command, Reply
from ...protocol.errors import Malformed, Refusal
from ...protocol.headers.send import SendMessage, SendMessageAnswer, SendMessageV1, send_answer
from ...protocol.names import RETRY_PREFIX, TOPIC_CHARS_MAX
from ...protocol.properties import UNIQ_KEY, decode
from ...protocol.record import NEED_UNWRAP
from ...protocol.tags import TAG_HASHES
from ...store.store import MessageStore
from ..config import BrokerConfig
from ..due import Due
from ..holds import Holds
from ..topics import Target, Topics

Header = SendMessage | SendMessageV1


class Batches:
    """Takes batches into the store; `suffix` is what the broker adds to their properties."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: Topics,
        due: Due,
        holds: Holds,
        suffix: bytes,
    ) -> None:
        self._store = store
        self._topics = topics
        self._due = due
        self._holds = holds
        self._suffix = suffix
        self._region_id = config.region_id

    def take(
        self,
        header: Header,
        command: Command,
        host: bytes,
        target: Target,
        queue_id: int,
        text: str,
    ) -> tuple[Reply | bytes, int]:
        """Store one: the answer, and where it ends in the log. `text` is its properties' text.

        Refusal or StoreError when it is not stored.
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
        if "DEL" in text and self._due.place(text, header.topic, queue_id).topic != header.topic:
            raise _refused("a batch can't wait for its time; send the messages singly")
        properties = decode(text)
        unique = properties.get(UNIQ_KEY, "")
        is_whole = target.name in self._topics.with_batch_queues and self._store.has_batch_queue(
            target.name, queue_id
        )
        reply: Reply | bytes
        try:
            if is_whole:
                tags = properties.get("TAGS", "")
                reply, start, end, count = self._whole(
                    header, host, body, target.name, queue_id, text, unique, tags
                )
            else:
                first, offsets, end = self._store.put_batch(
                    target.name,
                    queue_id,
                    header.sys_flag,
                    header.born_ms,
                    host,
                    body,
                    self._suffix,
                    header.reconsume_times or 0,
                )
                start, count = offsets[0], len(offsets)
                host_hex = self._store.host_hex
                ids = (host_hex + b"%016X,") * (count - 1) % tuple(offsets[:-1])
                reply = send_answer(
                    command,
                    queue_id,
                    unique.encode(),
                    ids + host_hex,
                    offsets[-1],
                    self._region_id.encode(),
                    first,
                )
        except Malformed as wrong:
            raise _unreadable(f"can't be read: {wrong}") from None
        target.puts.messages += count
        target.puts.bytes += end - start
        key = target.keys[queue_id]
        if key in self._holds.parked:
            self._holds.mark(key)
        return reply, end

    def _whole(
        self,
        header: Header,
        host: bytes,
        body: bytes,
        topic: str,
        queue_id: int,
        text: str,
        unique: str,
        tags: str,
    ) -> tuple[Reply, int, int, int]:
        """A batch for a batch queue: one record, which the consumer takes apart.

        Gives the answer, where the record begins and ends in the log, how many messages it has.
        """
        count = len(split_batch(body))
        if text and text[-1] != "\x02":
            text += "\x02"
        start, first, end = self._store.put_in_batch_queue(
            topic,
            queue_id,
            header.flag,
            header.sys_flag | NEED_UNWRAP,
            header.born_ms,
            host,
            body,
            text.encode() + self._suffix,
            TAG_HASHES[tags],
            count,
            header.reconsume_times or 0,
        )
        answer = SendMessageAnswer(
            f"{self._store.host_hex.decode()}{start:016X}",
            queue_id,
            first,
            unique or None,
            # What tells the producer that the batch has this id, and not its messages theirs.
            batch_uniq_id=unique or None,
            region=self._region_id,
            trace_on=True,
        )
        return Reply(codes.SUCCESS, answer.to_fields()), start, end, count


def _refused(text: str) -> Refusal:
    return Refusal(codes.MESSAGE_ILLEGAL, text)


def _unreadable(why: str) -> Refusal:
    return Refusal(codes.SYSTEM_ERROR, f"the batch body {why}")  # the code of Java's exceptions
