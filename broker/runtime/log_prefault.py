"""Prefault: has the system find memory for the next part of the log, in a thread, in idle time.

The first write to a page of a file waits until the system has found memory for it, which on a
virtual machine may take ten times as long as the copy. Under load a thread for it would take a core
from the senders; so it runs before, for the burst that follows a pause.
"""

import asyncio
from concurrent.futures import Executor

from ...store.engine.store import MessageStore

AHEAD_BYTES = 128 << 20  # of the log that have memory before they are written
STEP_BYTES = 8 << 20  # bytes per step
BUSY_BYTES = 1 << 20  # bytes since the last step that count as load
FIRST_BYTES = 1 << 20  # before the first step: a broker that hardly writes needs none


class LogPrefault:
    """Prefaults the log of this store. Call `step` ten times a second."""

    def __init__(self, store: MessageStore, thread: Executor) -> None:
        self._store = store
        self._thread = thread
        self._last = store.log_end
        self._first = store.log_end + FIRST_BYTES
        self._ahead = 0  # everything before this position is prefaulted

    async def step(self) -> None:
        """Prefault some more, unless the broker is under load or enough is ready."""
        end = self._store.log_end
        came, self._last = end - self._last, end
        start = max(self._ahead, end)
        if end < self._first or came > BUSY_BYTES or start + STEP_BYTES > end + AHEAD_BYTES:
            return
        found = self._store.ahead(start, STEP_BYTES)
        if found is not None:
            find_memory, self._ahead = found
            await asyncio.get_running_loop().run_in_executor(self._thread, find_memory)

    async def stop(self) -> None:
        """Wait for the step in the thread."""
        self._thread.shutdown()
