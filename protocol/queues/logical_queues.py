"""Static topics: conversion between logical and physical offsets, and leaders of logical queues.

A logical queue is a list of items (`LogicQueueMappingItem`), oldest first. Messages of items
without a logical offset yet (-1, during a remapping) can't be read.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from ..bodies.topic_queue_mapping import (
    SCOPE_GLOBAL,
    LogicQueueMappingItem,
    TopicQueueMappingInfo,
)

# Placeholder broker names: of a logical queue, and of an unknown leader
MOCK_BROKER_PREFIX = "__syslo__"
NO_BROKER = "__syslo__none__"

Item = LogicQueueMappingItem


def mock_broker_name(scope: str) -> str:
    """The broker name that clients give the logical queues of this scope."""
    return MOCK_BROKER_PREFIX + (scope[2:] if scope == SCOPE_GLOBAL else scope)


def to_logical(item: Item, offset: int) -> int:
    """The logical offset of this physical one."""
    return item.logic_offset + max(0, offset - item.start_offset)


def to_logical_within(item: Item, offset: int) -> int:
    """The logical offset, -1 while the item has none, at most the end of the item."""
    if item.logic_offset < 0:
        return -1
    if item.start_offset <= item.end_offset < offset:
        offset = item.end_offset
    return to_logical(item, offset)


def to_physical(item: Item, offset: int) -> int:
    """The physical offset of this logical one, negative for one before the item."""
    return offset - item.logic_offset + item.start_offset


def has_end(item: Item) -> bool:
    """True if the item is known to end somewhere: RocketMQ's tools decide no ends."""
    return item.end_offset > item.start_offset


def end_of(item: Item) -> int:
    """The logical offset up to which the item is known to reach."""
    return item.logic_offset + max(0, item.end_offset - item.start_offset)


def decided(items: Sequence[Item]) -> list[Item]:
    """The items that can be read, oldest first."""
    return [item for item in items if item.logic_offset >= 0]


def item_at(items: Sequence[Item], offset: int) -> Item | None:
    """The item that has this logical offset, the first one for an offset before it; None where no
    item can be read."""
    readable = decided(items)
    for item in reversed(readable):
        if offset >= item.logic_offset:
            return item
    return readable[0] if readable else None


def next_item(items: Sequence[Item], item: Item) -> Item | None:
    """The item behind this one; None when there is none that can be read."""
    for known, following in pairwise(items):
        if known.gen == item.gen:
            return following if following.logic_offset >= 0 else None
    return None


def leaders(mapping_by_broker: Mapping[str, TopicQueueMappingInfo]) -> dict[str, dict[int, str]]:
    """The leader of each logical queue by scope, from the mappings of a topic's brokers.

    The highest epoch wins. A queue without a leader has `NO_BROKER`.
    """
    found: dict[str, dict[int, str]] = {}
    newest = sorted(mapping_by_broker.values(), key=lambda info: -info.epoch)
    epochs: dict[tuple[str, int], int] = {}
    totals: dict[str, int] = {}
    for info in newest:
        scope = info.scope
        if scope is None:
            continue
        totals[scope] = max(totals.get(scope, 0), info.total_queues)
        queues = found.setdefault(scope, {})
        for queue_id in info.curr_id_map:
            if epochs.get((scope, queue_id), info.epoch) <= info.epoch:
                epochs[scope, queue_id] = info.epoch
                queues[queue_id] = info.bname or NO_BROKER
    return {
        scope: {queue_id: queues.get(queue_id, NO_BROKER) for queue_id in range(totals[scope])}
        for scope, queues in found.items()
    }
