"""Topics that only the log knows: a slave may be promoted before it has copied a new topic."""

from collections.abc import Iterable

from ...protocol.bodies.topic import TopicConfig
from ..topics.topics import QUEUES_MAX, READ_WRITE, Topics


def add_missing(topics: Topics, queues: Iterable[tuple[str, int]]) -> list[str]:
    """Create the topics of these queues (topic, queue id) that the table lacks; their names."""
    counts: dict[str, int] = {}
    for topic, queue_id in queues:
        if topics.get(topic) is None and queue_id < QUEUES_MAX:
            counts[topic] = max(counts.get(topic, 0), queue_id + 1)
    if counts:
        topics.put_all(
            [TopicConfig(name, count, count, READ_WRITE) for name, count in sorted(counts.items())]
        )
    return sorted(counts)
