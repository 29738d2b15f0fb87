"""A reader of queues that are lists in memory; it answers as a broker does.

It stands for both readers of the client: bounds are asked for without a loop, pulls within one.
"""

from aerobee.client.blocking import MessageQueue, Pulled
from aerobee.protocol import codes

from .stored import stored


class FakeReader:
    """`held` gives for each queue (topic, broker, id) the offsets that are there."""

    def __init__(self, held: dict[tuple[str, str, int], range], given_max: int = 32) -> None:
        self.held = {MessageQueue(*queue): offsets for queue, offsets in held.items()}
        self.given_max = given_max
        self.pulls: list[tuple[int, int]] = []
        self.is_open = False

    def queues(self, topic: str) -> list[MessageQueue]:
        return sorted(queue for queue in self.held if queue.topic == topic)

    def min_offset(self, queue: MessageQueue) -> int:
        return self.held[queue].start

    def max_offset(self, queue: MessageQueue) -> int:
        return self.held[queue].stop

    def topics(self) -> list[str]:
        return sorted({queue.topic for queue in self.held})

    def offset_at(self, queue: MessageQueue, ms: int) -> int:
        """Message n was stored at 1000 + n."""
        held = self.held[queue]
        return min(held.stop, max(held.start, ms - 1000))

    async def start(self) -> None:
        self.is_open = True

    async def close(self) -> None:
        self.is_open = False

    async def pull(
        self, queue: MessageQueue, offset: int, max_messages: int = 32, *, bulk: bool = False
    ) -> Pulled:
        assert self.is_open
        self.pulls.append((offset, max_messages))
        low, high = self.held[queue].start, self.held[queue].stop
        if offset < low:
            return Pulled(codes.PULL_OFFSET_MOVED, low, low, high, b"")
        if offset >= high:
            return Pulled(codes.PULL_NOT_FOUND, offset, low, high, b"")
        end = min(high, offset + min(max_messages, self.given_max))
        body = b"".join(
            stored(each, b"%d" % each, topic=queue.topic, queue_id=queue.queue_id)
            for each in range(offset, end)
        )
        return Pulled(codes.SUCCESS, end, low, high, body)


class FakePuller(FakeReader):
    """The same with `queues` of the reader on asyncio."""

    async def queues(self, topic: str) -> list[MessageQueue]:  # type: ignore[override]
        return super().queues(topic)
