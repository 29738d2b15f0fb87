"""Selection of the queue for a message: round-robin, or by a key.

A selector is an ordinary function of the topic's queues, the message and an argument, and returns
one of the queues. While the queues are the same, an argument selects the same queue as in Java.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

from ...protocol.bodies.body import MessageQueue
from ...protocol.message.tags import string_hash
from ..base.latency import LatencyFaults
from ..base.message import Message

Selector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]


class RoundRobin:
    """Iterates over a topic's queues, from a random start."""

    def __init__(self) -> None:
        self.count = random.randrange(1 << 31)  # noqa: S311

    def next(
        self,
        queues: Sequence[MessageQueue],
        avoid: str | None = None,
        faults: LatencyFaults | None = None,
    ) -> MessageQueue:
        """The next queue, not on the broker `avoid` if there is a choice.

        With `faults`, if there is a choice, a queue whose broker is available now, else one whose
        broker is reachable.
        """
        if faults is not None:
            for fits in (faults.is_available, faults.is_reachable):
                for _ in range(len(queues)):
                    self.count += 1
                    queue = queues[self.count % len(queues)]
                    if queue.broker_name != avoid and fits(queue.broker_name):
                        return queue
        for _ in range(len(queues)):
            self.count += 1
            queue = queues[self.count % len(queues)]
            if queue.broker_name != avoid:
                break
        return queue


def by_hash(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    """SelectMessageQueueByHash: by the Java hash of a text or a whole number."""
    code = _java_hash(arg)
    # Java's % keeps the sign of the dividend, and abs comes after it.
    return queues[abs(code) % len(queues)]


def by_random(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
    """SelectMessageQueueByRandom."""
    return random.choice(queues)  # noqa: S311


def _java_hash(value: object) -> int:
    if isinstance(value, bool):
        return 1231 if value else 1237
    if isinstance(value, int):
        if -(1 << 31) <= value < 1 << 31:
            return value  # Integer
        folded = (value ^ (value >> 32)) & 0xFFFFFFFF  # Long
        return folded - (1 << 32) if folded >= 1 << 31 else folded
    return string_hash(str(value))
