"""The sends of one loop iteration that are handled one at a time: their messages, and
the responses that wait for the store."""

from collections.abc import Collection

from ...protocol.aio.connection import Connection
from ...protocol.command import Command
from ...protocol.message.recall_handle import encode_with, words_before
from ...store.engine.messages import MessageFields
from ...store.timer.timer_log import WHEEL_TOPIC
from ..scheduled.delays import SCHEDULE_TOPIC
from ..topics.topics import Target
from ..transactions.transactions import HALF_TOPIC

# Whether a message is seen at once: 0, in a static topic LOGICAL; its slot of the timer wheel in ms
# when it waits there and can be taken back, negative when the timers have to read it themselves; or
# one of these.
WAITS = -1  # and can't be taken back
HALF = -2
DELAYED = -3  # by a level

# Request, connection, queue, unique key, topic, whether it is seen, whether the response waits for
# the disk, type of message.
PendingSend = tuple[Command, Connection, int, bytes, Target, int, bool, str]


class SendBatch:
    """The `messages` in their order, and for each the `pending` response."""

    __slots__ = ("messages", "pending")

    def __init__(self) -> None:
        self.messages: list[MessageFields] = []
        self.pending: list[PendingSend] = []

    def remove(self, topics: Collection[str | None]) -> list[PendingSend]:
        """Take out the messages to these topics."""
        pairs = list(zip(self.messages, self.pending, strict=True))
        kept = [pair for pair in pairs if pair[1][4].name not in topics]
        self.messages = [message for message, _ in kept]
        self.pending = [pending for _, pending in kept]
        return [pending for _, pending in pairs if pending[4].name in topics]


class WaitingMessages:
    """Stored messages that wait on the timer wheel: their `places` as the timers take them, four
    numbers each, and their `topics`."""

    __slots__ = ("_broker_name", "_words", "_words_for", "places", "topics")

    def __init__(self, broker_name: str) -> None:
        self._broker_name = broker_name
        self._words, self._words_for = b"", (0, "")
        self.places: list[int] = []
        self.topics: list[str] = []

    def add(
        self, seen: int, topic: str, unique: bytes, queue_offset: int, log_offset: int, size: int
    ) -> bytes:
        """Add a message; returns the handle by which its sender can recall it."""
        if self._words_for != (seen, topic):
            self._words_for = seen, topic
            # A millisecond inside of the slot: the recall's own time is rounded down.
            self._words = words_before(topic, self._broker_name, abs(seen) + 1)
        if seen > 0:
            self.places += (queue_offset, log_offset, size, seen)
            self.topics.append(topic)
        return encode_with(self._words, unique)


def topic_of(seen: int) -> str:
    """The topic that has a message which is not seen at once."""
    if seen == HALF:
        return HALF_TOPIC
    return SCHEDULE_TOPIC if seen == DELAYED else WHEEL_TOPIC
