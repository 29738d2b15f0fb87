"""The request table: every request that this broker serves, in one place.

Dispatch, access checks, the README's list and the completeness test all read it. A request that is
not here is answered REQUEST_CODE_NOT_SUPPORTED.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..protocol import codes
from ..protocol.aio.connection import Row
from ..protocol.aio.server import table
from ..protocol.message_id import UniqueIds
from .handlers.clients import ClientHandlers
from .handlers.offsets import OffsetHandlers
from .handlers.pull import PullHandlers
from .handlers.retries import RetryHandlers
from .handlers.send import SendHandlers

if TYPE_CHECKING:
    from .server import Broker

# What the fast port doesn't serve: readers must not hold up the senders that it is for.
SLOW = {
    codes.PULL_MESSAGE,
    codes.LITE_PULL_MESSAGE,
    codes.PEEK_MESSAGE,
    codes.POP_MESSAGE,
    codes.NOTIFICATION,
    codes.POLLING_INFO,
}


def full_table(broker: "Broker", pulls: PullHandlers) -> dict[int, Row]:
    """The rows of the listen port by code."""
    b = broker
    syncer = b.syncer if b.config.flush_disk_type == "SYNC_FLUSH" else None
    ids = UniqueIds(b.store.host, b.now_ms)
    sends = SendHandlers(b.config, b.store, b.topics, b.groups, b.delays, b.holds, syncer, ids)
    families = (
        sends,
        pulls,
        RetryHandlers(b.config, b.store, b.topics, b.groups, b.delays),
        OffsetHandlers(b.store, b.topics, b.groups, b.offsets),
        ClientHandlers(b.topics, b.groups, b.clients, b.now_ms),
    )
    return table(row for family in families for row in family.rows())


def fast_table(rows: Mapping[int, Row]) -> dict[int, Row]:
    """The rows of the fast port by code."""
    return {code: row for code, row in rows.items() if code not in SLOW}
