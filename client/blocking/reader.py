"""Reading queues by hand without an event loop; see `client.reader`."""

from collections.abc import Iterable
from typing import Any

from ..cluster.route import MessageQueue
from ..pull import reader as _reader
from ..pull.reader import Pulled
from .sync_wrapper import Blocking


class Reader(Blocking[_reader.Reader]):
    """Reads queues by hand: bounds, offsets by time, pulls at an offset the caller chooses.

        with Reader("127.0.0.1:9876", group="spark") as reader:
            for queue in reader.queues("orders"):
                pulled = reader.pull(queue, reader.min_offset(queue))

    It joins no group. The arguments are those of `client.reader.Reader`.
    """

    def __init__(self, name_server: str | Iterable[str] | None = None, **options: Any) -> None:
        super().__init__("aerobee-reader", lambda: _reader.Reader(name_server, **options))

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return self._run(self._client.topics())

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Set the group's offset in a queue, for tools that show its lag."""
        self._run(self._client.commit(queue, offset))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of `topic` as they are now, sorted; NoRouteError when unknown."""
        return self._run(self._client.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        return self._run(self._client.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return self._run(self._client.max_offset(queue))

    def offset_at(self, queue: MessageQueue, ms: int) -> int:
        """The offset of the first message stored at `ms` (since the epoch) or later."""
        return self._run(self._client.offset_at(queue, ms))

    def pull(
        self, queue: MessageQueue, offset: int, max_messages: int = 32, *, bulk: bool = False
    ) -> Pulled:
        """The messages from `offset` on, at once also when there are none; see `Pulled`."""
        return self._run(self._client.pull(queue, offset, max_messages, bulk=bulk))
