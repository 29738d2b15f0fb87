"""The memory that a server uses for its peers, in bytes: responses that they have not read yet, and
requests that have not arrived completely or wait for their turn.

All connections of a server have one budget. A peer with many unsent bytes is not served until it
has read. At the limit each peer may have one unsent response at a time; at twice the limit large
responses are refused, and peers in the middle of a large request are disconnected. When incomplete
requests alone reach the limit, peers in the middle of any request are.
"""

from .. import codes
from ..errors import Refusal

BYTES_MAX = 512 << 20
UNSENT_BYTES_MAX = 4 << 20  # to one peer, before it is served again
RESPONSE_BYTES_PER_TICK = 1 << 20  # to all peers; then large responses wait for the next tick
COUNTED_BYTES_MIN = 64 << 10  # unsent to one peer: less is counted only if it can't be written
HELD_BYTES_MIN = 64 << 10  # of an incomplete request: smaller ones end if all are too many
WAITING_SHARE = 4  # requests that wait for messages may use this part of the limit: a fourth


class MemoryBudget:
    """The sum over all connections.

    `unsent_max` is how many bytes may be unsent to one peer now. `is_full` says that nothing large
    may be added, and `refused` counts what was turned away for that. `held` is the part of
    incomplete requests, which connections add up. `waiting` is the bytes of long requests that wait
    for messages, which have a limit of their own.
    """

    __slots__ = ("bytes", "bytes_max", "held", "is_full", "refused", "unsent_max", "waiting")

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max
        self.held = 0
        self.refused = 0
        self.waiting = 0
        self.add(0)

    def add(self, count: int) -> None:
        """Count more bytes, or fewer if `count` is negative."""
        self.bytes += count
        self.unsent_max = UNSENT_BYTES_MAX if self.bytes < self.bytes_max else 0
        self.is_full = self.bytes >= 2 * self.bytes_max

    def may_wait(self, count: int) -> bool:
        """True if a long request of `count` bytes may wait; if so they are counted."""
        if self.waiting + count > self.bytes_max // WAITING_SHARE:
            self.refused += 1
            return False
        self.waiting += count
        return True

    def busy(self) -> Refusal:
        """The refusal of one more large response: others must read theirs first."""
        self.refused += 1
        return Refusal(
            codes.SYSTEM_BUSY,
            f"[OVERLOAD]{self.bytes} bytes wait in memory for clients to read them, the limit is "
            f"twice {self.bytes_max} (clientMemoryBytesMax); try again later",
        )
