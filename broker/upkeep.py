"""The table of a broker's periodic work.

Work that only one role has, such as a master's deliveries, is in the `jobs` of the role. What waits
for other servers has a task of its own: the registration, a slave's copying, an acting master.
"""

from collections.abc import Generator, Iterator

from .roles.parts import Parts
from .runtime import key_indexing
from .runtime.periodic import STEP_SECONDS, Cut, Job

SWEEP_SECONDS = 1.0  # how late a parked pull may be answered
EXPIRE_SECONDS = 10.0
AHEAD_SECONDS = 0.1  # how long the load must have been low before the log is prefaulted
CHECKPOINT_SECONDS = 1.0
TABLE_SECONDS = 1.0  # how long the files of topics and groups may be behind their journals
DELAY_SECONDS = 0.1  # how late the timeout of a send that waits for the disk may be
STATS_SECONDS = 10.0
FILTERS_SECONDS = 10.0
POP_SECONDS = 0.05  # how late a parked pop may be answered
POP_TIDY_SECONDS = 10.0
HA_SECONDS = 0.1  # how late a slave may get bytes that no loop iteration has sent


def jobs(b: Parts) -> Iterator[Job]:
    """The periodic work of a started broker."""
    config, saving = b.config, b.saving
    yield Job(SWEEP_SECONDS, lambda: b.long_polls.sweep_in_parts(b.now_ms()), Cut.PARTS)
    yield Job(SWEEP_SECONDS, b.pulls.cold.sweep)
    yield Job(DELAY_SECONDS, b.syncer.sweep)
    yield Job(EXPIRE_SECONDS, lambda: b.slices.run(_expire_clients(b)))
    yield Job(key_indexing.PERIOD_SECONDS, b.key_indexing.run)
    yield Job(AHEAD_SECONDS, b.log_ahead.step)
    yield Job(CHECKPOINT_SECONDS, b.store.save_checkpoint)
    yield Job(config.clean_resource_interval / 1000, b.cleaner.run)
    yield Job(TABLE_SECONDS, saving.save_journaled)
    yield Job(config.flush_consumer_offset_interval / 1000, b.save_offsets)
    yield Job(config.flush_delay_offset_interval / 1000, lambda: saving.save(b.delays))
    yield Job(FILTERS_SECONDS, lambda: _save_filters(b))
    if b.timers is not None:
        yield Job(STEP_SECONDS, lambda most: _step_timers(b, most), Cut.STEPS)
        yield Job(config.timer_flush_interval_ms / 1000, b.sync_timers)
    yield Job(POP_SECONDS, b.pop.sweep)
    yield Job(POP_TIDY_SECONDS, b.pop.handlers.tidy)
    yield Job(POP_TIDY_SECONDS, lambda: saving.save(b.pop.orders))
    yield from b.role.jobs()
    yield Job(STATS_SECONDS, lambda: b.stats.sample_in_parts(b.now_ms()), Cut.PARTS)
    yield Job(HA_SECONDS, b.ha.sweep)


def _step_timers(b: Parts, most: int) -> bool:
    may = b.role.may_deliver() and b.role.reads_all()
    return may and b.timers is not None and b.timers.step(b.now_ms(), most)


async def _save_filters(b: Parts) -> None:
    b.filters.clean(b.now_ms())
    await b.saving.save(b.filters)


def _expire_clients(b: Parts) -> Generator[None, None, None]:
    """Close the connections of clients that were silent for too long."""
    before_ms = b.alive_ms() - b.config.channel_expired_timeout
    for connection in b.clients.expire(before_ms):
        if connection is not None:
            connection.close()
        yield
