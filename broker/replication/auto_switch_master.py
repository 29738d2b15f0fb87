"""The master's end of AutoSwitch replication: slaves are known by their controller ids.

A slave says who it is, gets the epochs of this log, cuts its own log where the two part, and then
gets the rest. An acknowledgement waits for every member of the sync state set. Who is a member is
the controller's decision: this end proposes who has caught up or fallen behind.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from ...store.engine.store import MessageStore
from ..settings.config import BrokerConfig
from .sync_state import SyncState

Alter = Callable[[frozenset[int]], Awaitable[None]]
# The replicas of this broker name by controller id, each with its address "host:port".
Replicas = Callable[[], Mapping[int, str]]


class AutoSwitchMaster:
    """The slaves of this broker in controller mode, and the sync state set.

    `confirm_offset` in `state` moves as they report.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        broker_id: int,
        master_epoch: int,
        state: SyncState,
        alter: Alter,
        config: BrokerConfig,
        server: asyncio.Server,
        now_ms: Callable[[], int],
        replicas: Replicas | None = None,
        all_ack: bool = True,
        on_confirmed: Callable[[int], None] = lambda end: None,
    ) -> None:
        """`broker_id` is the controller id of this broker, `master_epoch` its epoch as the master.

        `alter(set)` asks the controller for this sync state set (1001), with the `set_epoch` of
        `state`. It returns when the controller has answered, and raises when there was no answer.
        `apply` tells the answer; `alter` may call it. Until then the proposed set counts as well.
        `server` listens and makes a `connection` for each slave; `start` lets it accept them.
        `now_ms` is a clock for timeouts, not for messages. `replicas` are the replicas that the
        controller knows: other ids are refused; without it any id is taken. `all_ack` is
        allAckInSyncStateSet. `on_confirmed(end)` is called when the log is confirmed up to another
        end: messages before it may be acknowledged and read.
        """

    async def start(self) -> None:
        """Begin the epoch in the store, let slaves in, and send what is due from time to time.

        DamagedStore when the store has a newer epoch than `master_epoch`.
        """

    async def stop(self) -> None:
        """Let the slaves have the rest of the log, for a while, and close the connections."""

    def apply(self, members: Iterable[int], set_epoch: int) -> None:
        """The controller says that the sync state set is this one. An older `set_epoch` than the
        last one changes nothing."""

    async def wait_for(self, offset: int, timeout_ms: int) -> bool:
        """Wait until the log is confirmed up to `offset`; False when that takes longer."""
        return False
