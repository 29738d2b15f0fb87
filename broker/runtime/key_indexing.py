"""The keys of new messages go into the index while there is time for it."""

from ...protocol.aio.scheduler import Scheduler
from ...protocol.aio.slices import OnePerTick
from ...store.engine.store import MessageStore

PERIOD_SECONDS = 0.05  # how long keys gather for the index
# Messages whose keys are added to the index in one loop iteration. 128 take 0.2 ms, a third more
# per key, and are for times with requests; 512 take 0.5 ms.
MESSAGES_MIN = 128
MESSAGES_MAX = 512
ARRIVED_TIMES = 8  # times the messages that arrived meanwhile, within these two limits
# Up to this many messages' keys wait for the end of a burst.
WAITING_MAX = 100_000


class KeyIndexing:
    """Adds keys to the index of `store`, in parts that run as `part` allows."""

    def __init__(self, store: MessageStore, scheduler: Scheduler, part: OnePerTick) -> None:
        self._store = store
        self._scheduler = scheduler
        self._part = part

    async def run(self) -> None:
        """Add what waits, in parts between which requests are served."""
        # Each part has a fixed cost, so a small remainder waits for the next round.
        store, scheduler = self._store, self._scheduler
        most = MESSAGES_MIN
        while not scheduler.is_shared or store.index_backlog > WAITING_MAX:
            async with self._part:
                if store.index_pending(most) < most:
                    break
                left = store.index_backlog
            came = store.index_backlog - left
            times = 0 if scheduler.is_shared else ARRIVED_TIMES
            # Add at least twice as many as arrive, so that the loop ends under load, too.
            most = max(MESSAGES_MIN, min(times * came, MESSAGES_MAX), 2 * came)
