"""The rebalances of one client's groups: every 20 s, and on notice.

One for each client, for all its groups, as in RocketMQ. A round that did not come out is repeated
after a second; two rounds are never closer than that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

SECONDS = 20.0  # rocketmq.client.rebalance.waitInterval; the only one in 4.9 and in texts
MIN_SECONDS = 1.0  # rocketmq.client.rebalance.minInterval, of 5.3: while a queue is not taken yet
MISSING_TOPIC_SECONDS = 1.0  # until the next request for a route that was missing


class RebalanceService:
    """Calls `round`, which returns the seconds until its next call."""

    def __init__(self, round_: Callable[[], Awaitable[float]]) -> None:
        self._round = round_
        self._notice = asyncio.Event()

    def soon(self) -> None:
        """Rebalance soon, because something has changed."""
        self._notice.set()

    async def run(self) -> None:
        """Go round until cancelled."""
        time = asyncio.get_running_loop().time
        wait, last = SECONDS, time() - MIN_SECONDS
        while True:
            try:
                async with asyncio.timeout(wait):
                    await self._notice.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(last + MIN_SECONDS - time())
            self._notice.clear()
            last = time()
            try:
                wait = await self._round()
            except Exception:
                wait = MIN_SECONDS
                log.exception("a rebalance failed; next try in %g s", wait)
