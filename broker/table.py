"""The request table: every request that this broker serves, in one place.

Dispatch, access checks, the README's list and the completeness test all read it. A request that is
not here is answered REQUEST_CODE_NOT_SUPPORTED.
"""

from collections.abc import Mapping
from functools import partial

from ..protocol import codes
from ..protocol.aio.connection import Row
from ..protocol.aio.server import table
from .access.handlers import AdminAuthHandlers
from .admin.broker import AdminBrokerHandlers
from .admin.clients import AdminClientHandlers
from .admin.groups import AdminGroupHandlers
from .admin.offsets import AdminOffsetHandlers
from .admin.runtime_info import RuntimeInfo
from .admin.stats import AdminStatsHandlers
from .admin.topics import AdminTopicHandlers
from .groups.client_handlers import ClientHandlers
from .groups.lock_handlers import LockHandlers
from .groups.offset_handlers import OffsetHandlers
from .monitoring.overview import not_stored
from .monitoring.summaries import SummaryHandlers
from .pull.cold_data_handlers import AdminColdDataHandlers
from .pull.query_handlers import QueryHandlers
from .replication.admin_handlers import AdminHaHandlers
from .roles.parts import Parts
from .scheduled.timer_handlers import AdminTimerHandlers, RecallHandlers
from .send.reply_handlers import ReplyHandlers
from .send.retry_handlers import RetryHandlers
from .transactions.handlers import TransactionHandlers

# Not served by the fast port: readers must not hold up the senders that it is for.
SLOW = {
    codes.PULL_MESSAGE,
    codes.LITE_PULL_MESSAGE,
    codes.PEEK_MESSAGE,
    codes.POP_MESSAGE,
    codes.NOTIFICATION,
    codes.POLLING_INFO,
}


def full_table(broker: Parts) -> dict[int, Row]:
    """The rows of the listen port by code, without what stands before them (`access/gates`)."""
    b, pulls = broker, broker.pulls
    syncer = b.syncer.for_responses
    name, address = b.config.broker_name, b.address
    runtime = RuntimeInfo(
        b.config,
        b.store,
        b.stats,
        b.delays,
        b.timers,
        clients=b.clients,
        other_masters=b.other_masters,
        waiting_groups=b.waiting_groups,
        not_stored=partial(not_stored, b),
        started_ms=b.started_ms,
        now_ms=b.now_ms,
    )
    families = (
        b.sends,
        pulls,
        AdminTimerHandlers(b.timers, b.slices),
        RecallHandlers(b.config, b.store, b.permissions, b.delivery_policy, syncer, b.now_ms),
        RetryHandlers(b.store, b.topics, b.permissions, b.delays, b.stats),
        OffsetHandlers(b.store, b.topics, b.groups, b.offsets, b.forwarding),
        TransactionHandlers(
            b.config,
            b.store,
            b.delivery_policy,
            b.transactions,
            b.transaction_counts,
            b.stats,
            syncer,
            b.wake,
            b.now_ms,
        ),
        LockHandlers(b.locks, b.now_ms),
        ClientHandlers(b.config, b.topics, b.groups, b.clients, b.filters, b.alive_ms),
        QueryHandlers(b.config, b.store, b.clients, b.slices),
        ReplyHandlers(b.config, b.store, b.topics, b.clients, b.stats, b.wake, address, b.now_ms),
        *b.pop.families,
        AdminBrokerHandlers(
            b.config, b.store, b.topics, runtime, b.dynamic_settings, b.slices, b.cleaner
        ),
        AdminColdDataHandlers(pulls.cold, b.store, b.dynamic_settings),
        AdminTopicHandlers(
            b.config,
            b.store,
            b.topics,
            b.offsets,
            b.stats,
            b.slices,
            b.save_offsets,
            b.pop.meters.forget_topic,
        ),
        AdminGroupHandlers(
            b.groups, b.offsets, b.clients, b.stats, address, b.slices, b.pop.meters.forget_group
        ),
        AdminOffsetHandlers(
            b.config,
            b.store,
            b.topics,
            b.groups,
            b.offsets,
            b.clients,
            b.delays,
            b.wake,
            b.slices,
        ),
        AdminHaHandlers(b.ha, b.ha_slave),
        AdminAuthHandlers(b.access, has_lists=b.config.keeps_access_lists),
        AdminClientHandlers(b.store, b.topics, b.groups, b.clients, broker_name=name),
        AdminStatsHandlers(
            b.store,
            b.topics,
            b.groups,
            b.offsets,
            b.clients,
            b.stats,
            broker_name=name,
            address=address,
            now_ms=b.now_ms,
            slices=b.slices,
        ),
        SummaryHandlers(b),
    )
    return table(row for family in families for row in family.rows())


def fast_table(rows: Mapping[int, Row]) -> dict[int, Row]:
    """The rows of the fast port by code."""
    return {code: row for code, row in rows.items() if code not in SLOW}
