"""The labels that RocketMQ's metrics have in common, and the form of a metric."""

from collections.abc import Iterable, Sequence

from ...protocol.histogram import Histogram
from ...protocol.names import SYSTEM_GROUP_PREFIX, is_system_topic

# The upper bounds of a histogram's buckets, how many values lie in each and above the last, their
# sum.
Spread = tuple[Sequence[float], Sequence[int], float]
# Name, "counter", "gauge" or "histogram", description, names of the labels, and the values by
# their labels; None where the next value takes long and other work may run meanwhile.
Sample = tuple[Sequence[str], float | Spread]
Family = tuple[str, str, str, Sequence[str], Iterable[Sample | None]]

Node = tuple[str, ...]  # the values of the labels that say which broker it is

# OpenTelemetry's name for the scope of a metric, which Java's exporter adds to each of them.
SCOPE = "broker-meter"
NODE = ("otel_scope_name", "cluster", "node_type", "node_id")
OWN_NODE = NODE[1:]  # of metrics that are aerobee's alone


def spread(histogram: Histogram) -> Spread:
    """A histogram as a value."""
    return histogram.bounds, histogram.counts, histogram.sum


def flag(value: bool) -> str:
    """A label that is true or false."""
    return "true" if value else "false"


def is_system_group(group: str) -> bool:
    """True if RocketMQ's metrics count the group as the system's, in any letter case."""
    return group.lower().startswith(SYSTEM_GROUP_PREFIX.lower())


def is_system_pair(topic: str, group: str) -> bool:
    """True if the topic or the group is the system's."""
    return is_system_topic(topic) or is_system_group(group)
