"""The rows of all topics and groups, made of the brokers' samples in small steps.

Pages read the tables that were made last, so that no visitor waits for 20,000 rows.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from .samples import (
    NO_PROXY,
    Behind,
    BrokerSample,
    GroupRow,
    Timed,
    TimedGroup,
    TopicRow,
    group_row,
    topic_row,
)

ROWS_PER_STEP = 50  # between two steps the loop serves pages


class _Now(NamedTuple):
    """The samples that all rows of one step are made of."""

    masters: list[BrokerSample]
    is_whole: bool
    behind: Callable[[str], Behind]


class Tables:
    """`topics` and `groups` by name, the names in order once all are known. `masters` gives the
    samples, `is_whole` whether every master has told its names, `behind` what tells a group's
    members behind proxies."""

    def __init__(
        self,
        masters: Callable[[], list[BrokerSample]],
        is_whole: Callable[[], bool],
        behind: Callable[[], Callable[[str], Behind]] = lambda: lambda _: NO_PROXY,
    ) -> None:
        self.topics: dict[str, TopicRow] = {}
        self.groups: dict[str, GroupRow] = {}
        self._masters = masters
        self._is_whole = is_whole
        self._behind = behind
        self._one = asyncio.Lock()
        self._wanted = 0
        self._made = 0

    async def refresh(self) -> None:
        """Make both tables of the samples of now, once for all calls that came before it began."""
        self._wanted += 1
        wanted = self._wanted
        async with self._one:
            if self._made >= wanted:
                return
            making = self._wanted
            await self._make()
            self._made = making

    def topic(self, name: str) -> None:
        """Make the row of this topic again, because only its figures are new."""
        row = self._topic(name, self._now())
        before = self.topics.get(name)
        if before is not None:
            row.groups = before.groups
            self.topics[name] = row

    def group(self, name: str) -> None:
        """Make the row of this group again, because only its figures are new."""
        if name in self.groups:
            self.groups[name] = self._group(name, self._now())

    def name_topics(self, names: Iterable[str]) -> None:
        """Add rows for topics that are known now; others may follow."""
        now = self._now()
        self.topics |= {name: self._topic(name, now) for name in names}

    def name_groups(self, names: Iterable[str]) -> None:
        """Add rows for groups that are known now; others may follow."""
        now = self._now()
        self.groups |= {name: self._group(name, now) for name in names}

    def _now(self) -> _Now:
        return _Now(self._masters(), self._is_whole(), self._behind())

    async def _make(self) -> None:
        now = self._now()
        names = sorted({name for one in now.masters for name in one.groups})
        await asyncio.sleep(0)
        groups: dict[str, GroupRow] = {}
        readers: dict[str, int] = {}
        for part in _parts(names):
            for name in part:
                row = groups[name] = self._group(name, now)
                for topic in {one.topic for one in row.topics}:
                    readers[topic] = readers.get(topic, 0) + 1
            await asyncio.sleep(0)
        now = self._now()
        names = sorted({name for one in now.masters for name in one.topics})
        await asyncio.sleep(0)
        topics: dict[str, TopicRow] = {}
        for part in _parts(names):
            for name in part:
                row_of = topics[name] = self._topic(name, now)
                row_of.groups = readers.get(name, 0)
            await asyncio.sleep(0)
        self.groups, self.topics = groups, topics

    def _topic(self, name: str, now: _Now) -> TopicRow:
        found: dict[str, Timed] = {}
        live = True
        for broker in now.masters:
            if name in broker.topics:
                found[broker.name] = broker.topics[name]
                live = live and broker.wrong is None
        return topic_row(name, found, whole=now.is_whole, live=live)

    def _group(self, name: str, now: _Now) -> GroupRow:
        found: list[TimedGroup] = []
        live = True
        for broker in now.masters:
            if name in broker.groups:
                found.append(broker.groups[name])
                live = live and broker.wrong is None
        return group_row(name, found, now.behind(name), whole=now.is_whole, live=live)


def _parts(names: list[str]) -> Iterable[list[str]]:
    for at in range(0, len(names), ROWS_PER_STEP):
        yield names[at : at + ROWS_PER_STEP]
