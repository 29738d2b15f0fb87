"""The numbers of the store, the timers and pop, by the names of RocketMQ's
DefaultStoreMetricsManager and PopMetricsManager."""

import shutil
from collections.abc import Iterator

from ...protocol.message.record import store_ms_of
from ..pop.counters import PUT_OK
from ..roles.parts import Parts
from .metrics_labels import NODE, Family, Node, spread

STORAGE = (*NODE, "storage_type", "storage_medium")
WHEEL_SECONDS_PER_STEP = 3_600  # counted in one step
TIMER_BOUNDS_S = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)


def storage_families(broker: Parts, node: Node) -> Iterator[Family]:
    store, labels = broker.store, (*node, "local", "disk")
    numbers = [
        # Of the whole disk, as RocketMQ has it.
        ("rocketmq_storage_size_bytes", "Disk in use", shutil.disk_usage(broker.root).used),
        (
            "rocketmq_storage_flush_behind_bytes",
            "Not yet on the disk, bytes",
            max(0, store.log_end - store.durable_end),
        ),
        (
            # Queues are written with the log; a slave's with each whole message.
            "rocketmq_storage_dispatch_behind_bytes",
            "Not yet in the queues, bytes",
            store.log_end - store.whole_end,
        ),
    ]
    first = store.message_at(store.log_start)
    if first is not None:
        name = "rocketmq_storage_message_reserve_time_milliseconds"
        numbers.append((name, "Age of the first message", broker.now_ms() - store_ms_of(first)))
    for name, text, value in numbers:
        yield name, "gauge", text, STORAGE, [(labels, value)]


def timer_families(broker: Parts, node: Node) -> Iterator[Family]:
    timers = broker.timers
    if timers is None:
        return
    labels, now_ms, meters = (*node, "local", "disk"), broker.now_ms(), timers.meters
    lag = timers.lag(now_ms)
    numbers = [
        ("rocketmq_timer_enqueue_lag", "Messages not yet in the wheel", lag.enqueue),
        ("rocketmq_timer_enqueue_latency_milliseconds", "Age of the first of them", lag.enqueue_ms),
        ("rocketmq_timer_dequeue_lag", "Messages in the wheel", lag.dequeue),
        (
            "rocketmq_timer_dequeue_latency_milliseconds",
            "How late the due ones are",
            lag.dequeue_ms,
        ),
    ]
    for name, text, value in numbers:
        yield name, "gauge", text, STORAGE, [(labels, value)]
    topics = (*STORAGE, "topic")
    counts = list(timers.metrics.counts.items())
    yield (
        "rocketmq_timing_messages",
        "gauge",
        "Messages that wait",
        topics,
        (((*labels, topic), one.count) for topic, one in counts),
    )
    for name, text, table in (
        ("rocketmq_timer_enqueue_total", "Messages that came into the wheel", meters.enqueued),
        ("rocketmq_timer_dequeue_total", "Messages that came out of it", meters.dequeued),
    ):
        found = list(table.items())
        yield name, "counter", text, topics, (((*labels, topic), count) for topic, count in found)
    text = "How far ahead of its time a message came in, s"
    delays = list(meters.delays.items())
    yield (
        "rocketmq_delay_message_latency_seconds",
        "histogram",
        text,
        topics,
        (((*labels, topic), spread(delay)) for topic, delay in delays),
    )

    def snapshot() -> Iterator[tuple[Node, float] | None]:
        at_s = 0
        for bound_s in TIMER_BOUNDS_S:
            number = 0
            while at_s < bound_s:
                end_s = min(at_s + WHEEL_SECONDS_PER_STEP, bound_s)
                span_ms = now_ms + at_s * 1_000, now_ms + end_s * 1_000
                number += timers.state.wheel.count(*span_ms)
                at_s = end_s
                yield None
            yield (*labels, str(bound_s)), number

    yield (
        "rocketmq_timer_message_snapshot",
        "gauge",
        "Messages that wait, by when they are due",
        (*STORAGE, "timer_bound_s"),
        snapshot(),
    )


REVIVE = (*NODE, "consumer_group", "topic")


def pop_families(broker: Parts, node: Node) -> Iterator[Family]:
    pop, meters = broker.pop, broker.pop.meters
    numbers = [
        (
            "rocketmq_pop_offset_buffer_size",
            "Check points that no group's offset has passed",
            pop.buffer.in_lines,
        ),
        (
            "rocketmq_pop_checkpoint_buffer_size",
            "Check points of pop in memory alone",
            pop.buffer.count,
        ),
    ]
    for name, text, value in numbers:
        yield name, "gauge", text, NODE, [(node, value)]
    queues = (*NODE, "queue_id")
    # As in RocketMQ the values are entries, whatever the name says.
    text = "Entries of the revive topic that are not done"
    behind = [((*node, str(number)), count) for number, count in enumerate(pop.revive.behind())]
    yield "rocketmq_pop_revive_lag_milliseconds", "gauge", text, queues, behind
    text = "Since when entries of the revive topic wait, ms"
    late = pop.revive.behind_ms(broker.now_ms())
    waits = [((*node, str(number)), ms) for number, ms in enumerate(late)]
    yield "rocketmq_pop_revive_latency_milliseconds", "gauge", text, queues, waits
    yield (
        "rocketmq_pop_buffer_scan_time_consume_milliseconds",
        "histogram",
        "A sweep through the check points in memory, ms",
        NODE,
        [(node, spread(meters.scans))],
    )
    yield (
        "rocketmq_pop_revive_in_message_total",
        "counter",
        "Entries put into the revive topic",
        (*REVIVE, "revive_message_type", "put_status"),
        (
            ((*node, group, topic, kind, PUT_OK), count)
            for (group, topic, kind), count in list(meters.revive_in.items())
        ),
    )
    yield (
        "rocketmq_pop_revive_out_message_total",
        "counter",
        "Entries read of the revive topic",
        (*REVIVE, "queue_id", "revive_message_type"),
        (
            ((*node, group, topic, str(queue_id), kind), count)
            for (group, topic, queue_id, kind), count in list(meters.revive_out.items())
        ),
    )
    yield (
        "rocketmq_pop_revive_retry_messages_total",
        "counter",
        "Messages put to be popped again",
        (*REVIVE, "put_status"),
        (
            ((*node, group, topic, PUT_OK), count)
            for (group, topic), count in list(meters.retries.items())
        ),
    )
