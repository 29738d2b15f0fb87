"""Messages that clients sent to a topic, by type and size: three of RocketMQ's metrics.

Nearly all messages are normal ones of up to 1 KiB, so a topic counts all its messages in one place
(`stats.Puts`) and only the others are noted here. The usual message costs nothing more.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from ...protocol.histogram import Histogram
from ...protocol.message import properties
from ...protocol.message.property_effects import DELAYS, Effect, names_with

# The values of the label message_type.
NORMAL, FIFO, DELAY, TRANSACTION = "normal", "fifo", "delay", "transaction"
SIZE_BOUNDS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)  # bytes
SMALL_BYTES = SIZE_BOUNDS[0]

_ORDERED = names_with(Effect.ORDER)
_DELAYED = DELAYS | {properties.START_DELIVER_TIME}


def type_of(pairs: Mapping[str, str]) -> str:
    """The type of a message with these properties that is not a half message."""
    if not _ORDERED.isdisjoint(pairs):
        return FIFO
    return NORMAL if _DELAYED.isdisjoint(pairs) else DELAY


def above_small(sizes: Sequence[int]) -> Sequence[int]:
    """The sizes above SMALL_BYTES; `sizes` must not be empty."""
    return [size for size in sizes if size > SMALL_BYTES] if max(sizes) > SMALL_BYTES else ()


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

    def note(
        self, kind: str, messages: int, size: int, large: Sequence[int] = (), batches: int = 0
    ) -> None:
        """Count messages of a type. `large`: those of their sizes that are above SMALL_BYTES.
        `batches`: how many batches they came in, if they did."""
        found = self._of(kind)
        if kind != NORMAL:
            found.messages += messages
            found.bytes += size
        if batches:
            average = size // messages
            large = above_small([average] * batches)
            found.batch_messages += messages - batches
            found.batch_bytes += size - average * batches
        for one in large:
            found.large[bisect_left(SIZE_BOUNDS, one) - 1] += 1

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
