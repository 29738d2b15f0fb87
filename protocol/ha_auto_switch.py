"""The wire between a master and its slaves in controller mode (AutoSwitchHAService), big-endian.

Each packet begins with the state of its sender. A slave says its id, the master answers with the
epochs of its log, and the slave cuts its own log where the two part. From then on the slave reports
where its log ends, the first time to say where the master goes on; the master sends the log in
chunks of one file and one epoch. A chunk without bytes says that the master is alive.
"""

from struct import Struct
from typing import NamedTuple

from .errors import Malformed

HANDSHAKE, TRANSFER = 1, 2  # of READY, HANDSHAKE, TRANSFER, SUSPEND, SHUTDOWN
STATE = Struct(">i")
SLAVE_HANDSHAKE = Struct(
    ">"
    "i"  # HANDSHAKE
    "h"  # syncFromLastFile: 1, an empty slave gets the last file only
    "h"  # asyncLearner: 1, never to be in the sync state set
    "q"  # the slave's controller id
)
MASTER_HANDSHAKE = Struct(
    ">"
    "i"  # HANDSHAKE
    "i"  # bytes of the epochs that follow
    "q"  # where the master's log ends
    "i"  # its last epoch
)
EPOCH = Struct(
    ">"
    "i"  # number
    "q"  # where it begins in the log
)
REPORT = Struct(
    ">"
    "i"  # TRANSFER
    "q"  # where the slave's log ends
)
CHUNK_HEAD = Struct(
    ">"
    "i"  # TRANSFER
    "i"  # bytes of the log that follow
    "q"  # place of the first of them
    "i"  # their epoch
    "q"  # where that begins
    "q"  # confirmOffset
)
EPOCHS_MAX = 1_000  # in a handshake: a Java master has a buffer for this number
# A Java slave reads into a buffer of 4 MiB, in which a chunk with its head must have room.
CHUNK_BYTES_MAX = (4 << 20) - CHUNK_HEAD.size
NO_EPOCH = -1  # in a chunk without bytes
NOWHERE = -1  # the place there, of a Java master that has no log yet


class SlaveHello(NamedTuple):
    """A slave's handshake. `slave_id` is its controller id."""

    slave_id: int
    from_last_file: bool
    is_learner: bool

    def encode(self) -> bytes:
        return SLAVE_HANDSHAKE.pack(HANDSHAKE, self.from_last_file, self.is_learner, self.slave_id)


class MasterHello(NamedTuple):
    """A master's handshake: where its log ends, its last epoch, and its epochs, each a number and
    the log offset where it begins."""

    end: int
    last_epoch: int
    epochs: tuple[tuple[int, int], ...]

    def encode(self) -> bytes:
        body = b"".join(EPOCH.pack(*epoch) for epoch in self.epochs)
        return MASTER_HANDSHAKE.pack(HANDSHAKE, len(body), self.end, self.last_epoch) + body


class Chunk(NamedTuple):
    """A part of the log at `place`, of one epoch. Without data, epoch and place may be -1."""

    place: int
    epoch: int
    epoch_start: int
    confirmed: int
    data: bytes

    def encode(self) -> bytes:
        return chunk_head(len(self.data), *self[:4]) + self.data


def report(end: int) -> bytes:
    """A slave's report of where its log ends."""
    return REPORT.pack(TRANSFER, end)


def chunk_head(size: int, place: int, epoch: int, epoch_start: int, confirmed: int) -> bytes:
    """The bytes before `size` bytes of the log."""
    return CHUNK_HEAD.pack(TRANSFER, size, place, epoch, epoch_start, confirmed)


class SlaveStream:
    """Decoder of a slave's stream: handshakes, and the ends that the slave reports."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[SlaveHello | int]:
        """The packets that are whole by now. Malformed when none can be like the next."""
        data = self._rest + data
        found: list[SlaveHello | int] = []
        at = 0
        while at + STATE.size <= len(data):
            (state,) = STATE.unpack_from(data, at)
            if state == HANDSHAKE:
                if at + SLAVE_HANDSHAKE.size > len(data):
                    break
                _, last_file, learner, slave_id = SLAVE_HANDSHAKE.unpack_from(data, at)
                found.append(SlaveHello(slave_id, last_file == 1, learner == 1))
                at += SLAVE_HANDSHAKE.size
            elif state == TRANSFER:
                if at + REPORT.size > len(data):
                    break
                _, end = REPORT.unpack_from(data, at)
                if end < 0:
                    raise Malformed(f"the end of a log is reported as {end}, which is below 0")
                found.append(end)
                at += REPORT.size
            else:
                raise Malformed(
                    f"a packet in state {state}; a slave sends {HANDSHAKE} (handshake) and "
                    f"{TRANSFER} (report)"
                )
        self._rest = data[at:]
        return found


class MasterStream:
    """Decoder of a master's stream: its handshake, and chunks of the log. The bytes kept stay below
    a chunk's largest size, besides those of one `feed`."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[MasterHello | Chunk]:
        """The packets that are whole by now. Malformed when none can be like the next."""
        rest = self._rest
        rest += data
        found: list[MasterHello | Chunk] = []
        at = 0
        while at + STATE.size <= len(rest):
            (state,) = STATE.unpack_from(rest, at)
            if state not in (HANDSHAKE, TRANSFER):
                raise Malformed(
                    f"a packet in state {state}; a master sends {HANDSHAKE} (handshake) and "
                    f"{TRANSFER} (a chunk of the log)"
                )
            packet = _hello(rest, at) if state == HANDSHAKE else _chunk(rest, at)
            if packet is None:
                break
            found.append(packet[0])
            at = packet[1]
        del rest[:at]
        return found


def _hello(data: bytearray, at: int) -> tuple[MasterHello, int] | None:
    """The master's handshake at this byte and its end; None while it is not whole."""
    begin = at + MASTER_HANDSHAKE.size
    if begin > len(data):
        return None
    _, size, end, last = MASTER_HANDSHAKE.unpack_from(data, at)
    count, odd = divmod(size, EPOCH.size)
    if odd or not 0 <= count <= EPOCHS_MAX or end < 0:
        raise Malformed(
            f"a handshake with {size} bytes of epochs and a log that ends at {end}; "
            f"0 to {EPOCHS_MAX} epochs of {EPOCH.size} bytes and an end of 0 or more can be"
        )
    if begin + size > len(data):
        return None
    epochs = tuple(EPOCH.iter_unpack(bytes(data[begin : begin + size])))
    return MasterHello(end, last, epochs), begin + size


def _chunk(data: bytearray, at: int) -> tuple[Chunk, int] | None:
    """The chunk at this byte and its end; None while it is not whole."""
    begin = at + CHUNK_HEAD.size
    if begin > len(data):
        return None
    _, size, place, epoch, start, confirmed = CHUNK_HEAD.unpack_from(data, at)
    least = 0 if size else NOWHERE
    if place < least or epoch < least or not 0 <= size <= CHUNK_BYTES_MAX:
        raise Malformed(
            f"a chunk of {size} bytes of epoch {epoch} at {place} of the log; 0 to "
            f"{CHUNK_BYTES_MAX} bytes of an epoch of 0 or more, at 0 or behind it, can be"
        )
    if begin + size > len(data):
        return None
    with memoryview(data) as view, view[begin : begin + size] as part:
        return Chunk(place, epoch, start, confirmed, bytes(part)), begin + size
