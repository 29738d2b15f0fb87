"""Clocks that stand still until a test moves them; tests/client/clock.py moves that of a loop."""

from dataclasses import dataclass


@dataclass
class Clock:
    """Milliseconds, as the product's `now_ms`."""

    ms: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


@dataclass
class Seconds:
    """Seconds, as `time.monotonic`."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now
