"""The bounds of queues, with retries: the restart of a broker does not end a stream.

`fetchOffset.numRetries` and `fetchOffset.retryIntervalMs` set their number and distance.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ..client.cluster.route import MessageQueue
from ..client.errors import AerobeeError, NoRouteError
from .options import ReadOptions
from .plan import Bounds

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class RetryingBounds:
    """The bounds of queues from `bounds`; the last try raises its error.

    An unknown topic is retried only if its queues `were_there` before.
    """

    def __init__(self, bounds: Bounds, options: ReadOptions, *, were_there: bool = False) -> None:
        self._bounds = bounds
        self._were_there = were_there
        self._retries = options.retries
        self._retry_ms = options.retry_ms

    def topics(self) -> list[str]:
        """The names of all topics."""
        return self.ask(self._bounds.topics)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic."""
        return self.ask(lambda: self._bounds.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        return self.ask(lambda: self._bounds.min_offset(queue), queue.topic)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return self.ask(lambda: self._bounds.max_offset(queue), queue.topic)

    def offset_at(self, queue: MessageQueue, ms: int) -> int:
        """The offset of the first message stored at `ms` or later."""
        return self.ask(lambda: self._bounds.offset_at(queue, ms), queue.topic)

    def ask(self, ask: Callable[[], Answer], topic: str | None = None) -> Answer:
        """What `ask` returns, about a topic or the cluster."""
        for left in range(self._retries, 0, -1):
            try:
                return ask()
            except AerobeeError as wrong:
                is_new = topic is None and isinstance(wrong, NoRouteError) and not self._were_there
                if not wrong.retriable or is_new:
                    raise
                tries = self._retries + 1
                log.warning("planning a read: %s (try %d of %d)", wrong, tries - left, tries)
                # The client does not connect again before that pause is over.
                rest_s = max(self._retry_ms / 1000, getattr(wrong, "rest_s", 0.0))
            time.sleep(rest_s)
            if topic is not None:
                with suppress(AerobeeError):  # its route may have changed
                    self._bounds.queues(topic)
        return ask()
