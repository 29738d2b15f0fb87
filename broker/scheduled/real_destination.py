"""The destination of a waiting message: the properties that `delayed` adds.

Every client can write such properties, so they need not be legal. Where a name occurs twice the
last one counts, which is the broker's.
"""

from ...protocol.message import properties

DIGITS_MAX = 18  # of a number in a property


def real_place(raw: bytes) -> tuple[str, int]:
    """Topic and queue of a message with these properties; "" and -1 where there are none."""
    # Nearly always both are there once, side by side as `delayed` puts them.
    text = raw.decode(errors="replace")
    at = text.find("REAL_")
    end = text.find("\x02", at)
    if text.startswith("REAL_TOPIC\x01", at) and text.startswith("\x02REAL_QID\x01", end):
        stop = text.find("\x02", end + 1)
        number = text[end + 10 : stop]
        is_plain = number.isascii() and number.isdigit() and len(number) <= DIGITS_MAX
        is_plain = is_plain and at > 0 and text[at - 1] == "\x02" and stop > 0
        if is_plain and text.find("REAL_", stop) < 0:
            return text[at + 11 : end], int(number)
    topic, queue = properties.find(raw, b"REAL_TOPIC"), properties.find(raw, b"REAL_QID")
    return (topic or b"").decode(errors="replace"), number_of(queue, -1)


def delayed(text: str, topic: str, queue_id: int) -> str:
    """The properties of a message that is to wait, with the place where it goes afterwards."""
    joined = text if not text or text[-1] == "\x02" else text + "\x02"
    return f"{joined}REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}\x02"


def number_of(text: bytes | None, otherwise: int) -> int:
    """A property's number, 0 or more; `otherwise` when it is none."""
    return int(text) if text and len(text) <= DIGITS_MAX and text.isdigit() else otherwise
