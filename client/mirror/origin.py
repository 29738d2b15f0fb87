"""The property that says where a copied message comes from.

A mirror finds in it how far it is, and which offset of the copy an offset of the source means. So
the target's log is the state of the mirror: nothing else must be kept, or agree with it.
"""

import hashlib
from collections.abc import Iterable

from ...protocol.bodies.body import MessageQueue
from ...protocol.message import properties as props
from ...protocol.message.record import Record

GROUP = "aerobee-mirror"  # of its sends; groups of its progress begin like this
PROPERTY = "aerobee.mirror"  # its value: "cluster/broker/queue/offset" at the source
_RAW_PROPERTY = PROPERTY.encode()


def progress_group(target: str | Iterable[str]) -> str:
    """The group at the source for the progress of a mirror to the `target` (its name servers).

    Each target has a group of its own, since one source may be mirrored to several.
    """
    each = target.split(";") if isinstance(target, str) else target
    addresses = ";".join(sorted(each))
    return f"{GROUP}-{hashlib.sha256(addresses.encode()).hexdigest()[:8]}"


class Origin:
    """One queue of the source; `cluster` is the name that the mirror gives the source."""

    def __init__(self, cluster: str, queue: MessageQueue) -> None:
        self._start = f"{cluster}/{queue.broker_name}/{queue.queue_id}/"
        self._pair = f"{PROPERTY}{props.NAME_VALUE_SEPARATOR}{self._start}".encode()

    def pair(self, offset: int) -> bytes:
        """The property of the message with this offset, in its stored form."""
        return b"%b%d\x02" % (self._pair, offset)

    def offset_of(self, record: Record) -> int | None:
        """The offset at the source of a copied message; None for any other message."""
        value = (props.find(record.raw_properties, _RAW_PROPERTY) or b"").decode(errors="replace")
        offset = value.removeprefix(self._start)
        if offset == value or not (offset.isascii() and offset.isdecimal()):
            return None
        return int(offset)
