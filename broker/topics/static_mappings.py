"""The static topics of this broker: topicQueueMapping.json, and the checks before a change.

A static topic has logical queues, whose ids and offsets stay while they move between brokers. Here
is what this broker knows of each: `protocol/queues/logical_queues.py` translates,
`groups/static_offset_handlers.py` and `pull/static_handlers.py` serve. Ordinary topics aren't in
this table.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from ...protocol import codes
from ...protocol.bodies.data_version import DataVersion
from ...protocol.bodies.topic_queue_mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
    TopicQueueMappingSerializeWrapper,
)
from ...protocol.errors import Refusal
from ...protocol.queues.logical_queues import end_of
from ...store.files import json_file

STATIC_TOPICS_MAX = 10_000
LOGICAL_QUEUES_MAX = 65_536  # of one topic
ITEMS_MAX = 1_000  # of one logical queue: how often it has moved, less the items cleaned up

Items = list[LogicQueueMappingItem]


class StaticTopics:
    """The static topics by name in `table`. `on_change(topic)` is called after each change."""

    def __init__(self, path: Path, broker_name: str, now_ms: Callable[[], int]) -> None:
        self.table: dict[str, TopicQueueMappingDetail] = {}
        self.version = DataVersion()
        self.broker_name = broker_name
        self.on_change: Callable[[str], None] = lambda _: None
        self._path = path
        self._now_ms = now_ms

    def load(self) -> None:
        """Read the file; DamagedStore when it can't be read."""
        found = json_file.load(self._path, TopicQueueMappingSerializeWrapper.decode)
        if found is not None:
            self.version = found.data_version
            self.table.update(found.topic_queue_mapping_info_map)

    def check(self, detail: TopicQueueMappingDetail, *, force: bool = False) -> None:
        """Refusal when a mapping contradicts itself or, without `force`, the known one."""
        topic = detail.topic or ""
        self._check(topic, detail)
        known = self.table.get(topic)
        if known is not None and not force:
            _check_successor(known, detail)

    def put(self, detail: TopicQueueMappingDetail) -> None:
        """Add or replace a topic's mapping, which was checked, and write the file.

        Queues that the new mapping doesn't name stay as they are.
        """
        topic = detail.topic or ""
        known = self.table.get(topic)
        if known is not None:
            detail.hosted_queues = known.hosted_queues | detail.hosted_queues
        self._set(topic, detail)

    def replace_queues(self, topic: str, queues: dict[int, Items]) -> None:
        """Replace the items of some of a topic's queues, and remove others; write the file."""
        known = self.table[topic]
        hosted = {key: items for key, items in (known.hosted_queues | queues).items() if items}
        self._set(topic, msgspec.structs.replace(known, hosted_queues=hosted))

    def delete(self, topic: str) -> None:
        """Remove a topic's mapping, if there is one, and write the file."""
        if topic in self.table:
            self._set(topic, None)

    def follow(self, table: Mapping[str, TopicQueueMappingDetail], version: DataVersion) -> bool:
        """Have a master's static topics and no others, under its version, and write the file.

        False when this is its version already.
        """
        if version == self.version:
            return False
        for topic, detail in table.items():
            self._check(topic, detail)
        changed = [
            topic
            for topic in self.table.keys() | table.keys()
            if self.table.get(topic) != table.get(topic)
        ]
        self._write(table, version)
        self.table.clear()
        self.table.update(table)
        self.version = version
        for topic in changed:
            self.on_change(topic)
        return True

    def info(self, topic: str) -> TopicQueueMappingInfo:
        """A static topic as it is registered with the name servers."""
        detail = self.table[topic]
        led = {
            queue_id: items[-1].queue_id
            for queue_id, items in detail.hosted_queues.items()
            if items and items[-1].bname == detail.bname
        }
        return TopicQueueMappingInfo(
            detail.topic,
            total_queues=detail.total_queues,
            bname=detail.bname,
            epoch=detail.epoch,
            curr_id_map=led,
        )

    def led(self, topic: str, queue_id: int) -> Items | None:
        """The items of a logical queue; None when this broker doesn't lead it now."""
        items = self.table[topic].hosted_queues.get(queue_id)
        return items if items and items[-1].bname == self.broker_name else None

    # --- inside ---------------------------------------------------------------------------------

    def _set(self, topic: str, detail: TopicQueueMappingDetail | None) -> None:
        """Take over, once it is in the file; StoreError when it can't be written."""
        table = self.table | ({} if detail is None else {topic: detail})
        if detail is None:
            del table[topic]
        version = self.version.following(self._now_ms())
        self._write(table, version)
        if detail is None:
            del self.table[topic]
        else:
            self.table[topic] = detail
        self.version = version
        self.on_change(topic)

    def _write(self, table: Mapping[str, TopicQueueMappingDetail], version: DataVersion) -> None:
        body = TopicQueueMappingSerializeWrapper(dict(table), version)
        json_file.save(self._path, body.encode(standard=True))

    def _check(self, topic: str, detail: TopicQueueMappingDetail) -> None:
        """Refusal for a mapping that can't be right whatever is known."""
        if topic not in self.table and len(self.table) >= STATIC_TOPICS_MAX:
            raise _refused(
                f"there are {len(self.table)} static topics, the limit is {STATIC_TOPICS_MAX}; "
                "delete some"
            )
        if detail.bname != self.broker_name:
            raise _refused(
                f"the mapping of topic {topic} is for broker {detail.bname}, this is "
                f"{self.broker_name}"
            )
        most = max(detail.hosted_queues, default=-1) + 1
        if max(detail.total_queues, most) > LOGICAL_QUEUES_MAX:
            raise _refused(
                f"topic {topic} would have {max(detail.total_queues, most)} logical queues, the "
                f"limit is {LOGICAL_QUEUES_MAX}"
            )
        if min(detail.hosted_queues, default=0) < 0:
            raise _refused(f"topic {topic} would have a logical queue with an id below 0")
        for queue_id, items in detail.hosted_queues.items():
            if len(items) > ITEMS_MAX:
                raise _refused(
                    f"logical queue {queue_id} of topic {topic} has {len(items)} items, the limit "
                    f"is {ITEMS_MAX}; let the broker clean up what is consumed and gone"
                )
            why = _fault_of(items)
            if why:
                raise _refused(f"{why} (logical queue {queue_id} of topic {topic})")


def _fault_of(items: Items) -> str:
    """The fault of a logical queue's items, "" if there is none."""
    following: LogicQueueMappingItem | None = None
    for item in reversed(items):
        if min(item.start_offset, item.gen, item.queue_id) < 0:
            return "The field is illegal, should not be negative"
        if item.end_offset != -1 and item.end_offset < item.start_offset:
            return "The endOffset is smaller than the start offset"
        if following is not None:
            if item.logic_offset < 0:
                return "The non-latest item has negative logic offset"
            if item.gen >= following.gen:
                return "The gen does not increase monotonically"
            if following.logic_offset >= 0 and item.logic_offset >= following.logic_offset:
                return "The base logic offset does not increase monotonically"
            if following.logic_offset >= 0 and end_of(item) >= following.logic_offset:
                return "The max logic offset does not increase monotonically"
        following = item
    return ""


def _check_successor(old: TopicQueueMappingDetail, new: TopicQueueMappingDetail) -> None:
    """Refusal when `new` may not follow on `old`."""
    if new.epoch < old.epoch:
        raise _refused(f"Can't accept data with small epoch {new.epoch} < {old.epoch}")
    if new.scope != old.scope:
        raise _refused(f"Can't accept data with unmatched scope {new.scope} != {old.scope}")
    for queue_id, items in old.hosted_queues.items():
        newer = new.hosted_queues.get(queue_id)
        if newer is None:
            if new.epoch == old.epoch:
                raise _refused("Cannot accept equal epoch with null data")
            continue
        if not items:
            continue
        if not newer:
            raise _refused("The new item list is null or empty")
        _check_unchanged(items, newer, same_epoch=new.epoch == old.epoch)


def _check_unchanged(old: Items, new: Items, *, same_epoch: bool) -> None:
    """Refusal when an item that is known would become another one.

    Either list may lack items that the other has: the oldest ones are cleaned up.
    """
    known = {item.gen: item for item in old}
    for item in new:
        before = known.get(item.gen)
        if before is not None and (
            not _is_same_queue(before, item) or before.logic_offset not in (-1, item.logic_offset)
        ):
            # RocketMQ checks this only where Java's assertions are on.
            raise _refused(
                f"item {item.gen} would change from queue {before.queue_id} of {before.bname} at "
                f"offset {before.logic_offset} to queue {item.queue_id} of {item.bname} at "
                f"{item.logic_offset}; an item can't change"
            )
    if same_epoch and (old[-1].gen != new[-1].gen or not _is_same_queue(old[-1], new[-1])):
        raise _refused("The new leader is different but epoch equal")


def _is_same_queue(one: LogicQueueMappingItem, other: LogicQueueMappingItem) -> bool:
    return (
        one.bname == other.bname
        and one.queue_id == other.queue_id
        and one.start_offset == other.start_offset
    )


def _refused(why: str) -> Refusal:
    return Refusal(codes.SYSTEM_ERROR, why)
