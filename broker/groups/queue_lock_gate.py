"""Only one broker of a name locks queues for consumers.

A consumer goes on with a queue for 30 s after its lock was renewed. So a broker that becomes the
one to lock queues gives no lock until each lock of the broker before it has ended, or until that
broker has handed its locks over. Closed, it refuses: a consumer goes on with a lock that it has,
which an answer without the queue would end.
"""

from collections.abc import Callable

# rocketmq.client.rebalance.lockMaxLiveTime, and a second: it counts from the answer's arrival.
CLIENT_LOCK_MS = 31_000


class QueueLockGate:
    """Closed at first. `now_ms` is a clock for timeouts."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._from_ms: int | None = None  # when the first lock may be given

    @property
    def is_opening(self) -> bool:
        """Whether locks are given, now or soon."""
        return self._from_ms is not None

    @property
    def is_open(self) -> bool:
        """Whether locks are given."""
        return self._from_ms is not None and self._now_ms() >= self._from_ms

    def open(self, *, after_ms: int = CLIENT_LOCK_MS) -> None:
        """Give locks after this time; a gate that opens already keeps its time."""
        if self._from_ms is None:
            self._from_ms = self._now_ms() + after_ms

    def close(self) -> None:
        """Give no locks: another broker does."""
        self._from_ms = None

    def refusal(self) -> str | None:
        """Why no lock is given at this moment, None while locks are. The consumer asks again."""
        if self.is_open:
            return None
        if self._from_ms is None:
            return "this broker gives no locks, another broker of its name does; ask that one"
        return (
            "this broker gives no locks yet: consumers may have locks of the broker before it, "
            f"which end in {self._from_ms - self._now_ms()} ms at the latest; ask again"
        )
