"""The bytes that went over a connection of replication in a second: RocketMQ's FlowMonitor."""

from collections.abc import Callable

SAMPLE_MS = 1_000


class Flow:
    """Add to `bytes`, and call `sample` about once a second. `now_ms` is a clock."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.bytes = 0  # since the last sample
        self.bytes_a_second = 0
        self._now_ms = now_ms
        self._sampled_ms = now_ms()

    def sample(self) -> None:
        """Work the rate out, once a second has passed."""
        now = self._now_ms()
        passed = now - self._sampled_ms
        if passed >= SAMPLE_MS:
            self.bytes_a_second = self.bytes * 1_000 // passed
            self.bytes = 0
            self._sampled_ms = now
