"""What follows once sends are stored, whichever engine stored them: one book.

Messages are counted, readers are woken, the timers learn of theirs, and the responses go out, at
once or when disk and slaves have the messages.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..pull.long_polls import LongPolls, QueueKey
from ..runtime.stats import Stats
from ..runtime.syncer import Responses, Syncer
from ..scheduled.delivery_policy import DeliveryPolicy
from ..topics.topics import Target


class StoredGroup(NamedTuple):
    """Stored messages to one topic, in the queue `key`: the topic's own, or that of a system topic
    where they are not seen yet. They have one type (`kind`), and `size` bytes in the log. `large`
    and `batches` are those of `Arrivals.note`."""

    target: Target
    key: QueueKey
    kind: str
    messages: int
    size: int
    large: Sequence[int] = ()
    batches: int = 0


class SendBatch(NamedTuple):
    """Sends that are stored, up to `end` in the log. `timers` are those on the timer wheel:
    entries of four numbers, and topics. The `responses` have not been sent yet; where they wait
    (`is_waiting`), for the disk or for slaves."""

    groups: Iterable[StoredGroup]
    end: int
    responses: Responses
    is_waiting: bool
    timers: tuple[list[int], list[str]] = ([], [])


class SendFinish:
    """Does what is left to do for stored sends. `syncer` is what responses wait for, None where
    none waits."""

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

    def finish(self, batch: SendBatch) -> None:
        """Count, wake readers, tell the timers, respond."""
        groups, end, responses, is_waiting, (entries, topics) = batch
        parked = self._long_polls.parked
        for target, key, kind, messages, size, large, batches in groups:
            puts = target.puts
            if key[0] != target.name:
                puts = self._stats.puts(key[0])
            elif key in parked:
                self._long_polls.mark(key)
            puts.add(messages, size, kind, large, batches)
        if entries:
            self._delivery_policy.came_in(entries, topics)
        if is_waiting and self.syncer is not None:
            self.syncer.after(end, responses)
        else:
            responses.respond()
