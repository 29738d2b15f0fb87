"""The property that says where a copied message comes from.

A mirror finds in it how far it is, and which offset of the copy an offset of the source means. So
the target's log is the state of the mirror: nothing else must be kept, or agree with it.
"""

from ...protocol.bodies.body import MessageQueue
from ...protocol.message import properties as props
from ...protocol.message.record import Record

GROUP = "aerobee-mirror"  # of its sends, and of its progress at the source
PROPERTY = "aerobee.mirror"  # its value: "cluster/broker/queue/offset" at the source
_RAW_PROPERTY = PROPERTY.encode()


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
