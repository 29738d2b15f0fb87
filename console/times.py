"""Times that people type."""

from datetime import UTC, datetime

from .texts import TextError

TIME_MS_MAX = 253_402_300_799_000  # the year 9999


class BadTime(TextError):
    """A text that is no time: the text, and what to give."""


def time_text(ms: int) -> str:
    """A time in UTC, to the second; the number for one beyond the calendar."""
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def time_ms(text: str) -> int:
    """Milliseconds since 1970 from such a number, or from ISO 8601, which is UTC without a zone.

    BadTime says what to give.
    """
    if text.isascii() and text.isdecimal() and len(text) <= 15:
        return int(text)
    try:
        found = datetime.fromisoformat(text)
        return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise BadTime(
            "%(text)s is no time; give a time such as 2026-11-23T15:04:05 (UTC), or ms since 1970",
            text=f"{text[:80]!r}",
        ) from None
