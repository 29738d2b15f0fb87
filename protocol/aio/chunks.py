"""Chunks of many connections that their owner reads all at once, at the end of a loop iteration.

The owner says of which class the connections are. This module only tells them apart.
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import Generic, NamedTuple, Protocol, TypeVar

from ..codec.frame import LENGTH_BYTES

CHUNKS_MIN = 4  # for fewer connections reading all at once takes longer than one by one
START = slice(8, 20)  # of a frame with a JSON header: the first twelve bytes of the header

Sender = TypeVar("Sender")
Watched = TypeVar("Watched", contravariant=True)


class Chunks(NamedTuple, Generic[Sender]):
    """One chunk of bytes from each of these senders, joined; the chunks end at `ends`."""

    senders: list[Sender]
    data: bytes
    ends: list[int]

    def each(self) -> list[bytes]:
        """The chunk of each sender."""
        starts = [0, *self.ends]
        return [self.data[start:end] for start, end in zip(starts, self.ends, strict=False)]


def joined(senders: list[Sender], chunks: list[bytes]) -> Chunks[Sender]:
    """The chunks of these senders, one each."""
    return Chunks(senders, b"".join(chunks), list(accumulate(map(len, chunks))))


class SocketReader(Protocol[Watched]):
    """Reads the sockets of many connections that each send little."""

    def add(self, connection: Watched, fd: int) -> bool:
        """Watch the socket of this connection; False when the system can't."""

    def remove(self, connection: Watched, fd: int) -> None:
        """Stop watching the socket of this connection."""

    def close(self) -> None:
        """All connections go back to their transports."""


class ChunkBatch(Generic[Sender]):
    """The chunks of one loop iteration, at most one of each of the `senders`.

    A chunk may be added if the header of its first frame begins with one of `starts`. The value
    says whether a batch pays for one such frame; else it pays from CHUNKS_MIN frames of one
    connection on. A `reader` adds chunks of many senders together.
    """

    __slots__ = ("_chunks", "_frames_min", "_pays", "_together", "chunks_min", "reader", "senders")

    def __init__(self, starts: Mapping[bytes, bool]) -> None:
        self._frames_min = {start: 1 if pays else CHUNKS_MIN for start, pays in starts.items()}
        self.chunks_min = CHUNKS_MIN
        self.reader: SocketReader[Sender] | None = None
        self.senders: list[Sender] = []
        self._chunks: list[bytes] = []  # of the last senders
        self._together: Chunks[Sender] | None = None  # of the first ones, which were read together
        self._pays = False

    def add(self, sender: Sender, chunk: bytes, *, is_alone: bool) -> bool:
        """Add the chunk of a connection; returns whether it could be added. If it `is_alone`, it
        has to be worth a batch."""
        frames_min = self._frames_min.get(chunk[START])
        if frames_min is None:
            return False
        frame_bytes = LENGTH_BYTES + int.from_bytes(chunk[:LENGTH_BYTES], "big")
        pays = frames_min * frame_bytes <= len(chunk)
        if frame_bytes > len(chunk) or (is_alone and not pays):
            return False
        self.senders.append(sender)
        self._chunks.append(chunk)
        self._pays |= pays
        return True

    def add_together(self, chunks: Chunks[Sender]) -> None:
        """Add chunks that were read together, before all others of this loop iteration."""
        self.senders = [*chunks.senders, *self.senders]
        self._together = chunks

    def remove(self, sender: Sender) -> bytes | None:
        """Take out the chunk of a connection, if it was read together with others."""
        together = self._together
        if together is None or sender not in together.senders:
            return None
        chunks = together.each()
        at = together.senders.index(sender)
        chunk = chunks.pop(at)
        senders = [each for each in together.senders if each is not sender]
        self.senders = senders + self.senders[len(together.senders) :]
        self._together = joined(senders, chunks) if senders else None
        return chunk

    def take(self) -> tuple[Chunks[Sender], bool]:
        """Take all chunks out; and whether a batch pays for them."""
        senders, chunks, together = self.senders, self._chunks, self._together
        pays = self._pays or len(senders) >= self.chunks_min
        self.senders, self._chunks, self._together, self._pays = [], [], None, False
        if together is not None and not chunks:
            return together, pays
        if together is not None:
            chunks = together.each() + chunks
        return joined(senders, chunks), pays
