"""`diff`: what is different between two stores, such as those of a master and its slave.

It only reads, so brokers may run on both folders. A slave's log is its master's, byte for byte, so
the logs are compared as bytes where both have them. Queues are compared entry by entry there.
Topics, groups and offsets are compared by what they mean, since brokers write them differently.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.bodies.topic import TopicConfig
from ...protocol.codec.fastjson import parse
from ...protocol.names import SYSTEM_GROUPS, is_system_group, is_system_topic
from ..base.errors import DamagedStore
from ..columns.view import StoreView
from ..files import json_file
from ..files.json_journal import JsonJournal
from ..files.listing import Row
from ..log.run import Passed, Run
from ..log.walk import Progress, Walk

LOG, QUEUES, TOPICS, GROUPS, OFFSETS = "commit log", "consume queues", "topics", "groups", "offsets"
FOUND_MAX = 1_000  # of one part; more are only counted
PIECE_BYTES = 1 << 20
PIECE_ENTRIES = 100_000
LENGTH_BYTES = 4  # with which a record begins; zeros where nothing was written
# The tables: file, the key in it, and what an entry means.
TABLES: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    TOPICS: ("topics.json", "topicConfigTable", lambda each: _decoded(TopicConfig, each)),
    GROUPS: (
        "subscriptionGroup.json",
        "subscriptionGroupTable",
        lambda each: _decoded(SubscriptionGroupConfig, each),
    ),
    # Java writes the numbers of queues without quotes.
    OFFSETS: (
        "consumerOffset.json",
        "offsetTable",
        lambda each: {str(queue): offset for queue, offset in each.items()},
    ),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference, in a part of the store."""

    part: str
    text: str


@dataclass(slots=True)
class Differences:
    """`found` has the first `FOUND_MAX` of each part, `counts` counts all."""

    found: list[Difference] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, part: str, text: str) -> None:
        """Add a difference."""
        self.counts[part] = self.counts.get(part, 0) + 1
        if self.counts[part] <= FOUND_MAX:
            self.found.append(Difference(part, text))

    @property
    def count(self) -> int:
        """The number of all differences."""
        return sum(self.counts.values())


class _Log:
    """The log of a store: its files, its end, and the number of its messages."""

    def __init__(self, view: StoreView, progress: Progress | None) -> None:
        self.row: Row = view.log
        self.messages = 0
        walk = Walk(self.row, self.row.start, progress)
        self.end = self.row.start
        if self.row.items:
            self.end = walk.run(self.row.start, self._on_record, self._on_run)

    def _on_record(self, _: Passed) -> None:
        self.messages += 1

    def _on_run(self, run: Run) -> None:
        self.messages += len(run)

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """The bytes between two places, in pieces that end at multiples of `PIECE_BYTES`."""
        at = start
        while at < end:
            segment = self.row.find(at)
            if segment is None:
                return
            until = min(end, segment.end, (at // PIECE_BYTES + 1) * PIECE_BYTES)
            yield at, memoryview(segment.view)[at - segment.base : until - segment.base]
            if until == segment.end:
                segment.forget()
            at = until

    def record_at(self, place: int) -> int:
        """The start of the record that contains this byte."""
        found = self.row.start

        def on_record(passed: Passed) -> None:
            nonlocal found
            found = passed.log_offset if passed.log_offset <= place else found

        def on_run(run: Run) -> None:
            nonlocal found
            before = run.log_offsets[run.log_offsets <= place]
            found = int(before[-1]) if len(before) else found

        Walk(self.row, self.end).run(self.row.start, on_record, on_run)
        return found


def diff(
    first: Path,
    second: Path,
    log_folders: tuple[Path | None, Path | None] = (None, None),
    progress: Progress | None = None,
) -> Differences:
    """Compare two stores. StoreError if one of the folders is no store."""
    views = [StoreView(root, log) for root, log in zip((first, second), log_folders, strict=True)]
    names = (str(first), str(second))
    found = Differences()
    _diff_tables(first, second, names, found)
    _diff_queues(views[0], views[1], names, found)
    _diff_logs(_Log(views[0], progress), _Log(views[1], progress), names, found)
    return found


def _diff_logs(one: _Log, two: _Log, names: tuple[str, str], found: Differences) -> None:
    if (one.row.start, one.end, one.messages) != (two.row.start, two.end, two.messages):
        sides = [
            f"{name} has {log.messages:,} messages from {log.row.start:,} to {log.end:,}"
            for name, log in zip(names, (one, two), strict=True)
        ]
        found.add(LOG, "; ".join(sides))
    start, end = max(one.row.start, two.row.start), min(one.end, two.end)
    for (at, left), (_, right) in zip(one.pieces(start, end), two.pieces(start, end), strict=False):
        size = min(len(left), len(right))
        if left[:size] != right[:size]:
            byte = at + next(i for i in range(size) if left[i] != right[i])
            record = one.record_at(byte)
            found.add(
                LOG,
                f"the logs part at {byte:,}, in the record at {record:,}; look at it with "
                f"`aerobee store dump {names[0]} --from {record} -n 1`",
            )
            return
    for name, log in zip(names, (one, two), strict=True):
        if log.end == end and any(bytes(next(log.pieces(end, end + LENGTH_BYTES), (0, b""))[1])):
            text = f"the record at {end:,} of {name} is not whole; `aerobee store check` says why"
            found.add(LOG, text)


def _diff_queues(
    one: StoreView, two: StoreView, names: tuple[str, str], found: Differences
) -> None:
    queues = [{(t, q) for t, ids in view.topics().items() for q in ids} for view in (one, two)]
    for topic, number in sorted(queues[0] | queues[1]):
        views = [
            view.queue(topic, number) if (topic, number) in known else None
            for view, known in zip((one, two), queues, strict=True)
        ]
        bounds = [(0, 0) if each is None else each.count() for each in views]
        firsts, ends = zip(*bounds, strict=True)
        what = f"queue {number} of {topic}"
        if ends[0] != ends[1]:
            found.add(
                QUEUES, f"{what} ends at {ends[0]:,} in {names[0]}, at {ends[1]:,} in {names[1]}"
            )
        left, right = views
        if left is None or right is None:
            continue
        for at in range(max(firsts), min(ends), PIECE_ENTRIES):
            until = min(at + PIECE_ENTRIES, min(ends))
            entries = [each.array(at, until) for each in (left, right)]
            size = min(map(len, entries))
            different = (entries[0][:size] != entries[1][:size]).nonzero()[0]
            if len(different):
                found.add(QUEUES, f"{what}: its entry {at + int(different[0]):,} is different")
                break


def _diff_tables(first: Path, second: Path, names: tuple[str, str], found: Differences) -> None:
    for part, (file, key, meaning) in TABLES.items():
        one, two = (_table(root / "config" / file, key) for root in (first, second))
        for name in sorted(one.keys() | two.keys()):
            if _is_own(part, name):
                continue
            if name not in one or name not in two:
                owner = names[0] if name in one else names[1]
                found.add(part, f"{name} is in {owner} only")
            elif meaning(one[name]) != meaning(two[name]):
                sides = [json.dumps(table[name], sort_keys=True) for table in (one, two)]
                found.add(part, f"{name} is {sides[0]} in {names[0]}, {sides[1]} in {names[1]}")


def _is_own(part: str, name: str) -> bool:
    """True if each broker makes this entry for itself."""
    if part == TOPICS:
        return is_system_topic(name)
    group = name.rpartition("@")[2]
    return group in SYSTEM_GROUPS or is_system_group(group)


def _table(path: Path, key: str) -> dict[str, Any]:
    """A table as its broker would load it, with the changes since its file was written."""
    text = json_file.load(path, parse) or {}
    table = text.get(key) or {} if isinstance(text, dict) else {}
    if not isinstance(table, dict):
        raise DamagedStore(f"{path}: {key} is no table; `aerobee store check` names all damage")
    for line in JsonJournal(path).load(parse):
        for name in line.get("gone", ()):
            table.pop(name, None)
        table.update(line.get("put", {}))
    return {str(name): value for name, value in table.items()}


def _decoded(kind: type[TopicConfig] | type[SubscriptionGroupConfig], value: Any) -> Any:
    return kind.decode(json.dumps(value).encode())
