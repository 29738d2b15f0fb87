"""The clocks that servers use unless a caller gives others: tests move theirs."""

import time


def monotonic_ms() -> int:
    """The milliseconds of a monotonic clock."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """The milliseconds since 1970."""
    return time.time_ns() // 1_000_000
