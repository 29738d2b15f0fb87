"""What the console measured, as metrics: also of groups that are offline on a Java broker, whose
own metrics leave them out.

A figure that is not known has no sample. The label `watched` is the name that the operator gave the
cluster.
"""

import asyncio
from collections.abc import Iterator

from ...protocol.names import DLQ_PREFIX
from ..exposition import Family, exposition
from .clusters import Clusters
from .collector import Collector
from .samples import GroupRow

STEPS_AT_ONCE = 20
GROUP = ("watched", "consumer_group")
PAIR = ("watched", "topic", "consumer_group", "is_retry")
BROKER = ("watched", "cluster", "broker", "broker_id", "address")

Sample = tuple[tuple[str, ...], float] | None


async def metrics_text(clusters: Clusters) -> list[bytes]:
    """The text for Prometheus in chunks, made in steps between which pages are served."""
    steps, number = exposition(families(clusters)), 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return list(end.value)
        number += 1
        if number % STEPS_AT_ONCE == 0:
            await asyncio.sleep(0)


def families(clusters: Clusters) -> Iterator[Family]:
    """Every metric, with the samples of now; None between groups, so that pages go first."""
    watched = [(name, one.collector) for name, one in clusters.by_name.items()]
    yield from _brokers(watched)
    for name, text, figure in (
        ("lag_messages", "Messages that a group has not consumed", "lag"),
        ("lag_milliseconds", "Age of the first of them, ms", "lag_ms"),
    ):
        yield f"aerobee_console_group_{name}", "gauge", text, PAIR, _pairs(watched, figure)
    yield (
        "aerobee_console_group_members",
        "gauge",
        "Members that are connected",
        GROUP,
        _groups(watched, "members"),
    )
    yield (
        "aerobee_console_group_dead_letters",
        "gauge",
        "Messages among the dead letters",
        GROUP,
        _dead_letters(watched),
    )
    yield (
        "aerobee_console_group_subscriptions_differ",
        "gauge",
        "1 for a group whose members subscribe differently",
        GROUP,
        _differing(watched),
    )


def _brokers(watched: list[tuple[str, Collector]]) -> Iterator[Family]:
    def rows(figure: str) -> Iterator[Sample]:
        for name, collector in watched:
            for one in list(collector.brokers.values()):
                labels = (name, one.cluster, one.name, str(one.broker_id), one.address)
                if figure == "up":
                    yield labels, int(one.wrong is None and one.at_ms is not None)
                elif figure == "disk" and one.disk_ratio is not None and one.disk_ratio >= 0:
                    yield labels, one.disk_ratio
                elif figure == "at" and one.at_ms is not None:
                    yield labels, one.at_ms / 1_000

    for name, text, figure in (
        ("up", "1 while the broker answers the console", "up"),
        ("disk_ratio", "The part of the log's disk that is used, 0 to 1", "disk"),
        ("sample_timestamp_seconds", "When the broker last answered", "at"),
    ):
        yield f"aerobee_console_broker_{name}", "gauge", text, BROKER, rows(figure)


def _rows(watched: list[tuple[str, Collector]]) -> Iterator[tuple[str, Collector, GroupRow]]:
    for name, collector in watched:
        for row in list(collector.groups().values()):
            yield name, collector, row


def _pairs(watched: list[tuple[str, Collector]], figure: str) -> Iterator[Sample]:
    for name, _, row in _rows(watched):
        for one in row.topics:
            value = getattr(one, figure)
            is_retry = "true" if one.is_retry else "false"
            yield value if value is None else ((name, one.topic, row.name, is_retry), value)
        yield None


def _groups(watched: list[tuple[str, Collector]], figure: str) -> Iterator[Sample]:
    for name, _, row in _rows(watched):
        value = getattr(row, figure)
        yield value if value is None else ((name, row.name), value)


def _dead_letters(watched: list[tuple[str, Collector]]) -> Iterator[Sample]:
    """A broker that tells no count has the messages of the group's dead letter topic."""
    for name, collector, row in _rows(watched):
        value = row.dead_letters
        if value is None and row.at_ms is not None and collector.is_whole:
            topic = collector.topics().get(DLQ_PREFIX + row.name)
            value = 0 if topic is None else topic.messages
        yield value if value is None else ((name, row.name), value)


def _differing(watched: list[tuple[str, Collector]]) -> Iterator[Sample]:
    for name, _, row in _rows(watched):
        yield ((name, row.name), 1) if row.differing else None
