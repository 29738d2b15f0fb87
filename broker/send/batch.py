"""The sends of one loop iteration that are handled one at a time: their messages, and
the responses that wait for the store."""

from collections.abc import Collection
from typing import NamedTuple

from ...protocol.aio.connection import Connection
from ...protocol.command import Command
from ...protocol.message.recall_handle import encode_with, handle_prefix
from ...store.engine.messages import MessageFields
from ..topics.topics import Target


class TimerSlot(NamedTuple):
    """The slot of the timer wheel, in ms, of a message that its sender can recall. `is_reported`:
    the timers are told where it is; else they read it themselves."""

    ms: int
    is_reported: bool


# Request, connection, queue, unique key, topic, whether the response waits for the disk or for
# slaves, type of message, slot if it can be recalled.
PendingSend = tuple[Command, Connection, int, bytes, Target, bool, str, TimerSlot | None]


class SendBatch:
    """The `messages` in their order, and for each the `pending` response."""

    __slots__ = ("messages", "pending")

    def __init__(self) -> None:
        self.messages: list[MessageFields] = []
        self.pending: list[PendingSend] = []

    def remove(self, topics: Collection[str | None]) -> list[tuple[MessageFields, PendingSend]]:
        """Take out the messages to these topics."""
        pairs = list(zip(self.messages, self.pending, strict=True))
        kept = [pair for pair in pairs if pair[1][4].name not in topics]
        self.messages = [message for message, _ in kept]
        self.pending = [pending for _, pending in kept]
        return [pair for pair in pairs if pair[1][4].name in topics]


class StoredTimers:
    """Stored messages on the timer wheel: their `entries` as the timers take them, four numbers
    each, and their `topics`."""

    __slots__ = ("_broker_name", "_handle_prefix", "_prefix_for", "entries", "topics")

    def __init__(self, broker_name: str) -> None:
        self._broker_name = broker_name
        self._handle_prefix, self._prefix_for = b"", (0, "")
        self.entries: list[int] = []
        self.topics: list[str] = []

    def add(
        self,
        slot: TimerSlot,
        topic: str,
        unique: bytes,
        queue_offset: int,
        log_offset: int,
        size: int,
    ) -> bytes:
        """Add a message; returns the handle by which its sender can recall it."""
        if self._prefix_for != (slot.ms, topic):
            self._prefix_for = slot.ms, topic
            # A millisecond inside of the slot: the recall's own time is rounded down.
            self._handle_prefix = handle_prefix(topic, self._broker_name, slot.ms + 1)
        if slot.is_reported:
            self.entries += (queue_offset, log_offset, size, slot.ms)
            self.topics.append(topic)
        return encode_with(self._handle_prefix, unique)
