"""Watches the progress of the disk: a master whose disk hangs gives its role away."""

from collections.abc import Callable

STEP_MS = 2_000  # at most this long counts between two checks: the process may have been stopped


class DiskWatch:
    """Watches how the synced end of the log follows the end of the log.

    `limit_ms` is how long a byte of the log may wait for its sync; `now_ms` a monotonic clock.
    """

    def __init__(self, limit_ms: int, now_ms: Callable[[], int]) -> None:
        self._limit_ms = limit_ms
        self._now_ms = now_ms
        self._target = 0  # the end of the log when it was noted
        self._waited_ms = 0  # how long the disk has not had it
        self._seen_ms = now_ms()

    def see(self, log_end: int, durable_end: int) -> None:
        """Note both ends, in bytes. To be called about every second."""
        now = self._now_ms()
        self._waited_ms += min(now - self._seen_ms, STEP_MS)
        self._seen_ms = now
        if durable_end >= self._target:
            self._target = log_end
            self._waited_ms = 0

    @property
    def hangs_ms(self) -> int:
        """The time for which the oldest noted byte has been waiting, in ms; 0 while that is below
        the limit."""
        return self._waited_ms if self._waited_ms >= self._limit_ms else 0
