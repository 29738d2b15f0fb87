"""The wire between a master and its slaves: bytes of the log one way, places of the log the other.

It is no remoting protocol: there are no requests, only two streams of big-endian numbers. A slave
says how far its log reaches; the first time that is what it asks for, later it is what it has. The
master sends the log as it lies in the file, in chunks that may end anywhere, each with the place of
its first byte. A chunk without bytes says that the master is alive, and where it would go on.
"""

from struct import Struct

from .errors import Malformed

REPORT = Struct(
    ">q"  # where the slave's log ends
)
REPORT_BYTES = REPORT.size
CHUNK_HEAD = Struct(
    ">"
    "q"  # place in the log
    "i"  # bytes that follow
)
CHUNK_HEAD_BYTES = CHUNK_HEAD.size
assert REPORT_BYTES == 8
assert CHUNK_HEAD_BYTES == 12
# A Java slave reads into a buffer of 4 MiB, in which a chunk with its head must have room.
CHUNK_BYTES_MAX = (4 << 20) - CHUNK_HEAD_BYTES


class Reports:
    """Decoder of a slave's stream: the ends that the slave reports."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The last report that is complete by now; None if there is no new one.

        Only the last counts, since each report is larger than the one before. Malformed if it is
        below 0, which no log's end is.
        """
        data = self._rest + data
        whole = len(data) - len(data) % REPORT_BYTES
        self._rest = data[whole:]
        if not whole:
            return None
        (place,) = REPORT.unpack_from(data, whole - REPORT_BYTES)
        if place < 0:
            raise Malformed(f"the end of a log is reported as {place}, which is below 0")
        return int(place)


class Chunks:
    """Decoder of a master's stream: chunks of the log. The bytes kept stay below a chunk's largest
    size, besides those of one `feed`."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The chunks that are whole by now: place and bytes. Malformed when none can be like it."""
        rest = self._rest
        rest += data
        found = []
        at = 0
        while at + CHUNK_HEAD_BYTES <= len(rest):
            place, size = CHUNK_HEAD.unpack_from(rest, at)
            if place < 0 or not 0 <= size <= CHUNK_BYTES_MAX:
                raise Malformed(
                    f"a chunk of {size} bytes at {place} of the log; 0 to {CHUNK_BYTES_MAX} bytes "
                    "at 0 or behind it can be"
                )
            end = at + CHUNK_HEAD_BYTES + size
            if end > len(rest):
                break
            found.append((place, bytes(rest[at + CHUNK_HEAD_BYTES : end])))
            at = end
        del rest[:at]
        return found
