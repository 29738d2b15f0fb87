"""The messages of a queue that a reader wants, and the search for those that match an expression.

The consume queue decides about tags, inside the store. An SQL92 expression needs the properties in
the log: `scan_matching` reads messages from the store in chunks, up to the limit of one pull, and
keeps the matching ones. Bytes that can't be read as a record are returned, too, so that nothing is
lost here.
"""

from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.errors import Malformed
from ...protocol.filters.sql92 import Predicate
from ...protocol.message.properties import PAIR_SEPARATOR
from ...protocol.message.record import properties_places, raw_properties_of
from ...store.base import status
from ...store.base.kernels import Buffer
from ...store.engine.store import Found, MessageStore

SCAN_BYTES_MAX = 4 << 20  # of messages that one pull scans, the last one may exceed it

# The hashes of the wanted tags, a question about each message's properties, or None for all.
Wanted = frozenset[int] | Predicate | None


class RawProperties:
    """The stored properties of a message; a property is searched for when it is used.

    The values are those of `properties.decode`.
    """

    __slots__ = ("_text",)

    def __init__(self, raw: bytes) -> None:
        self._text = raw.decode("utf-8", "replace")

    def get(self, name: str) -> str | None:
        """The value of a property, None when the message doesn't have it."""
        text = self._text
        needle = f"\x02{name}\x01"  # the separators before a pair and before its value
        at = text.rfind(needle)
        while at >= 0:
            start = at + len(needle)
            end = text.find(PAIR_SEPARATOR, start)
            if end < 0:
                end = len(text)
            if end > start:
                return text[start:end]
            at = text.rfind(needle, 0, start - 1)  # a name without a value is no pair
        if text.startswith(needle[1:]):
            start = len(needle) - 1
            end = text.find(PAIR_SEPARATOR, start)
            return (text[start:] if end < 0 else text[start:end]) or None
        return None


def tags_of(subscription: SubscriptionData) -> frozenset[int] | None:
    """The hashes of the tags in a subscription by tags; None for all tags.

    Without hashes it matches nothing, as in RocketMQ, whose client makes such a one of a blank.
    """
    return None if subscription.takes_all else frozenset(subscription.code_set)


def is_by_tags(expression_type: str | None) -> bool:
    """True if a subscription of this type is one by tags."""
    return expression_type in (None, "", "TAG")


def scan_matching(
    store: MessageStore,
    topic: str,
    queue_id: int,
    offset: int,
    messages_max: int,
    bytes_max: int,
    matches: Predicate,
    entries_max: int,
) -> Found:
    """The messages of a queue from `offset` on that match, as `MessageStore.get` finds others.

    At most `entries_max` messages and about SCAN_BYTES_MAX bytes are scanned; `next_offset` is
    behind the last one of them. At least one message when one matches there, and then not more
    than `messages_max` in `bytes_max` bytes.
    """
    room = entries_max
    found = store.get(topic, queue_id, offset, room, bytes_max)
    if found.status not in _WITHIN:
        return found
    kept: list[Buffer] = []
    size = scanned_bytes = 0
    end_offset = offset + entries_max
    while found.status in _WITHIN and found.next_offset > offset:
        pieces = list(map(bytes, found.records))
        records = [(piece, *place) for piece in pieces for place in _places(piece, room)]
        if room > 1 and 1 < len(records) != found.next_offset - offset:
            # Some are gone, so a record's place doesn't tell its offset: one at a time.
            room = 1
            found = store.get(topic, queue_id, offset, room, bytes_max)
            continue
        scanned_bytes += found.size
        following = found.next_offset
        for place, (piece, start, properties_at, end) in enumerate(records):
            if properties_at >= 0:
                if not matches(RawProperties(piece[properties_at:end])):
                    continue
                record = piece[start:end]
            elif not is_hit(record := piece[start:end], matches):
                continue
            size += len(record)
            if kept and (len(kept) >= messages_max or size > bytes_max):
                size -= len(record)
                following = end_offset = offset + place
                break
            kept.append(record)
        offset = following
        if offset >= min(end_offset, found.max_offset) or scanned_bytes >= SCAN_BYTES_MAX:
            break
        if len(kept) >= max(1, messages_max):
            break
        room = end_offset - offset
        found = store.get(topic, queue_id, offset, room, bytes_max)
    result = status.FOUND if kept else status.NO_MATCHED_MESSAGE
    return Found(result, offset, found.min_offset, found.max_offset, kept, size, len(kept))


# An offset between the queue's bounds comes to one of these.
_WITHIN = (status.FOUND, status.MESSAGE_WAS_REMOVING, status.NO_MATCHED_MESSAGE)


def _places(piece: bytes, room: int) -> list[tuple[int, int, int]]:
    """The places of a piece's records and their properties; one record alone is not taken apart."""
    return properties_places(piece) if room > 1 else [(0, -1, len(piece))]


def is_hit(record: Buffer, matches: Predicate) -> bool:
    """True if an expression is true of a stored message, or can't be evaluated."""
    try:
        raw = raw_properties_of(record)
    except Malformed:
        return True  # the reader sees its fault; skipped here it would be lost
    return matches(RawProperties(raw))
