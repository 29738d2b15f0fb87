"""Transaction ids: they say where the half message is, so that any proxy can end the transaction.

The text is `a1`, the half message's offset in the half queue, its log offset, the broker's name and
the message id, with `#` between. Some clients end a transaction with the message id alone, as
RocketMQ's proxy hands it out: for these the half messages of the last seconds are remembered.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from .status import Code, StatusError

VERSION = "a1"
CHARS_MAX = 4_096
EACH_MAX = 15  # of one topic and id, as in RocketMQ
IDS_MAX = 100_000

Key = tuple[str, str]


class TransactionId(NamedTuple):
    """The fields of a transaction id."""

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
    """Parse a transaction id; StatusError INVALID_TRANSACTION_ID for any other text."""
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


class RecentTransactions:
    """Half messages by topic and message id, forgotten after `seconds`.

    `clock` is monotonic, in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._known: dict[Key, deque[tuple[float, TransactionId]]] = {}  # the latest key last

    def __len__(self) -> int:
        return len(self._known)

    def put(self, topic: str, half: TransactionId) -> None:
        """Remember a half message."""
        key = (topic, half.message_id)
        found = self._known.pop(key, None) or deque(maxlen=EACH_MAX)
        now = self._clock()
        found.append((now, half))
        self._known[key] = found
        while self._known:
            oldest = next(iter(self._known))
            if len(self._known) <= IDS_MAX and now - self._known[oldest][-1][0] < self._seconds:
                return
            del self._known[oldest]

    def take(self, topic: str, message_id: str) -> TransactionId | None:
        """The latest half message with this id, which is forgotten; None without one."""
        found = self._known.get((topic, message_id))
        if not found:
            return None
        put_at, half = found.pop()
        if not found or self._clock() - put_at >= self._seconds:
            del self._known[topic, message_id]
        return half if self._clock() - put_at < self._seconds else None
