"""A range of a queue's messages, and the error for a part of it that is gone."""

from dataclasses import dataclass

from ...client.cluster.route import MessageQueue


class DataLossError(Exception):
    """Messages in the planned range are no longer in the queue."""


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The messages of one queue from offset `start` on, up to and without `end`."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return (
            f"offsets {self.start} to {self.end} of queue {self.queue_id} of topic {self.topic} "
            f"on {self.broker_name}"
        )

    @property
    def queue(self) -> MessageQueue:
        """The queue as the client names it."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)
