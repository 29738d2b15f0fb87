"""The parts of pop: made, loaded, run periodically and closed together."""

import logging
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from ...protocol.errors import Refusal
from ...store.base.errors import StoreError
from ...store.engine.store import MessageStore
from ..filters.filters import Filters
from ..groups.clients import Clients
from ..groups.groups import Groups
from ..groups.offsets import Offsets
from ..groups.permissions import Permissions
from ..naming.topic_queues import TopicQueues
from ..pull.long_polls import LongPolls, QueueKey
from ..runtime.spans import Spans
from ..runtime.stats import Stats
from ..scheduled.delivery_policy import DeliveryPolicy
from ..scheduled.timers import Timers
from ..settings.config import BrokerConfig
from ..topics.topics import Topics
from .ack_handlers import PopAckHandlers
from .assignment_handlers import AssignmentHandlers
from .buffer import PopBuffer
from .counters import PopMeters
from .handlers import PopHandlers
from .orders import PopOrders
from .peek import Peeks
from .request_modes import RequestModes
from .revive import PopRevive
from .revive_log import PopLog
from .take import Pops

log = logging.getLogger(__name__)


class PopParts:
    """All parts of pop. `folder` has the configuration files; `wake((topic, queue))` reports a new
    message. Without timers (timerWheelEnable=false) every pop is refused."""

    def __init__(
        self,
        folder: Path,
        config: BrokerConfig,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        permissions: Permissions,
        offsets: Offsets,
        clients: Clients,
        filters: Filters,
        stats: Stats,
        delivery_policy: DeliveryPolicy,
        timers: Timers | None,
        long_polls: LongPolls,
        wake: Callable[[QueueKey], None],
        now_ms: Callable[[], int],
        client_ms: Callable[[], int],
        spans: Spans | None,
    ) -> None:
        self._store = store
        self._now_ms = now_ms
        self.orders = PopOrders(folder / "consumerOrderInfo.json", topics, groups, now_ms)
        self.meters = meters = PopMeters()
        revive_log = PopLog(config, store, delivery_policy, meters, now_ms)
        self.buffer = PopBuffer(config, store, offsets, revive_log)
        self.revive = PopRevive(
            config, store, topics, groups, offsets, timers, revive_log, stats, meters, wake, now_ms
        )
        self.modes = RequestModes(folder / "messageRequestMode.json")
        self._queues = TopicQueues(config, topics, now_ms)
        pops = Pops(config, store, topics, offsets, self.buffer, self.orders, stats, meters)
        peeks = Peeks(config, store, topics, self.buffer, stats)
        self.handlers = PopHandlers(
            config,
            topics,
            permissions,
            filters,
            pops,
            peeks,
            long_polls,
            wake,
            now_ms,
            client_ms,
            spans,
        )
        self.families = (
            self.handlers,
            PopAckHandlers(
                config,
                store,
                topics,
                groups,
                offsets,
                self.buffer,
                self.orders,
                revive_log,
                stats,
                meters,
                self.handlers.wake,
                now_ms,
            ),
            AssignmentHandlers(config, topics, groups, clients, self.modes, self._queues),
        )

    def load(self) -> None:
        """Read the files; ValueError naming one that can't be read."""
        self.modes.load()
        self.orders.load()

    def sweep(self) -> None:
        """Periodic work: responses to expired requests, check points that stayed too long."""
        now_ms = self._now_ms()
        began = perf_counter()
        self.buffer.sweep(now_ms)
        self.meters.scans.record(int((perf_counter() - began) * 1_000))
        for key in self.orders.freed(now_ms):
            self.handlers.wake(*key)
        self.handlers.sweep(now_ms)

    async def close(self) -> None:
        """Write everything that is only in memory."""
        await self._queues.stop()
        try:
            self.buffer.write_all()
            plan = self._store.sync_plan()
            if plan is not None:
                plan.run()
                self._store.synced(plan)
        except (StoreError, Refusal, OSError) as wrong:
            log.warning("what was popped last will be popped again: %s", wrong)
        self.buffer.advance()
        self.revive.advance()
