"""Durations and timestamps of protobuf, and milliseconds."""

from typing import Any

from .status import Code, StatusError

NANOS_PER_MS = 1_000_000
NANOS_MAX = 999_999_999
SECONDS_MAX = 315_576_000_000  # of protobuf's Duration and, about, of its Timestamp


def to_ms(value: Any, what: str, code: int = Code.BAD_REQUEST) -> int:
    """A Duration or a Timestamp in ms. StatusError (`code`) beyond protobuf's own ranges."""
    seconds, nanos = value.seconds, value.nanos
    if not (-SECONDS_MAX <= seconds <= SECONDS_MAX and -NANOS_MAX <= nanos <= NANOS_MAX):
        raise StatusError(
            code,
            f"{what} has {seconds} seconds and {nanos} nanos; seconds are at most {SECONDS_MAX}, "
            f"nanos at most {NANOS_MAX}",
        )
    return int(seconds) * 1_000 + int(nanos) // NANOS_PER_MS


def set_ms(target: Any, ms: int) -> None:
    """Make a Duration or a Timestamp say this time in ms."""
    target.seconds, rest = divmod(ms, 1_000)
    target.nanos = rest * NANOS_PER_MS
