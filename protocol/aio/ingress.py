"""What a peer has sent and what is not served yet: chunks of bytes, and commands taken from them.

Chunks wait as they came. The decoder takes commands out of them, and keeps the start of an
incomplete request, whose bytes count in the memory budget of all connections.
"""

from collections import deque

from ..codec.frame import FrameDecoder
from ..codec.header_json import Expected
from ..command import Command
from .memory_budget import HELD_BYTES_MIN, MemoryBudget


class Ingress:
    """The bytes and commands of one connection that wait, the oldest first."""

    __slots__ = (
        "_budget",
        "_partial",
        "_partial_rounds",
        "ahead_bytes",
        "chunks",
        "commands",
        "decoder",
        "partial_bytes",
    )

    def __init__(self, budget: MemoryBudget, expected: Expected) -> None:
        self._budget = budget
        self.decoder = FrameDecoder(expected)
        self.commands: deque[Command] = deque()
        self.chunks: deque[bytes | memoryview] = deque()  # they come behind the commands
        self.partial_bytes = 0  # of an incomplete request, as the budget counts them
        self.ahead_bytes = 0  # of the chunks, as the budget counts them
        self._partial = 0  # the number of that request in the last idle round
        self._partial_rounds = 0

    @property
    def is_waiting(self) -> bool:
        """True if anything waits to be served."""
        return bool(self.commands or self.chunks)

    def ahead(self) -> int:
        """The bytes of the chunks that wait."""
        return sum(map(len, self.chunks))

    def count_ahead(self) -> None:
        """Count the bytes of the chunks that wait now in the budget, in place of those of before.

        For a connection that stops reading, or reads again: in between they only become fewer.
        """
        count = self.ahead()
        self._budget.add(count - self.ahead_bytes)
        self.ahead_bytes = count

    def cut(self, chunk: bytes | memoryview, most: int) -> bytes:
        """The first `most` bytes of a chunk, or all that the incomplete request lacks; the rest of
        the chunk is the next one."""
        # The rest of a large request is taken at once: nothing can be served before it.
        size = max(most, self.decoder.missing)
        if len(chunk) > size:
            self.chunks.appendleft(memoryview(chunk)[size:])
        return bytes(chunk[:size])

    def take_commands(self, most: int) -> list[Command]:
        """The next commands, at most this many."""
        commands = self.commands
        return [commands.popleft() for _ in range(min(most, len(commands)))]

    def keep_commands(self, found: list[Command], most: int) -> list[Command]:
        """The first `most` of these commands; the others wait."""
        self.commands.extend(found[most:])
        return found[:most]

    def put_back(self, commands: list[Command]) -> None:
        """Put these commands before all waiting ones."""
        self.commands.extendleft(reversed(commands))

    def count_partial(self) -> bool:
        """Count the bytes of the incomplete request in the budget; False when they are too many,
        and the connection has to close."""
        budget, count = self._budget, len(self.decoder.rest)
        more = count - self.partial_bytes
        self.partial_bytes = count
        budget.held += more
        budget.add(more)
        if budget.is_full and (
            count > HELD_BYTES_MIN or (more > 0 and budget.held > budget.bytes_max)
        ):
            budget.refused += 1
            return False
        return True

    def partial_rounds(self, *, is_reading: bool) -> int:
        """The number of earlier calls in which the same request was incomplete, although the
        connection reads."""
        decoder = self.decoder
        if not decoder.rest or not is_reading or decoder.begun != self._partial:
            self._partial = decoder.begun
            self._partial_rounds = 0
        else:
            self._partial_rounds += 1
        return self._partial_rounds

    def release(self) -> None:
        """The connection is lost: the budget forgets what waited."""
        self._budget.add(-self.partial_bytes - self.ahead_bytes)
        self.ahead_bytes = 0
        self._budget.held -= self.partial_bytes
        self.partial_bytes = 0
