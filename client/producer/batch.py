"""Batches: how messages are cut into requests that a broker takes in one piece, and sent.

A part holds messages in their given order, below a size and a count. Every message gets its own
unique id; a part's id is the list of them, as in Java.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field

from ...protocol.message import properties as props
from ...protocol.message.batch import ENTRY_BYTES_MIN, Entry, encode_batch
from ...protocol.names import RETRY_PREFIX
from ..base.message import Message, check_message, encode_properties
from ..base.receipts import BatchReceipt, SendReceipt
from ..errors import AerobeeError, BatchError, IllegalMessageError

# The broker keeps the batch and its records in memory and returns an id for each message.
BATCH_BYTES_MAX = 1 << 20
BATCH_MESSAGES_MAX = 1_024


@dataclass(slots=True)
class Part:
    """One request's worth: the messages, their ids and their encoded form."""

    messages: list[Message] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    size: int = 0

    @property
    def body(self) -> bytes:
        """The body of the request."""
        return encode_batch(self.entries)


def split(
    messages: Iterable[Message],
    next_id: Callable[[], str],
    body_bytes_max: int,
    bytes_max: int = BATCH_BYTES_MAX,
    messages_max: int = BATCH_MESSAGES_MAX,
) -> Iterator[Part]:
    """The parts, in order; a message larger than `bytes_max` is a part of its own.

    IllegalMessageError when a message can't be sent, or not in this batch.
    """
    part = Part()
    first: Message | None = None
    for message in messages:
        check_message(message)
        first = first or message
        _check(message, first, body_bytes_max)
        unique = next_id()
        pairs = {**message.all_properties(), props.UNIQ_KEY: unique}
        raw = encode_properties(pairs).encode()
        size = ENTRY_BYTES_MIN + len(message.body) + len(raw)
        if part.messages and (part.size + size > bytes_max or len(part.messages) >= messages_max):
            yield part
            part = Part()
        part.messages.append(message)
        part.ids.append(unique)
        part.entries.append(Entry(message.flag, bytes(message.body), raw))
        part.size += size
    if first is None:
        raise IllegalMessageError("the batch is empty; give at least one message")
    yield part


async def send_parts(
    parts: list[Part], send: Callable[[Part], Awaitable[SendReceipt]], width: int
) -> BatchReceipt:
    """Send each part, `width` at a time; no more of them after a failure.

    That failure when nothing was sent, BatchError when some parts were and others not.
    """
    receipts: list[SendReceipt] = []
    unsent: list[Message] = []
    failure: AerobeeError | None = None
    for at in range(0, len(parts), width):
        together = parts[at : at + width]
        if failure is not None:
            unsent += (message for part in together for message in part.messages)
            continue
        results = await asyncio.gather(*map(send, together), return_exceptions=True)
        for part, result in zip(together, results, strict=True):
            if isinstance(result, SendReceipt):
                receipts.append(result)
            elif isinstance(result, AerobeeError):
                unsent += part.messages
                failure = failure or result
            else:
                raise result
    if failure is None:
        return BatchReceipt(receipts)
    if not receipts:
        raise failure
    raise BatchError(receipts, unsent, failure)


def _check(message: Message, first: Message, body_bytes_max: int) -> None:
    message.check(body_bytes_max)
    if message.topic != first.topic:
        raise IllegalMessageError(
            f"the batch holds topics {first.topic} and {message.topic}; send a batch per topic"
        )
    if message.wait_store != first.wait_store:
        raise IllegalMessageError("the batch holds messages with and without wait_store; split it")
    if message.is_delayed:
        raise IllegalMessageError(
            "the batch holds a message with a delay (delay_level, delay or deliver_at); brokers "
            "don't delay batches, send it by itself"
        )
    if message.topic.startswith(RETRY_PREFIX):
        raise IllegalMessageError(f"topic {message.topic} takes no batches; send one by one")
