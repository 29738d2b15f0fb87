"""One visit of a page: its cluster, and the parameters of its URL."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from ...client.base.identity import now_ms
from ...client.errors import AerobeeError, ClientError
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from ..clusters.clusters import Clusters, Watched
from ..clusters.samples import BrokerSample, TopicRow

ROWS = 100  # of one page of a list
ASK_SECONDS = 5.0  # of one broker, while a visitor waits
TEXT_CHARS_MAX = 4_096  # of one parameter

Result = TypeVar("Result")


class BadQuery(Exception):
    """A parameter of the URL that can't be used: what, its value, and what to give."""


class NotFound(Exception):
    """There is no such topic, group or message."""


@dataclass(frozen=True)
class Look:
    """A visit. `query` are the parameters of the URL."""

    clusters: Clusters
    watched: Watched
    query: Mapping[str, str]

    def text(self, name: str, default: str = "") -> str:
        """A parameter as text."""
        found = self.query.get(name, default)
        if len(found) > TEXT_CHARS_MAX:
            raise BadQuery(
                f"{name} has {len(found)} characters, the limit is {TEXT_CHARS_MAX}; shorten it"
            )
        return found

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A parameter as a whole number."""
        text = self.text(name)
        if not text:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
            raise BadQuery(f"{name} is {text[:80]!r}; give a whole number")
        if not least <= int(text) <= most:
            raise BadQuery(f"{name} is {text}; give {least} to {most}")
        return int(text)

    def flag(self, name: str) -> bool:
        """Whether a box is ticked."""
        return self.text(name) == "1"

    def time_ms(self, name: str, default: int) -> int:
        """A time: ms since 1970, or ISO 8601, which is UTC without a zone."""
        text = self.text(name).strip()
        if not text:
            return default
        if text.isascii() and text.isdecimal() and len(text) <= 15:
            return int(text)
        try:
            found = datetime.fromisoformat(text)
            return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
        except (ValueError, OverflowError):
            raise BadQuery(
                f"{name} is {text[:80]!r}; give a time such as 2026-11-23T15:04:05 (UTC), or ms "
                "since 1970"
            ) from None

    def required(self, name: str) -> str:
        """A parameter that must be there."""
        found = self.text(name)
        if not found:
            raise BadQuery(f"{name} is missing; follow a link of a list, or add {name}=…")
        return found

    def topics(self, kind: str) -> list[TopicRow]:
        """The topics of a kind: users, retry (with dead letters), system, or all."""
        brokers = self.watched.collector.brokers.values()
        own = {one.name for one in brokers} | {one.cluster for one in brokers}
        own |= {f"{one.cluster}_REPLY_TOPIC" for one in brokers}

        def kind_of(name: str) -> str:
            if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                return "retry"
            return "system" if name in own or is_system_topic(name) else "users"

        rows = self.watched.collector.topics().values()
        return [row for row in rows if kind in ("all", kind_of(row.name))]

    def masters(self, names: Iterable[str] | None = None) -> list[BrokerSample]:
        """The masters, or those of these names."""
        wanted = None if names is None else set(names)
        return [
            one
            for one in sorted(self.watched.collector.brokers.values(), key=lambda one: one.name)
            if one.is_master and (wanted is None or one.name in wanted)
        ]

    async def ask(
        self,
        brokers: Iterable[BrokerSample],
        request: Callable[[str], Awaitable[Result]],
    ) -> tuple[dict[str, Result], dict[str, str]]:
        """The answers by broker name, and why others gave none."""
        found: dict[str, Result] = {}
        faults: dict[str, str] = {}

        async def one(broker: BrokerSample) -> None:
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    found[broker.name] = await request(broker.address)
            except TimeoutError:
                faults[broker.name] = f"{broker.address} did not answer within {ASK_SECONDS:g} s"
            except AerobeeError as wrong:
                faults[broker.name] = str(wrong)

        await asyncio.gather(*map(one, brokers))
        return found, faults


async def patient(work: Awaitable[Result]) -> Result:
    """The result, within the time that a visitor waits; ClientError behind it."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return await work
    except TimeoutError:
        raise ClientError(f"no answer within {ASK_SECONDS:g} s; look at the brokers") from None


def listed(
    look: Look,
    rows: list[Any],
    columns: Mapping[str, Callable[[Any], Any]],
    default: str,
    named: Callable[[Any], str] = lambda row: row.name,
) -> dict[str, Any]:
    """A page of a list: filtered by `q` in the name, sorted by a column of `columns` (`-` before
    it: downwards), with the number of all."""
    q = look.text("q")
    total = len(rows)
    if q:
        rows = [row for row in rows if q.lower() in named(row).lower()]
    sort = look.text("sort", default)
    key = columns.get(sort.removeprefix("-"))
    if key is None:
        raise BadQuery(f"sort is {sort[:80]!r}; give one of {', '.join(columns)}, or - before it")
    column = key
    known = [row for row in rows if column(row) is not None]
    known.sort(key=column, reverse=sort.startswith("-"))
    rows = known + [row for row in rows if column(row) is None]
    pages = max(1, -(-len(rows) // ROWS))
    page = min(look.number("page", 1, 1, 1_000_000), pages)
    return {
        "rows": rows[(page - 1) * ROWS : page * ROWS],
        "total": total,
        "matched": len(rows),
        "page": page,
        "pages": pages,
        "sort": sort,
        "q": q,
    }


def as_of(look: Look) -> dict[str, Any]:
    """What every page says of its samples: their time, and the brokers that did not answer."""
    collector = look.watched.collector
    times = [one.at_ms for one in collector.brokers.values() if one.at_ms is not None]
    return {
        "now_ms": now_ms(),
        "as_of_ms": min(times, default=None),
        "marks": [
            {"name": one.name, "id": one.broker_id, "address": one.address, "why": one.wrong,
             "since_ms": one.wrong_ms}
            for one in collector.brokers.values()
            if one.wrong is not None
        ],
        "names_wrong": collector.wrong,
    }  # fmt: skip
