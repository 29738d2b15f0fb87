"""The destination of a waiting message: the properties that `delayed` adds.

Every client can write such properties, so they need not be legal. Where a name occurs twice the
last one counts, which is the broker's.
"""

from ...protocol.message import properties

DIGITS_MAX = 18  # of a number in a property


def real_place(raw: bytes) -> tuple[str, int]:
    """The topic and queue of a message with these properties; "" and -1 without them."""
    topic, queue = properties.find(raw, b"REAL_TOPIC"), properties.find(raw, b"REAL_QID")
    return (topic or b"").decode(errors="replace"), number_of(queue, -1)


def delayed(text: str, topic: str, queue_id: int) -> str:
    """The properties of a message that is to wait, with the place where it goes afterwards."""
    return f"{properties.ended(text)}REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}\x02"


def number_of(text: str | bytes | None, otherwise: int) -> int:
    """A property's number, 0 or more; `otherwise` when it is none."""
    is_number = text and len(text) <= DIGITS_MAX and text.isascii() and text.isdigit()
    return int(text) if text and is_number else otherwise
