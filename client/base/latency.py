"""Latency fault tolerance: a broker that was slow or failed is left alone for a while.

RocketMQ's sendLatencyFaultEnable: how long a send took says for how long its broker is not chosen
when there is another. The table is that of MQFaultStrategy.
"""

from bisect import bisect_right
from collections.abc import Callable

# A send that took so long (ms) ...
LATENCIES_MS = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
# ... keeps its broker from being chosen for so long (ms).
LEFT_ALONE_MS = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
FAILURE_MS = 10_000  # a failed send counts as one that took this long
BROKERS_MAX = 10_000  # remembered; the oldest is forgotten


def left_alone_ms(latency_ms: float) -> int:
    """The milliseconds for which a broker is left alone after a send that took `latency_ms`."""
    level = bisect_right(LATENCIES_MS, latency_ms) - 1
    return LEFT_ALONE_MS[level] if level >= 0 else 0


class LatencyFaults:
    """Latency state of brokers by name. `now_s` returns a monotonic time in seconds."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._free_at: dict[str, float] = {}
        self._unreachable: set[str] = set()

    def done(self, broker_name: str, latency_ms: float) -> None:
        """Note the latency of a successful send."""
        self._unreachable.discard(broker_name)
        self._leave_alone(broker_name, left_alone_ms(latency_ms))

    def failed(self, broker_name: str, *, answered: bool) -> None:
        """Note a failed send. `answered`: the broker refused it, so the next try goes elsewhere."""
        if answered:
            self._unreachable.add(broker_name)
        self._leave_alone(broker_name, left_alone_ms(FAILURE_MS))

    def is_available(self, broker_name: str) -> bool:
        """True if the broker is not left alone now."""
        return self._now_s() >= self._free_at.get(broker_name, 0.0)

    def is_reachable(self, broker_name: str) -> bool:
        """True unless the broker's last answer to a send was a refusal."""
        return broker_name not in self._unreachable

    def _leave_alone(self, broker_name: str, for_ms: int) -> None:
        if broker_name not in self._free_at and len(self._free_at) >= BROKERS_MAX:
            oldest = next(iter(self._free_at))
            del self._free_at[oldest]
            self._unreachable.discard(oldest)
        # Never sooner than an earlier failure said.
        until = self._now_s() + for_ms / 1000
        self._free_at[broker_name] = max(until, self._free_at.get(broker_name, until))
