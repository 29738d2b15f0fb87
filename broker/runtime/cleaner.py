"""Deletes old files of the store, without blocking the loop.

The store gives a round in steps (`store/engine/cleaning.py`). A thread runs the steps that wait for
the disk. The loop serves requests between two files. One round runs at a time, started by the timer
or by an administrator.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor

from ...store.engine.cleaning import Step
from ...store.engine.store import MessageStore

log = logging.getLogger(__name__)

BY_HAND_ROUNDS = (
    20  # rounds that delete expired files at any hour, after an administrator's request
)


class Cleaner:
    """The rounds of one store. `delete_expired` and `clean_queues` come back at once."""

    def __init__(self, store: MessageStore, thread: Executor) -> None:
        self._store = store
        self._thread = thread
        self._by_hand = 0
        self._one = asyncio.Lock()
        self._asked: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Do a round: check the disks, refuse or accept messages, delete files."""
        by_hand = self._by_hand > 0
        self._by_hand = max(0, self._by_hand - 1)
        await self._take(lambda: self._store.cleaner.clean(by_hand=by_hand))

    def delete_expired(self) -> None:
        """Let the expired files of the log go at any hour: in a round now and in later ones."""
        self._by_hand = BY_HAND_ROUNDS
        self._soon("expired files", self.run)

    def clean_queues(self) -> None:
        """Let the files of queues and index go that lead to nothing, now."""
        self._soon("queues", lambda: self._take(self._store.cleaner.clean_queues))

    async def finished(self) -> None:
        """Run the rounds that an administrator has requested, and wait for them."""
        await asyncio.gather(*self._asked.values())

    async def stop(self) -> None:
        """End the requested rounds; a file that has lost its name is deleted completely."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        self._thread.shutdown(wait=True)

    def _soon(self, what: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        if what in self._asked:
            return  # it is at it

        async def logged() -> None:
            try:
                await work()
            except Exception:
                log.exception("cleaning the %s by hand failed", what)
            finally:
                del self._asked[what]

        self._asked[what] = asyncio.create_task(logged())

    async def _take(self, round_of: Callable[[], Iterator[Step]]) -> None:
        loop = asyncio.get_running_loop()
        async with self._one:
            for step in round_of():
                if step.work is not None:
                    # Shielded: a step that has begun ends, also when the broker stops meanwhile.
                    await asyncio.shield(loop.run_in_executor(self._thread, step.work))
                await asyncio.sleep(step.pause_ms / 1000)
