"""Memory for what the log will fill next, found by another thread.

The first write to a part of a file has to wait until the system has found memory for it, which on a
virtual machine may take several times as long as the copying. Only senders of much feel that: the
thread is there once a megabyte has come.
"""

from concurrent.futures import Future, ThreadPoolExecutor

from ..store.segment import Segment


class LogAhead:
    """`CommitLog.on_growth` of a broker. While the thread works nothing more is asked of it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="aerobee-ahead")
        self._work: Future[None] | None = None

    def ask(self, segment: Segment, at: int, size: int) -> None:
        """These bytes of a file of the log will be written soon."""
        if self._work is None or self._work.done():
            self._work = self._thread.submit(segment.will_need, at, size)

    async def stop(self) -> None:
        """Wait for what is at work."""
        self._thread.shutdown()
