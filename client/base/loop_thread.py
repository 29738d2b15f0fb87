"""An event loop in its own thread, for code that has none.

Any thread may submit work with `run` and waits for the result. The thread is a daemon, so a program
that does not close the client still exits.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from typing import Any, TypeVar

from ..errors import ClosedError

Result = TypeVar("Result")


class LoopThread:
    """Runs coroutines until `close`. Not usable after a fork."""

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def run(
        self, work: Coroutine[Any, Any, Result], *, signal_seconds: float | None = None
    ) -> Result:
        """The result of `work`, run on the loop; raises its exception.

        If the waiting thread is interrupted (Ctrl-C), the work is cancelled. With `signal_seconds`
        the thread wakes at this interval to handle signals that arrived just before it started
        waiting.
        """
        future = self.begin(work)
        try:
            while signal_seconds and not wait([future], signal_seconds).done:
                pass
            return future.result()
        except CancelledError:
            raise ClosedError("this client was closed while the call was waiting") from None
        except BaseException:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Schedule `work` on the loop without waiting for it."""
        if self._loop.is_closed() or os.getpid() != self._pid:
            work.close()
            reason = "is closed" if self._loop.is_closed() else "was made before a fork"
            raise ClosedError(f"this client {reason}; make a new one")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Callable[[], None]) -> None:
        """Schedule a function on the loop, in call order, without waiting for it."""
        if os.getpid() != self._pid:
            raise ClosedError("this client was made before a fork; make a new one")
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            raise ClosedError("this client is closed; make a new one") from None

    def close(self) -> None:
        """Cancel running tasks, stop the loop and its thread. One thread at a time may call
        this."""
        if self._loop.is_closed() or os.getpid() != self._pid:
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        if task is not None:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
