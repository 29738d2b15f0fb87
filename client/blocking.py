"""The client for callers without an event loop; safe to use from several threads.

Each object runs its asyncio twin on a loop in a thread of its own (`LoopThread`) and waits for it.
"""

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from . import reader as _reader
from .loop_thread import LoopThread
from .reader import Pulled
from .route import MessageQueue

__all__ = ["MessageQueue", "Pulled", "Reader"]


class Reader:
    """Reads queues by hand: bounds, offsets by time, pulls at an offset the caller chooses.

        with Reader("127.0.0.1:9876", group="spark") as reader:
            for queue in reader.queues("orders"):
                pulled = reader.pull(queue, reader.min_offset(queue))

    It joins no group and commits nothing. Every method may raise the errors of `client.errors`.
    """

    def __init__(
        self, name_server: str | Iterable[str] | None = None, *, group: str = "TOOLS_CONSUMER"
    ) -> None:
        self._thread = LoopThread("aerobee-reader")
        self._twin = _reader.Reader(name_server, group=group)
        try:
            self._thread.run(self._twin.start())
        except BaseException:
            self._thread.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread. May be called twice."""
        try:
            if not self._thread.is_closed:
                self._thread.run(self._twin.close())
        finally:
            self._thread.close()

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of `topic` as they are now, sorted; NoRouteError when unknown."""
        return self._thread.run(self._twin.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        return self._thread.run(self._twin.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return self._thread.run(self._twin.max_offset(queue))

    def offset_at(self, queue: MessageQueue, ms: int) -> int:
        """The offset of the first message stored at `ms` (since the epoch) or later."""
        return self._thread.run(self._twin.offset_at(queue, ms))

    def pull(self, queue: MessageQueue, offset: int, max_messages: int = 32) -> Pulled:
        """The messages from `offset` on, at once also when there are none; see `Pulled`."""
        return self._thread.run(self._twin.pull(queue, offset, max_messages))
