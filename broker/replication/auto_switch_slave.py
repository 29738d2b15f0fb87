"""The slave's end of AutoSwitch replication: it cuts its log where the master's parts from it.

Connected, it says its controller id, gets the epochs of the master's log, and looks for the newest
epoch that both know. What this log has behind the end of that epoch is copied to the folder `cut`
and goes. Then the slave follows the master's log as one of the classic protocol does.
"""

from collections.abc import Callable, Iterable

from ...store.engine.following import Key
from ...store.engine.store import MessageStore
from ..settings.config import BrokerConfig


class AutoSwitchSlave:
    """Follows the master whose address for replication, host:port, is `master_ha_address`; "" while
    it is not known, `set_master` tells it later."""

    def __init__(
        self,
        store: MessageStore,
        *,
        broker_id: int,
        master_ha_address: str,
        config: BrokerConfig,
        now_ms: Callable[[], int],
        on_messages: Callable[[Iterable[Key]], None] = lambda keys: None,
        on_cut: Callable[[int], None] = lambda offset: None,
    ) -> None:
        """The store must follow already (`store.follower.follow`), and be in controller mode.

        `broker_id` is the controller id of this broker. `now_ms` is the wall clock: its times are
        shown. `on_messages` gets the queues with new messages, after they are readable.
        `on_cut(offset)` is called after the log was cut at `offset`: tables with places in the log
        or in queues must drop what lies behind it.
        """

    async def start(self) -> None:
        """Begin to follow, in the loop that runs."""

    async def stop(self) -> None:
        """Leave the master. The log stays, up to the last whole message."""
