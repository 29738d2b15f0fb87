"""The work that follows once sends are stored, whichever engine stored them: one book.

Messages are counted, readers are woken, the timers learn of theirs, and the responses go out, at
once or when disk and slaves have the messages.
"""

from collections.abc import Sequence

from ..pull.long_polls import LongPolls, QueueKey
from ..runtime.stats import Stats
from ..runtime.syncer import Responses, Syncer
from ..scheduled.delivery_policy import DeliveryPolicy
from ..topics.topics import Target


class SendFinish:
    """Does the work that is left for stored sends. Responses wait for `syncer`; None when they need
    not wait."""

    def __init__(
        self,
        long_polls: LongPolls,
        stats: Stats,
        delivery_policy: DeliveryPolicy,
        syncer: Syncer | None,
    ) -> None:
        self._long_polls = long_polls
        self._stats = stats
        self._delivery_policy = delivery_policy
        self.syncer = syncer

    def count(
        self,
        target: Target,
        key: QueueKey,
        kind: str,
        messages: int,
        size: int,
        large: Sequence[int] = (),
        batches: int = 0,
    ) -> None:
        """Count messages of one type to a topic, `size` bytes in the log, and wake their readers.

        `key` is the queue that has them: the topic's own, or one of a system topic, where nobody
        sees them yet. `large` and `batches` as in `Arrivals.note`.
        """
        puts = target.puts
        if key[0] != target.name:
            puts = self._stats.puts(key[0])
        elif key in self._long_polls.parked:
            self._long_polls.mark(key)
        puts.add(messages, size, kind, large, batches)

    def tell_timers(self, entries: list[int], topics: list[str]) -> None:
        """Report messages on the timer wheel to the timers: four numbers and a topic for each."""
        if topics:
            self._delivery_policy.on_timers_stored(entries, topics)

    def respond(self, end: int, responses: Responses, *, is_waiting: bool) -> None:
        """Send the responses to what ends there in the log, at once or when it is safe."""
        if is_waiting and self.syncer is not None:
            self.syncer.after(end, responses)
        else:
            responses.respond()
