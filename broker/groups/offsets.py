"""The progress of each group in each queue: consumerOffset.json.

An offset is the next one to consume. A reported offset is taken as it is, also backwards, because
that is how a reset works. The table is written every few seconds and at stop; after a crash a group
sees the last seconds again, which at-least-once allows.

A reset sets an offset and leaves a mark. While the mark stands, reported offsets are ignored, since
they are from before. The group's next pull of the queue is told where to continue and removes the
mark. Marks are in memory only, as in RocketMQ: after a restart the offset of the reset remains.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from heapq import merge
from pathlib import Path

from ...protocol.bodies.data_version import DataVersion
from ...protocol.bodies.offsets import ConsumerOffsetSerializeWrapper
from ...protocol.codec import fastjson
from ...protocol.names import LMQ_PREFIX
from ...store.files import json_file
from ..runtime.persistent import PersistentTable

log = logging.getLogger(__name__)

KEYS_MAX = 1_000_000  # topic and group pairs
SEPARATOR = "@"
LIGHT_FILE = "lmqConsumerOffset.json"
OFFSETS_PER_PIECE = 100  # written out at once, which takes a tenth of a millisecond

Pair = tuple[str, str]  # topic and group


class Offsets(PersistentTable):
    """Offsets by (topic, group) and queue. `path` is consumerOffset.json.

    With `light` the file is lmqConsumerOffset.json beside it, as in RocketMQ, and begins with the
    offsets of `path`.
    """

    def __init__(self, path: Path, now_ms: Callable[[], int], *, light: bool = False) -> None:
        super().__init__(path.with_name(LIGHT_FILE) if light else path, now_ms)
        self._main_path = path
        self._light = light
        self._table: dict[Pair, dict[int, int]] = {}
        self._pulled: dict[Pair, dict[int, int]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}  # of the table, by group
        self._groups_of: dict[str, dict[str, None]] = {}  # the same by topic
        # The keys of the file in order, also of pairs that are gone, and the pairs not among them.
        self._sorted: list[tuple[str, Pair]] = []
        self._unsorted: dict[Pair, None] = {}
        self.resets: dict[tuple[str, str, int], int] = {}  # topic, group, queue

    def load(self) -> None:
        """Read the file; ValueError naming it when neither it nor its .bak can be read."""
        found = json_file.load(self.path, ConsumerOffsetSerializeWrapper.decode)
        if found is None and self._light:
            found = json_file.load(self._main_path, ConsumerOffsetSerializeWrapper.decode)
        if found is None:
            return
        for key, offset in (found.lmq_offset_table or {}).items():
            found.offset_table.setdefault(key, {})[0] = offset
        self.version = found.data_version or DataVersion()
        for key, queues in found.offset_table.items():
            topic, separator, group = key.partition(SEPARATOR)
            if separator and SEPARATOR not in group:
                self._add(topic, group).update(queues)
        self._sorted = sorted((_key(pair), pair) for pair in self._table)
        self._unsorted.clear()

    def cut_at(self, end_of: Callable[[str, int], int]) -> None:
        """Cut offsets beyond the ends of their queues, also in the file.

        Else a group would pass over the messages that get these offsets next.
        """
        cut = 0
        for (topic, _), queues in self._table.items():
            for queue_id, offset in queues.items():
                end = end_of(topic, queue_id)
                if offset > end:
                    queues[queue_id] = end
                    cut += 1
        if cut:
            log.warning("%d consumer offsets lay beyond the ends of their queues; cut", cut)
            self.changed = True
            self.save()

    def text(self, *, standard: bool = False) -> Iterator[bytes]:
        """The text of GET_ALL_CONSUMER_OFFSET, or of the file (`standard`), a few offsets at a
        time."""
        # The table is the last of the text: it goes between its two braces.
        light: dict[str, int] | None = None
        if self._light and standard:
            light = {
                _key(pair): queues[0]
                for pair, queues in sorted(self._table.items())
                if _is_light(pair) and 0 in queues
            }
        text = ConsumerOffsetSerializeWrapper({}, self.version, light).encode(standard=standard)
        yield text[:-2]
        before = b""
        part: dict[str, dict[int, int]] = {}
        count = 0
        for key, pair in self._in_order():
            queues = self._table[pair]
            if light is not None and _is_light(pair):
                continue
            part[key] = queues
            count += len(queues) + 1
            if count >= OFFSETS_PER_PIECE:
                yield before + _entries(part, standard)
                before, part, count = b",", {}, 0
        if part:
            yield before + _entries(part, standard)
        yield text[-2:]

    def to_body(self) -> ConsumerOffsetSerializeWrapper:
        """The table as consumerOffset.json and GET_ALL_CONSUMER_OFFSET have it."""
        table = {topic + SEPARATOR + group: q for (topic, group), q in self._table.items()}
        return ConsumerOffsetSerializeWrapper(table, self.version)

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Note that the group has consumed everything below `offset`."""
        queues = self._table.get((topic, group))
        if queues is None:
            self._check_room()
            queues = self._add(topic, group)
        queues[queue_id] = offset
        self.changed = True

    def follow(
        self, table: Mapping[str, dict[int, int]], version: DataVersion | None = None
    ) -> None:
        """Take over the offsets in a master's file, by topic@group, with its version where one is
        given; others stay."""
        if version not in (None, self.version):
            self.version = version or self.version
            self.changed = True
        for name, queues in table.items():
            topic, separator, group = name.partition(SEPARATOR)
            if not separator or SEPARATOR in group:
                continue
            if (topic, group) not in self._table:
                self._check_room()
                self._add(topic, group)
            self._table[topic, group] = dict(queues)
            self.changed = True

    def clone(self, topic: str, source: str, target: str) -> None:
        """Give the target the offsets of the source and no others, unless the source has none."""
        offsets = self.queues(topic, source)
        for queue_id, offset in offsets.items():
            self.commit(topic, target, queue_id, offset)
        if offsets:
            self._table[topic, target] = offsets

    def get(self, topic: str, group: str, queue_id: int) -> int:
        """The next offset to consume, -1 when the group never reported one."""
        queues = self._table.get((topic, group))
        return -1 if queues is None else queues.get(queue_id, -1)

    def has(self, topic: str, group: str) -> bool:
        """True if the group has an offset in any queue of the topic."""
        return bool(self._table.get((topic, group)))

    def reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Have the group go on at `offset`, whatever it reports until its next pull."""
        if len(self.resets) >= KEYS_MAX and (topic, group, queue_id) not in self.resets:
            raise OverflowError(
                f"{len(self.resets)} resets wait for their group's next pull, the limit is "
                f"{KEYS_MAX}; start those groups, or delete those that are not used any more"
            )
        self.commit(topic, group, queue_id, offset)
        self.resets[topic, group, queue_id] = offset

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The offset of a reset, which is then forgotten; None when there was none."""
        return self.resets.pop((topic, group, queue_id), None)

    def queues(self, topic: str, group: str) -> dict[int, int]:
        """All offsets of a group in a topic, by queue."""
        return dict(self._table.get((topic, group), {}))

    def pairs(self) -> list[tuple[str, str]]:
        """Topic and group, wherever a group has reported offsets."""
        return list(self._table)

    def pulled(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Remember the next offset to read, which may be ahead of the consumed ones."""
        queues = self._pulled.get((topic, group))
        if queues is None:
            if len(self._pulled) >= KEYS_MAX:
                return  # only a display loses its number
            queues = self._pulled[topic, group] = {}
        queues[queue_id] = offset

    def pull_offset(self, topic: str, group: str, queue_id: int) -> int:
        """The offset up to which the group has pulled since the start; -1 when it has not."""
        return self._pulled.get((topic, group), {}).get(queue_id, -1)

    def topics_of(self, group: str) -> list[str]:
        """The topics in which a group has offsets."""
        return list(self._topics_of.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have offsets in a topic."""
        return list(self._groups_of.get(topic, ()))

    def delete_group(self, group: str) -> None:
        """Forget all offsets of a group."""
        self._drop([(topic, group) for topic in self.topics_of(group)])
        for mark in [mark for mark in self.resets if mark[1] == group]:
            del self.resets[mark]

    def delete_topic(self, topic: str) -> None:
        """Forget all offsets in a topic."""
        self._drop([(topic, group) for group in self.groups_of(topic)])
        for mark in [mark for mark in self.resets if mark[0] == topic]:
            del self.resets[mark]

    def _check_room(self) -> None:
        if len(self._table) >= KEYS_MAX:
            raise OverflowError(
                f"offsets of {len(self._table)} topic and group pairs are kept, the limit is "
                f"{KEYS_MAX}; delete groups that are not used any more"
            )

    def _add(self, topic: str, group: str) -> dict[int, int]:
        """The offsets of a new pair."""
        queues = self._table[topic, group] = {}
        self._topics_of.setdefault(group, {})[topic] = None
        self._groups_of.setdefault(topic, {})[group] = None
        self._unsorted[topic, group] = None
        return queues

    def _drop(self, pairs: list[Pair]) -> None:
        for pair in pairs:
            topic, group = pair
            del self._table[pair]
            self._pulled.pop(pair, None)
            for index, name, other in (
                (self._topics_of, group, topic),
                (self._groups_of, topic, group),
            ):
                del index[name][other]
                if not index[name]:
                    del index[name]
        self.changed = self.changed or bool(pairs)

    def _in_order(self) -> Iterator[tuple[str, Pair]]:
        """The keys of the file and their pairs, in order. The table may change meanwhile: deleted
        entries are left out, and new ones are not there yet."""
        before, news = self._sorted, list(self._unsorted)
        found: list[tuple[str, Pair]] = []
        for one in merge(before, sorted((_key(pair), pair) for pair in news)):
            if one[1] in self._table and (not found or found[-1] != one):
                found.append(one)
                yield one
        if self._sorted is before:  # else another call has sorted them meanwhile
            self._sorted = found
            for pair in news:
                self._unsorted.pop(pair, None)


def _is_light(pair: Pair) -> bool:
    return pair[1].startswith(LMQ_PREFIX)


def _key(pair: Pair) -> str:
    return pair[0] + SEPARATOR + pair[1]


def _entries(part: dict[str, dict[int, int]], standard: bool) -> bytes:
    return fastjson.dump(part, bare_keys=not standard, ascii_only=standard)[1:-1]
