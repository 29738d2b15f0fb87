"""The context of one request: session, cluster, and the parameters of the URL."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ...client.base.identity import now_ms
from ...client.errors import AerobeeError, ClientError
from ...protocol.errors import Refusal
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX, check_topic, is_system_topic
from ..access.access import Access
from ..access.rights import Right, Visitor
from ..access.sessions import Session
from ..actions.action import Action
from ..clusters.clusters import Clusters, Watched
from ..clusters.samples import BrokerSample, GroupRow, TopicRow
from ..messages.searches import Searches
from ..messages.shown import Types
from ..texts import Text, TextError, text_of
from ..times import BadTime, time_ms
from .answers import Listed, Samples

ROWS, PAGES_MAX = 50, 1_000_000  # of a list: rows on a page, and pages
ASK_SECONDS = 5.0  # of one broker, while a visitor waits
TEXT_CHARS_MAX = 4_096  # of one parameter
# What lists of topics are sorted by.
TOPIC_COLUMNS = {
    "name": lambda row: row.name,
    "type": lambda row: row.message_type,
    "messages": lambda row: row.messages,
    "rate_in": lambda row: row.rate_in,
    "groups": lambda row: row.groups,
    "first": lambda row: row.first_ms,
    "last": lambda row: row.last_ms,
}

Result = TypeVar("Result")
Row = TypeVar("Row")


class BadQuery(TextError):
    """A parameter of the URL that can't be used: what, its value, and what to give."""


class BadExpression(BadQuery):
    """An expression that can't be used; `at` is the character of its fault, from 0, None for the
    whole."""

    at: int | None = None


class NotFound(TextError):
    """There is no such topic, group or message."""

    status = 404


class NotKnown(TextError):
    """Whether there is such a message is not known, because a broker does not answer."""

    status = 503


class Forbidden(TextError):
    """The visitor may not do this: what, the visitor's right, and what to do."""

    status = 403


@dataclass(frozen=True)
class RequestContext:
    """The context of a request. `query` are the parameters of the URL, or the fields of a form.
    `list_faults` are parameters of lists that can't be used, by the prefix of the list, which is
    then shown by its default."""

    clusters: Clusters
    watched: Watched
    query: Mapping[str, str]
    session: Session
    access: Access
    searches: Searches
    types: Types | None = None
    list_faults: dict[str, BadQuery] = field(default_factory=dict)

    @property
    def visitor(self) -> Visitor:
        """The visitor of the session."""
        return self.session.visitor

    def may(self, right: Right, *, topic: str | None = None, group: str | None = None) -> bool:
        """True if the visitor may do this in this cluster."""
        return self.visitor.may(right, topic=topic, group=group, cluster=self.watched.name)

    def must(self, right: Right, *, topic: str | None = None, group: str | None = None) -> None:
        """Raise Forbidden when the visitor may not do this in this cluster."""
        if not self.may(right, topic=topic, group=group):
            about = [Text("topic %(topic)s", topic=topic[:255])] if topic is not None else []
            about += [Text("group %(name)s", name=group[:255])] if group is not None else []
            where = Text("cluster %(name)s", name=self.watched.name)
            if len(about) == 2:
                where = Text("%(topic)s and %(group)s", topic=about[0], group=about[1])
            elif about:
                where = about[0]
            raise Forbidden(
                "%(name)s may not %(right)s %(where)s; log in as another user, or ask an "
                "administrator of this console for the right",
                name=self.visitor.name,
                right=Text(right.name.lower()),
                where=where,
            )

    def must_act(self, action: Action, values: Mapping[str, Any]) -> None:
        """Forbidden when the visitor may not do an action with what the values name."""
        names = [("topic", values.get(one)) for one in action.topics]
        names += [("group", values.get(one)) for one in action.groups]
        given = [(kind, str(name)) for kind, name in names if name]
        if not given:
            self.must(action.right)
        for kind, name in given:
            self.must(action.right, **{kind: name})

    def text(self, name: str, default: str = "") -> str:
        """A parameter as text."""
        found = self.query.get(name, default)
        if len(found) > TEXT_CHARS_MAX:
            raise BadQuery(
                "%(name)s has %(count)s characters, the limit is %(limit)s; shorten it",
                name=name,
                count=len(found),
                limit=TEXT_CHARS_MAX,
            )
        return found

    def texts(self, name: str) -> list[str]:
        """All values of a parameter, each once."""
        every = getattr(self.query, "getall", None)
        found = [self.text(name)] if every is None else every(name, [])
        return [*dict.fromkeys(one[:TEXT_CHARS_MAX] for one in found if one)]

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A parameter as a whole number."""
        text = self.text(name)
        if not text:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()):
            raise BadQuery(
                "%(name)s is %(text)s; give a whole number", name=name, text=f"{text[:80]!r}"
            )
        if not least <= int(text) <= most:
            raise BadQuery(
                "%(name)s is %(text)s; give %(least)s to %(most)s",
                name=name,
                text=text[:80],
                least=least,
                most=most,
            )
        return int(text)

    def flag(self, name: str) -> bool:
        """True if a box is ticked."""
        return self.text(name) == "1"

    def time_ms(self, name: str, default: int) -> int:
        """A time: ms since 1970, or ISO 8601, which is UTC without a zone."""
        text = self.text(name).strip()
        if not text:
            return default
        try:
            return time_ms(text)
        except BadTime as wrong:
            raise BadQuery("%(label)s: %(wrong)s", label=name, wrong=wrong) from None

    def required(self, name: str) -> str:
        """A parameter that must be there."""
        found = self.text(name)
        if not found:
            raise BadQuery(
                "%(name)s is missing; follow a link of a list, or add %(name)s=…", name=name
            )
        return found

    def topic(self) -> str:
        """The parameter `topic`, which must be there. NotFound for what is no name of a topic."""
        found = self.required("topic")
        try:
            check_topic(found)
        except Refusal:
            raise NotFound(
                "topic %(topic)s is on no broker that was asked; see the list of topics",
                topic=found,
            ) from None
        return found

    def topic_rows(self) -> dict[str, TopicRow]:
        """The topics that the visitor may see, by name."""
        rows = self.watched.collector.topics()
        if not self.visitor.is_limited:
            return rows
        return {name: row for name, row in rows.items() if self.may(Right.VIEW, topic=name)}

    def group_rows(self) -> dict[str, GroupRow]:
        """The groups that the visitor may see, by name."""
        rows = self.watched.collector.groups()
        if not self.visitor.is_limited:
            return rows
        return {name: row for name, row in rows.items() if self.may(Right.VIEW, group=name)}

    def topics(self, kind: str) -> list[TopicRow]:
        """The topics of a kind: users, retry (with dead letters), system, or all."""
        own = self.watched.collector.own_topics()

        def kind_of(name: str) -> str:
            if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                return "retry"
            return "system" if name in own or is_system_topic(name) else "users"

        rows = self.topic_rows().values()
        return [row for row in rows if kind_of(row.name) == kind] if kind != "all" else [*rows]

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
                faults[broker.name] = Text(
                    "%(address)s did not answer within %(seconds)s s",
                    address=broker.address,
                    seconds=f"{ASK_SECONDS:g}",
                )
            except AerobeeError as wrong:
                faults[broker.name] = text_of(wrong)

        await asyncio.gather(*map(one, brokers))
        return found, faults


async def patient(work: Awaitable[Result]) -> Result:
    """The result, within the time that a visitor waits; ClientError behind it."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return await work
    except TimeoutError:
        raise ClientError(
            Text("no answer within %(seconds)s s; look at the brokers", seconds=f"{ASK_SECONDS:g}")
        ) from None


def listed(
    context: RequestContext,
    rows: list[Row],
    columns: Mapping[str, Callable[[Any], Any]],
    default: str,
    named: Callable[[Any], str] = lambda row: row.name,
) -> Listed[Row]:
    """A page of a list: filtered by `q` in the name, sorted by a column of `columns` (`-` before
    it: downwards), with the number of all."""

    def asked() -> tuple[str, str, int]:
        page = context.number("page", 1, 1, PAGES_MAX)
        return context.text("q"), context.text("sort"), page

    return _page_of(context, "", asked, rows, columns, named, default)


def paged(
    context: RequestContext,
    prefix: str,
    rows: list[Row],
    columns: Sequence[Sequence[str]],
    default: str = "",
) -> Listed[Row]:
    """A list of a page for its template, whose parameters have a prefix, such as `queues.q`:
    `columns` begin with the field that they show, and `q` is sought in all of these."""
    keys = [key for key, *_ in columns if key]

    def value(row: Any, key: str) -> Any:
        if isinstance(row, Mapping):
            return row[key]
        return row[keys.index(key)] if type(row) is tuple else getattr(row, key)

    def text(row: Any) -> str:
        return " ".join(str(value(row, key)) for key in keys)

    def asked() -> tuple[str, str, int]:
        page = context.number(f"{prefix}page", 1, 1, PAGES_MAX)
        return context.text(f"{prefix}q"), context.text(f"{prefix}sort"), page

    values = {key: partial(value, key=key) for key in keys}
    return _page_of(context, prefix, asked, rows, values, text, default)


def _page_of(
    context: RequestContext,
    prefix: str,
    asked: Callable[[], tuple[str, str, int]],
    rows: list[Row],
    columns: Mapping[str, Callable[[Any], Any]],
    named: Callable[[Any], str],
    default: str,
) -> Listed[Row]:
    total, q, sort, page = len(rows), "", default, 1
    try:
        q, wanted, page = asked()
        _check_sort(f"{prefix}sort", wanted, columns)
        sort = wanted or default
    except BadQuery as wrong:
        page = 1
        context.list_faults[prefix] = wrong
    if q:
        rows = [row for row in rows if q.lower() in named(row).lower()]
    if sort:
        column = columns[sort.removeprefix("-")]
        known = [row for row in rows if column(row) is not None]
        known.sort(key=column, reverse=sort.startswith("-"))
        rows = known + [row for row in rows if column(row) is None]
    pages = max(1, -(-len(rows) // ROWS))
    page = min(page, pages)
    return {
        "rows": rows[(page - 1) * ROWS : page * ROWS],
        "total": total,
        "matched": len(rows),
        "page": page,
        "pages": pages,
        "sort": sort,
        "q": q,
    }


def _check_sort(name: str, wanted: str, columns: Iterable[str]) -> None:
    if wanted and wanted.removeprefix("-") not in columns:
        raise BadQuery(
            "%(name)s is %(sort)s; give one of %(columns)s, or - before it",
            name=name,
            sort=f"{wanted[:80]!r}",
            columns=", ".join(columns),
        )


def cut_at(most: int, count: int) -> Text | None:
    """A note that only the first rows are shown; None if all rows are shown."""
    if count <= most:
        return None
    return Text("the first %(shown)s of %(count)s", shown=f"{most:,}", count=f"{count:,}")


def as_of(context: RequestContext) -> Samples:
    """The state of the samples of a page: their time, and the brokers that did not answer."""
    collector = context.watched.collector
    times = [one.at_ms for one in collector.brokers.values() if one.at_ms is not None]
    return {
        "now_ms": now_ms(),
        "as_of_ms": min(times, default=None),
        "marks": [
            {
                "name": one.name,
                "id": one.broker_id,
                "address": one.address,
                "why": one.wrong,
                "since_ms": one.wrong_ms,
            }
            for one in collector.brokers.values()
            if one.wrong is not None
        ],
        "names_wrong": collector.wrong,
    }
