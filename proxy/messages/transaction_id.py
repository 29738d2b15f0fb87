"""Transaction ids: they say where the half message is, so that any proxy can end the transaction.

The text is `a1`, the half message's offset in the half queue, its log offset, the broker's name and
the message id, with `#` between.
"""

from typing import NamedTuple

from .status import Code, StatusError

VERSION = "a1"
CHARS_MAX = 4_096


class TransactionId(NamedTuple):
    """What an id says."""

    broker_name: str
    queue_offset: int
    log_offset: int
    message_id: str

    @property
    def text(self) -> str:
        return (
            "#".join((VERSION, str(self.queue_offset), str(self.log_offset), self.broker_name))
            + f"#{self.message_id}"
        )


def read(text: str) -> TransactionId:
    """What a text says; StatusError INVALID_TRANSACTION_ID for any other text."""
    if not text.strip():
        raise StatusError(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
    words = text.split("#", 4)
    if len(text) > CHARS_MAX or len(words) != 5 or words[0] != VERSION:
        raise StatusError(
            Code.INVALID_TRANSACTION_ID,
            f"transaction id {text[:80]!r} is not of this proxy; give that of the send's answer",
        )
    _, queue_offset, log_offset, broker_name, message_id = words
    for number in (queue_offset, log_offset):
        if not (number.isascii() and number.isdigit() and len(number) < 20):
            raise StatusError(
                Code.INVALID_TRANSACTION_ID,
                f"transaction id {text[:80]!r} has {number[:20]!r} where an offset must be",
            )
    return TransactionId(broker_name, int(queue_offset), int(log_offset), message_id)
