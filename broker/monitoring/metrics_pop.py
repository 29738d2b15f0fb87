"""Pop's numbers, by the names of RocketMQ's PopMetricsManager."""

from collections.abc import Iterator

from ..pop.counters import PUT_OK
from ..roles.parts import Parts
from .metrics_labels import NODE, Family, Node, spread

REVIVE = (*NODE, "consumer_group", "topic")


def pop_families(broker: Parts, node: Node) -> Iterator[Family]:
    pop, meters = broker.pop, broker.pop.meters
    numbers = [
        (
            *("rocketmq_pop_offset_buffer_size", "Check points that no group's offset has passed"),
            pop.buffer.in_lines,
        ),
        (
            *("rocketmq_pop_checkpoint_buffer_size", "Check points of pop in memory alone"),
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
        *("rocketmq_pop_buffer_scan_time_consume_milliseconds", "histogram"),
        *("A sweep through the check points in memory, ms", NODE, [(node, spread(meters.scans))]),
    )
    yield (
        *("rocketmq_pop_revive_in_message_total", "counter", "Entries put into the revive topic"),
        (*REVIVE, "revive_message_type", "put_status"),
        (
            ((*node, group, topic, kind, PUT_OK), count)
            for (group, topic, kind), count in list(meters.revive_in.items())
        ),
    )
    yield (
        *("rocketmq_pop_revive_out_message_total", "counter", "Entries read of the revive topic"),
        (*REVIVE, "queue_id", "revive_message_type"),
        (
            ((*node, group, topic, str(queue_id), kind), count)
            for (group, topic, queue_id, kind), count in list(meters.revive_out.items())
        ),
    )
    yield (
        *("rocketmq_pop_revive_retry_messages_total", "counter", "Messages put to be popped again"),
        (*REVIVE, "put_status"),
        (
            ((*node, group, topic, PUT_OK), count)
            for (group, topic), count in list(meters.retries.items())
        ),
    )
