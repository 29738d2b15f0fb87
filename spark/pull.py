"""Pulls a range of a queue, in pieces large enough to be worth decoding.

A broker answers some 32 messages a pull; a piece holds many answers. Nothing else is kept, so the
memory of a task doesn't depend on how long its range is.
"""

from collections.abc import Iterator
from typing import Protocol

from ..client.blocking import MessageQueue, Pulled
from ..protocol import codes
from .plan import QueueRange

PIECE_MESSAGES = 8192  # Spark's own Arrow batches have 10,000 rows
PIECE_BYTES = 8 << 20  # a piece ends with the answer that reaches this


class DataLossError(Exception):
    """Messages that the read planned for are not in the queue any more."""


class Puller(Protocol):
    """What pulling asks of `client.blocking.Reader`."""

    def pull(self, queue: MessageQueue, offset: int, max_messages: int = 32) -> Pulled: ...


def pull_pieces(
    puller: Puller, wanted: QueueRange, *, messages_per_pull: int, fail_on_data_loss: bool
) -> Iterator[bytes]:
    """The records of a range, as pieces of whole records in the queue's order.

    The first and the last piece may hold records beyond the range. DataLossError when the broker
    has deleted a part of it, unless `fail_on_data_loss` is off: then what is left is read.
    """
    held: list[bytes] = []
    size, begun, offset = 0, wanted.start, wanted.start
    while offset < wanted.end:
        count = min(messages_per_pull, wanted.end - offset)
        pulled = puller.pull(wanted.queue, offset, count)
        if pulled.code == codes.SUCCESS:
            if pulled.next_offset <= offset:
                raise DataLossError(
                    f"the broker answered offset {offset} of {wanted} and {pulled.next_offset} "
                    "as the next one; reading would not get on"
                )
            held.append(pulled.body)
            size += len(pulled.body)
            offset = pulled.next_offset
        else:
            offset = _after_nothing(pulled, offset, wanted, fail_on_data_loss)
        if size >= PIECE_BYTES or offset - begun >= PIECE_MESSAGES:
            if held:
                yield b"".join(held)
            held.clear()
            size, begun = 0, offset
    if held:
        yield b"".join(held)


def _after_nothing(pulled: Pulled, offset: int, wanted: QueueRange, fail_on_data_loss: bool) -> int:
    """Where reading goes on when there were no messages at `offset`."""
    if pulled.code == codes.PULL_RETRY_IMMEDIATELY and pulled.next_offset > offset:
        return pulled.next_offset
    if fail_on_data_loss:
        raise DataLossError(
            f"nothing is at offset {offset} while reading {wanted}: the broker now holds "
            f"{pulled.min_offset} to {pulled.max_offset}; read again, "
            "or set failOnDataLoss to false to read what is left"
        )
    return max(pulled.min_offset, pulled.next_offset) if offset < pulled.min_offset else wanted.end
