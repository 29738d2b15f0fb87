"""Half messages of the last seconds by topic and message id, for transaction ids that say no more.

Clients get ids that say where the half message is. Some end a transaction with the message id
alone, as RocketMQ's proxy hands it out.
"""

import time
from collections import deque
from collections.abc import Callable

from .transaction_id import TransactionId

EACH_MAX = 15  # of one topic and id, as in RocketMQ
IDS_MAX = 100_000

Key = tuple[str, str]


class RecentTransactions:
    """A table that forgets after `seconds`. `clock` is monotonic, in seconds."""

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
