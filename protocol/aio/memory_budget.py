"""What a server holds in memory for its peers, in bytes: answers that they have not read yet, and
requests that they have not finished.

One for all connections of a server. A peer that is owed much is not served until it has read. When
all together reach the limit, each may be owed one answer at a time; at twice that, answers of many
bytes are refused, and peers in the middle of a large request are cut off. When it is unfinished
requests that take the half of it, peers in the middle of any request are.
"""

from .. import codes
from ..errors import Refusal

BYTES_MAX = 512 << 20
OWED_BYTES_MAX = 4 << 20  # to one peer, before it is served again
OWED_IN_TURN_MAX = 1 << 20  # to all peers, after which large answers have another turn
COUNTED_BYTES_MIN = 64 << 10  # owed to one peer: less is counted when it couldn't be written
HELD_BYTES_MIN = 64 << 10  # of an unfinished request: smaller ones end when all are too many
WAITING_SHARE = 4  # requests that wait for messages may have one part in so many of the limit


class MemoryBudget:
    """The sum over all connections. `owed_max` is how much one peer may be owed now, `is_full` says
    that nothing large may be added, `refused` counts what was turned away for that. `held` is the
    part of unfinished requests, which connections add up. `waiting` is the bytes of long requests
    that wait for messages, which have a limit of their own."""

    __slots__ = ("bytes", "bytes_max", "held", "is_full", "owed_max", "refused", "waiting")

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max
        self.held = 0
        self.refused = 0
        self.waiting = 0
        self.add(0)

    def add(self, count: int) -> None:
        """So many bytes more, or fewer."""
        self.bytes += count
        self.owed_max = OWED_BYTES_MAX if self.bytes < self.bytes_max else 0
        self.is_full = self.bytes >= 2 * self.bytes_max

    def may_wait(self, count: int) -> bool:
        """Whether a long request of so many bytes may wait; then they are counted."""
        if self.waiting + count > self.bytes_max // WAITING_SHARE:
            self.refused += 1
            return False
        self.waiting += count
        return True

    def busy(self) -> Refusal:
        """Why there is no memory for one more large answer: others must read theirs first."""
        self.refused += 1
        return Refusal(
            codes.SYSTEM_BUSY,
            f"[OVERLOAD]{self.bytes} bytes wait in memory for clients to read them, the limit is "
            f"twice {self.bytes_max} (clientMemoryBytesMax); try again later",
        )
