"""Finds the destination of sends, once for each topic and queue.

A destination stays known while its topic and its queue stay the same. Sends without one (unknown
topics, static topics, queues that are full or don't exist yet, delays that are refused) are
exceptional, and are handled one by one (`handlers.py`).
"""

from typing import TYPE_CHECKING, NamedTuple

from ...protocol import codes
from ...protocol.aio.rpc_latency import ONEWAY, rpc_key
from ...protocol.errors import Refusal
from ...store.engine.store import MessageStore
from ...store.queues.consume_queue import ConsumeQueue
from ..runtime.arrivals import DELAY, FIFO, NORMAL
from ..scheduled.delivery_policy import DeliveryPolicy
from ..topics.topics import Target, Topics

if TYPE_CHECKING:
    from ...protocol.kernels.plain_sends import Group

# Under what the requests that succeed are counted.
SEND_V2_OK = rpc_key(codes.SEND_MESSAGE_V2, codes.SUCCESS)
SEND_BATCH_OK = rpc_key(codes.SEND_BATCH_MESSAGE, codes.SUCCESS)


class Destination(NamedTuple):
    """Where a group of sends is stored: its topic, the queue that was asked for, and the queue that
    takes it. Behind the properties of each message comes `more`. What waits is delivered `delay_ms`
    after it is stored, -1 if that is not known now, or at `slot_ms` of the timer wheel, 0 for none.
    `kind` is the type of the messages, and `answer` what the requests are counted under, for the
    metrics."""

    target: Target
    key: tuple[str, int]
    queue: ConsumeQueue
    more: bytes
    delay_ms: int
    slot_ms: int
    kind: str
    answer: int


class Router:
    """The destinations of groups of sends, by the numbers of the groups."""

    def __init__(
        self, store: MessageStore, topics: Topics, delivery_policy: DeliveryPolicy
    ) -> None:
        self._store = store
        self._topics = topics
        self._delivery_policy = delivery_policy
        self._suffix = b""
        self._known: dict[int, Destination] = {}

    def forget(self, suffix: bytes) -> None:
        """Forget all destinations: from now on this comes behind the properties of each message."""
        self._suffix = suffix
        self.forget_groups()

    def forget_groups(self) -> None:
        """Forget all destinations: the groups get other numbers."""
        self._known.clear()

    def find(self, number: int, group: "Group", messages: int, now_ms: int) -> Destination | None:
        """The destination of this many messages of a group; None if they are exceptional."""
        known = self._known.get(number)
        if known is not None and self._is_valid(known):
            return known
        found = self._find(group, messages, now_ms)
        if found is not None and not group.waits:  # else it holds for this moment only
            self._known[number] = found
        return found

    def _is_valid(self, destination: Destination) -> bool:
        target = destination.target
        return (
            self._topics.targets.get(target.name) is target  # a topic that changes has another one
            and not target.special
            and self._store.plain_queue(destination.key) is destination.queue
        )

    def _find(self, group: "Group", messages: int, now_ms: int) -> Destination | None:
        target = self._topics.targets.get(group.topic)
        if target is None or target.special or not 0 <= group.queue_id < target.queues:
            return None
        key = own = target.keys[group.queue_id]
        more, slot_ms = self._suffix, 0
        if group.waits:
            waits = f"{group.waits}\x02"
            try:
                placed = self._delivery_policy.placed_all(waits, own, messages, now_ms)
            except Refusal:  # the handler finds it, too, and says so
                return None
            if placed is None:
                return None
            key, text, slot_ms = placed
            if not text.startswith(waits):  # a level over the last one: the text is another
                return None
            more = text[len(waits) :].encode() + more
        queue = self._store.plain_queue(key)
        if queue is None or (queue.is_schedule and key is own):
            return None
        delay_ms = self._store.settings.delay_levels_ms[key[1]] if queue.is_schedule else -1
        kind = FIFO if group.is_fifo else DELAY if group.waits else NORMAL
        answer = SEND_BATCH_OK if group.is_batch else SEND_V2_OK
        if group.is_oneway:
            answer |= ONEWAY
        return Destination(target, own, queue, more, delay_ms, slot_ms, kind, answer)
