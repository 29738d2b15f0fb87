"""Whether the disk makes progress: a master whose disk hangs gives its role away."""

from collections.abc import Callable


class DiskWatch:
    """Watches how the synced end of the log follows the end of the log.

    `limit_ms` is how long a byte of the log may wait for its sync; `now_ms` a monotonic clock.
    """

    def __init__(self, limit_ms: int, now_ms: Callable[[], int]) -> None:
        self._limit_ms = limit_ms
        self._now_ms = now_ms
        self._target = 0  # the end of the log when it was noted
        self._since_ms = now_ms()

    def see(self, log_end: int, durable_end: int) -> None:
        """Note both ends, in bytes. To be called about every second."""
        if durable_end >= self._target:
            self._target = log_end
            self._since_ms = self._now_ms()

    @property
    def hangs_ms(self) -> int:
        """How long the oldest noted byte has been waiting, in ms; 0 while that is below the
        limit."""
        waited = self._now_ms() - self._since_ms
        return waited if waited >= self._limit_ms else 0
