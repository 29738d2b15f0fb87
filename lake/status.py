"""How far tables are, from their snapshots and the log: no running lake is asked."""

import time
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ..client.errors import AerobeeError
from .catalog import LakeCatalog
from .errors import LakeError
from .progress import NO_TOTALS, Totals, progress_of, queue_key, totals_of
from .rows.columns import BY_NAME
from .rows.ranges import DataLossError, QueueRange
from .table_schema import STORE_TIME
from .topic_log import TopicLog

SAMPLE = 32  # messages of a queue, for the bytes of the others
_SAMPLED = (BY_NAME[STORE_TIME], BY_NAME["value"])


@dataclass(slots=True)
class TableStatus:
    """One table. `lag_s` is the age in seconds of the oldest message that is not in it, `lag_bytes`
    about the bytes of all such bodies, by the oldest SAMPLE of each queue. `failure` is why more is
    not known."""

    topic: str
    table: str
    totals: Totals = NO_TOTALS
    lag_messages: int = 0
    lag_bytes: int = 0
    lag_s: float = 0.0
    failure: str = ""


def status(catalog: LakeCatalog, source: TopicLog, topic: str, name: str) -> TableStatus:
    """The status of the table `name` of a topic. Raises nothing that the catalog, the table or the
    brokers do: that is `failure`."""
    found = TableStatus(topic, catalog.full_name(name))
    try:
        metadata = catalog.load(name, topic).metadata
        progress = progress_of(metadata, found.table)
        found.totals = totals_of(metadata, progress)
        bounds, failures = source.bounds(topic)
        oldest_us = None
        for queue, each in bounds.items():
            at = max(progress.offsets.get(queue_key(queue), each.first), each.first)
            if at < each.end:
                found.lag_messages += each.end - at
                end = min(at + SAMPLE, each.end)
                wanted = QueueRange(topic, queue.broker_name, queue.queue_id, at, end)
                size = 0
                for batch in source.rows(wanted, _SAMPLED):
                    for time_us in batch.column(STORE_TIME).cast(pa.int64()).to_pylist():
                        oldest_us = min(time_us, oldest_us or time_us)
                    size += pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
                found.lag_bytes += size * (each.end - at) // (end - at)
        if oldest_us is not None:
            found.lag_s = max(0.0, time.time() - oldest_us / 1e6)
        found.failure = "; ".join(failures)
    except (LakeError, AerobeeError, DataLossError) as wrong:
        found.failure = str(wrong)
    return found
