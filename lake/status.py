"""How far tables are, from their snapshots and the log: no running lake is asked."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ..client.cluster.route import MessageQueue
from ..client.errors import AerobeeError
from .catalog import LakeCatalog, missing_columns
from .dead_letters import DeadLetters
from .errors import LakeError, NoTable
from .opening import name_of
from .progress import Progress, Totals, progress_of, queue_key, totals_of
from .rows.columns import BY_NAME
from .rows.ranges import DataLossError, QueueRange
from .settings import TableSettings
from .table_schema import STORE_TIME
from .topic_log import Bounds, TopicLog
from .union import TopicTable

NOT_YET = "its table is not made yet; aerobee lake run makes it within 30 s"
SAMPLE = 32  # messages of a queue, for the bytes of the others
_SAMPLED = (BY_NAME[STORE_TIME], BY_NAME["value"])


@dataclass(slots=True)
class TableStatus:
    """One table; None is what is not known.

    `lag_s` is the age in seconds of the oldest message that is not in it, `lag_bytes` about the
    bytes of all such bodies, by the oldest SAMPLE of each queue. `failure` is why more is not
    known, or why the table does not go on.
    """

    topic: str
    table: str
    totals: Totals | None = None
    lag_messages: int | None = None
    lag_bytes: int | None = None
    lag_s: float | None = None
    failure: str = ""


def status(
    catalog: LakeCatalog, source: TopicLog, topic: str, settings: TableSettings
) -> TableStatus:
    """The status of a topic's table. Raises nothing that the catalog, the table or the brokers do:
    that is `failure`."""
    name = name_of(topic, settings)
    found = TableStatus(topic, catalog.full_name(name))
    try:
        table = catalog.load(name, topic)
        progress = progress_of(table.metadata, found.table)
        found.totals = totals_of(table.metadata, progress)
        missing_columns(table, found.table, settings.fields)
        if settings.fields:
            DeadLetters(catalog, topic, name).files(table)
        bounds, failures = source.bounds(topic)
        _lag(found, progress, bounds, source)
        if failures:
            raise LakeError("; ".join(failures))
        skips = settings.on_gone == "skip"
        # Refuses a log that does not go on where the table ends.
        TopicTable(table, source, topic, skips_gone=skips).ranges_in(bounds)
    except NoTable as wrong:
        found.failure = NOT_YET if settings.pattern else str(wrong)
    except (LakeError, AerobeeError, DataLossError) as wrong:
        found.failure = str(wrong)
    return found


def _lag(
    found: TableStatus,
    progress: Progress,
    bounds: Mapping[MessageQueue, Bounds],
    source: TopicLog,
) -> None:
    messages = size = 0
    oldest_us = None
    for queue, each in bounds.items():
        at = max(progress.offsets.get(queue_key(queue), each.first), each.first)
        if at >= each.end:
            continue
        end = min(at + SAMPLE, each.end)
        sampled = 0
        wanted = QueueRange(queue.topic, queue.broker_name, queue.queue_id, at, end)
        for batch in source.rows(wanted, _SAMPLED):
            for time_us in batch.column(STORE_TIME).cast(pa.int64()).to_pylist():
                oldest_us = min(time_us, oldest_us or time_us)
            sampled += pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
        messages += each.end - at
        size += sampled * (each.end - at) // (end - at)
    found.lag_messages, found.lag_bytes = messages, size
    found.lag_s = 0.0 if oldest_us is None else max(0.0, time.time() - oldest_us / 1e6)
