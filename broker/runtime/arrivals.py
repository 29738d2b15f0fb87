"""Messages that clients sent to a topic, by type and size: three of RocketMQ's metrics.

Nearly all messages are normal ones of up to 1 KiB, so a topic counts all its messages in one place
(`stats.Puts`) and only the others are noted here. The usual message costs nothing more.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from ...protocol.histogram import Histogram
from ...protocol.message import properties

# The values of the label message_type.
NORMAL, FIFO, DELAY, TRANSACTION = "normal", "fifo", "delay", "transaction"
SIZE_BOUNDS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)  # bytes
SMALL_BYTES = SIZE_BOUNDS[0]

_DELAYED = (
    "__STARTDELIVERTIME",
    properties.DELAY,
    properties.TIMER_DELIVER_MS,
    properties.TIMER_DELAY_SEC,
    properties.TIMER_DELAY_MS,
)


def type_of(text: str) -> str:
    """The type of a message with these properties that is not a half message."""
    pairs = properties.decode(text)
    if properties.SHARDING_KEY in pairs:
        return FIFO
    return DELAY if any(name in pairs for name in _DELAYED) else NORMAL


class _Type:
    """Messages of one type: those of a batch are one size, their average. `large` counts the sizes
    above the first bound."""

    __slots__ = ("batch_bytes", "batch_messages", "bytes", "large", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.batch_messages = 0  # that add no size
        self.batch_bytes = 0
        self.large = [0] * len(SIZE_BOUNDS)


class Arrivals:
    """The unusual ones of a topic's messages. `own_messages` and `own_bytes` count messages that
    the broker itself put there, as when a delayed one is due."""

    __slots__ = ("_types", "own_bytes", "own_messages")

    def __init__(self) -> None:
        self.own_messages = 0
        self.own_bytes = 0
        self._types: dict[str, _Type] = {}

    def note(self, kind: str, size: int) -> None:
        """A message came that is not normal, or larger than SMALL_BYTES."""
        self.note_all(kind, 1, size, (size,))

    def note_all(self, kind: str, messages: int, size: int, sizes: Iterable[int] = ()) -> None:
        """This many came together. `sizes` has the sizes above SMALL_BYTES, if there are any."""
        found = self._of(kind)
        if kind != NORMAL:
            found.messages += messages
            found.bytes += size
        for one in sizes:
            if one > SMALL_BYTES:
                found.large[bisect_left(SIZE_BOUNDS, one) - 1] += 1

    def note_batches(self, kind: str, batches: int, messages: int, size: int) -> None:
        """Batches came, with this many messages together."""
        average = size // messages
        self.note_all(kind, messages, size, [average] * batches)
        found = self._of(kind)
        found.batch_messages += messages - batches
        found.batch_bytes += size - average * batches

    def by_type(self, messages: int, size: int) -> Iterator[tuple[str, int, int, Histogram]]:
        """Type, messages, bytes and sizes, of the topic's messages in all."""
        rest = messages - self.own_messages
        rest_bytes = size - self.own_bytes
        for kind, found in self._types.items():
            if kind != NORMAL:
                rest -= found.messages
                rest_bytes -= found.bytes
                yield kind, found.messages, found.bytes, _sizes(found, found.messages, found.bytes)
        if rest > 0:
            yield NORMAL, rest, rest_bytes, _sizes(self._of(NORMAL), rest, rest_bytes)

    def _of(self, kind: str) -> _Type:
        found = self._types.get(kind)
        if found is None:
            found = self._types[kind] = _Type()
        return found


def _sizes(found: _Type, messages: int, size: int) -> Histogram:
    sizes = Histogram(SIZE_BOUNDS)
    small = messages - found.batch_messages - sum(found.large)
    sizes.counts = [small, *found.large]
    sizes.sum = size - found.batch_bytes
    return sizes
