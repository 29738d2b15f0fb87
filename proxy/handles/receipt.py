"""Receipt handles: the broker's handle of a popped message with its log offset appended."""

from dataclasses import dataclass

from ...protocol.message import pop_handles
from ..messages.status import Code, StatusError

CHARS_MAX = 1_024
WORDS = 8  # of a broker's handle


@dataclass(frozen=True, slots=True)
class Receipt:
    """A parsed handle. `log_offset` is -1 in handles without it. Times in ms."""

    text: str  # as the broker knows it
    known: pop_handles.Handle
    log_offset: int

    @property
    def full_text(self) -> str:
        """The text that the client gets."""
        return f"{self.text} {self.log_offset}"

    @property
    def place(self) -> tuple[str, int, int]:
        """The place of the message: broker, queue id, queue offset."""
        return self.known.broker_name, self.known.queue_id, self.known.offset

    @property
    def visible_ms(self) -> int:
        """The time when the message becomes visible again, on the broker's clock."""
        return self.known.pop_ms + self.known.invisible_ms

    def topic(self, topic: str, group: str) -> str:
        """The topic that the message lies in: a retry topic after a retry."""
        return pop_handles.real_topic(topic, group, self.known.retry)


def read(text: str) -> Receipt:
    """The handle in a request; StatusError INVALID_RECEIPT_HANDLE."""
    if len(text) > CHARS_MAX:
        raise _invalid(f"it has {len(text)} characters, the limit is {CHARS_MAX}")
    words = text.split(" ")
    if len(words) not in (WORDS, WORDS + 1):
        raise _invalid(f"it has {len(words)} words, a handle has {WORDS} or {WORDS + 1}")
    try:
        known = pop_handles.parse_handle(text)
    except ValueError as wrong:
        raise _invalid(str(wrong)) from None
    log_offset = -1
    if len(words) > WORDS:
        last = words[WORDS]
        if last != "-1" and not (last.isascii() and last.isdigit() and len(last) < 20):
            raise _invalid(f"its log offset is {last[:20]!r}, it must be a number")
        log_offset = int(last)
    return Receipt(" ".join(words[:WORDS]), known, log_offset)


def changed(old: Receipt, pop_ms: int, invisible_ms: int, revive_queue_id: int) -> Receipt:
    """The handle after a change: the message has a check point of its own now."""
    known = old.known._replace(
        start_offset=old.known.offset,
        pop_ms=pop_ms,
        invisible_ms=invisible_ms,
        revive_queue_id=revive_queue_id,
    )
    return Receipt(pop_handles.handle(*known), known, old.log_offset)


def _invalid(why: str) -> StatusError:
    return StatusError(
        Code.INVALID_RECEIPT_HANDLE, f"the receipt handle is invalid: {why}; give the one received"
    )
