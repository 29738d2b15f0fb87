"""Memory for what the log will fill next, found by another thread while little comes.

The first write to a part of a file waits until the system has found memory for it, which on a
virtual machine may take ten times as long as the copying. While much comes a thread that did it
would take a core from those who send; so it is done before, for the burst that comes after a pause.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from ...store.engine.store import MessageStore

AHEAD_BYTES = 128 << 20  # of the log that have memory before they are written
STEP_BYTES = 8 << 20  # so many more at a time
BUSY_BYTES = 1 << 20  # much came, when so much did since the last time
FIRST_BYTES = 1 << 20  # not for who sends next to nothing


class LogPrefault:
    """Has the log of this store run into memory that is there. Call `step` ten times a second."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="aerobee-ahead")
        self._last = store.log_end
        self._first = store.log_end + FIRST_BYTES
        self._ahead = 0  # what lies before it has its memory

    async def step(self) -> None:
        """Find memory for some more of it, unless much comes or enough is there."""
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
        """Wait for what is at work."""
        self._thread.shutdown()
