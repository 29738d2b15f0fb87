"""The assigned queues of a lite pull consumer and their state: AssignedMessageQueue.

Queues are assigned by the rebalance or by the application. The state of a queue exists as long as
the queue is assigned.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...protocol.bodies.body import MessageQueue
from ..group.process_queue import ProcessQueue

UNKNOWN = -1


@dataclass(slots=True, eq=False)
class MessageQueueState:
    """One assigned queue; offsets are -1 as long as they are unknown.

    `pull_offset` is pulled next, `consume_offset` follows the last message that poll gave,
    `seek_offset` is where the application wants to go on. `task` pulls the queue.
    """

    message_queue: MessageQueue
    process_queue: ProcessQueue
    paused: bool = False
    pull_offset: int = UNKNOWN
    consume_offset: int = UNKNOWN
    seek_offset: int = UNKNOWN
    task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Cancel the pull task; its pending response is dropped."""
        if self.task is not None:
            self.task.cancel()


class AssignedQueues:
    """The states by queue. `make` gives a new process queue, `begin` starts a queue's task."""

    def __init__(
        self,
        make: Callable[[MessageQueue], ProcessQueue],
        begin: Callable[[MessageQueueState], None],
    ) -> None:
        self._make = make
        self._begin = begin
        self._states: dict[MessageQueue, MessageQueueState] = {}

    @property
    def queues(self) -> list[MessageQueue]:
        return list(self._states)

    @property
    def states(self) -> list[MessageQueueState]:
        return list(self._states.values())

    def state(self, queue: MessageQueue) -> MessageQueueState | None:
        """The state of a queue, None when it is not ours."""
        return self._states.get(queue)

    def become(
        self, wanted: Iterable[MessageQueue], topic: str | None = None
    ) -> list[MessageQueue]:
        """Assign exactly these queues, of one topic or of all; returns the released ones."""
        queues = set(wanted)
        lost = [
            queue for queue in self._states if queue not in queues and topic in (None, queue.topic)
        ]
        for queue in lost:
            state = self._states.pop(queue)
            state.process_queue.drop()
            state.cancel()
        for queue in sorted(queues - self._states.keys()):
            state = MessageQueueState(queue, self._make(queue))
            self._states[queue] = state
            self._begin(state)
        return lost

    def renew(self, state: MessageQueueState) -> None:
        """Drop the pulled messages of a queue that are not polled yet, and restart its pulls."""
        state.process_queue.drop()
        state.cancel()
        state.process_queue = self._make(state.message_queue)
        self._begin(state)

    def pause(self, queues: Iterable[MessageQueue], paused: bool) -> None:
        """Stop or go on pulling those of the queues that are ours."""
        for queue in queues:
            state = self._states.get(queue)
            if state is not None:
                state.paused = paused
