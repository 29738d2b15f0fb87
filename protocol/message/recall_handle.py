"""The recall handle: what a producer gets for a timer message, and names it by to take it back.

`v1 TOPIC BROKER TIME UNIQ_KEY` with blanks between, as URL-safe base64 with padding. The time is a
millisecond of the slot of the timer wheel that the message waits in.
"""

import base64
import binascii
from typing import NamedTuple

from .. import codes
from ..errors import Refusal

VERSION = "v1"
HANDLE_CHARS_MAX = 4_096
_base64 = binascii.b2a_base64
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class RecallHandle(NamedTuple):
    """The fields of a handle. `time_ms` is -1 if the handle has no number there."""

    topic: str
    broker_name: str
    time_ms: int
    unique_key: str


def encode(topic: str, broker_name: str, time_ms: int, unique_key: str) -> str:
    """The text of a handle."""
    unique = unique_key.encode(errors="replace")
    return encode_with(handle_prefix(topic, broker_name, time_ms), unique).decode()


def handle_prefix(topic: str, broker_name: str, time_ms: int) -> bytes:
    """The part of a handle before the unique key, for `encode_with`."""
    return f"{VERSION} {topic} {broker_name} {time_ms} ".encode(errors="replace")


def encode_with(prefix: bytes, unique_key: bytes) -> bytes:
    """The text of a handle with this prefix and this unique key."""
    # As base64.urlsafe_b64encode does, but this is for every timer message, and that two calls.
    return _base64(prefix + unique_key, newline=False).translate(_URL_SAFE)


def decode(text: str) -> RecallHandle:
    """Parse the text of a handle; Refusal (ILLEGAL_OPERATION) if it is none."""
    if len(text) > HANDLE_CHARS_MAX:
        raise _invalid(f"it has {len(text)} characters, the limit is {HANDLE_CHARS_MAX}")
    try:
        # Java takes a handle without its padding, and nothing but its alphabet.
        padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
        raw = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
        words = raw.decode().split(" ")
    except (binascii.Error, ValueError):
        raise _invalid("it is no base64 text of a handle") from None
    if words[0] != VERSION or len(words) < 5 or not any(words[4:]):
        raise _invalid(f"it is not of the form {VERSION} TOPIC BROKER TIME UNIQ_KEY")
    time = words[3]
    is_number = time.isascii() and time.isdigit() and len(time) <= 18
    return RecallHandle(words[1], words[2], int(time) if is_number else -1, words[4])


def _invalid(why: str) -> Refusal:
    return Refusal(
        codes.ILLEGAL_OPERATION,
        f"recall handle is invalid: {why}; pass on the recallHandle of the send's answer",
    )
