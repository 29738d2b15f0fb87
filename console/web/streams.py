"""The pages of messages that are written as they come: searches and live views."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from aiohttp import web

from ..access.rights import Right
from ..messages.search import BadCursor, Progress
from ..messages.tail import tail as follow
from ..texts import refusal, status_of, text_of
from . import pages_messages
from .pages_export import put
from .request_context import ROWS, BadExpression, BadQuery, NotFound, RequestContext
from .routes import SEARCH, TAIL, Page, Route, View
from .site import Site, headers

TAILS_MAX = 20

Seen = Callable[[View, RequestContext], Awaitable[Mapping[str, Any]]]


class Streams:
    """The page Messages, and its streams. `seen` asks a view within the limits of all pages."""

    def __init__(self, site: Site, seen: Seen) -> None:
        self._site = site
        self._seen = seen
        self._tails = 0

    def routes(self) -> list[Route]:
        """The routes of searches and live views."""
        return [
            Route("GET", "/search", Right.VIEW, self._search),
            Route("GET", "/tail/events", Right.VIEW, self._tail),
        ]

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """The search bar with the newest messages, or the ones with a key; what is to be searched
        is found at /search."""
        _check_topic(request)
        context = self._site.request_context(request, request.query, SEARCH)
        if context.text("topic") and pages_messages.is_search(context):
            raise web.HTTPSeeOther(f"{self._site.base}/search?{request.query_string}")
        try:
            data = await self._seen(pages_messages.messages, context)
        except (BadQuery, BadCursor, NotFound) as wrong:
            return self._again(request, context, wrong)
        return self._site.page(request, context, "messages", SEARCH.title, data)

    async def tail(self, request: web.Request) -> web.StreamResponse:
        """The page of a live view, whose rows come from /tail/events."""
        _check_topic(request)
        context = self._site.request_context(request, request.query, TAIL)
        try:
            data = await self._seen(pages_messages.tail, context)
        except BadExpression as wrong:
            return self._again(request, context, wrong, TAIL)
        return self._site.page(request, context, TAIL.path, TAIL.title, data)

    def _again(
        self,
        request: web.Request,
        context: RequestContext,
        wrong: BadQuery | BadCursor | NotFound,
        page: Page = SEARCH,
    ) -> web.Response:
        """The search bar as it was filled in, with the fault."""
        data = {
            **pages_messages.form(context),
            "found": [],
            "progress": None,
            "fault": text_of(wrong),
            "at": wrong.at if isinstance(wrong, BadExpression) else None,
        }
        return self._site.page(request, context, page.path, page.title, data, status_of(wrong))

    async def _search(self, request: web.Request) -> web.StreamResponse:
        """The page of a search: rows and progress are written as they come."""
        _check_topic(request)
        context = self._site.request_context(request, request.query, SEARCH)
        if not pages_messages.is_search(context):
            raise web.HTTPSeeOther(f"{self._site.base}/messages?{request.query_string}")
        async with aclosing(pages_messages.found_in(context, ROWS)) as steps:
            try:  # the first step comes before the head, so that a fault of the query is a page
                first = await anext(steps, None)
            except (BadQuery, BadCursor, NotFound) as wrong:
                return self._again(request, context, wrong)
            answer = web.StreamResponse(headers=headers())
            answer.content_type, answer.charset = "text/html", "utf-8"
            await answer.prepare(request)
            values = self._site.template_values(request, context, "messages", SEARCH.title)
            values["data"] = pages_messages.form(context)
            module: Any = self._site.template(request, "search").make_module(values)
            await put(answer, str(module.head()).encode())
            last, step = Progress(), first
            while step is not None:
                if isinstance(step, Progress):
                    last = step
                    await put(answer, str(module.progress(step)).encode())
                else:
                    await put(answer, str(module.row(step)).encode())
                step = await anext(steps, None)
        await put(answer, str(module.foot(last)).encode())
        await answer.write_eof()
        return answer

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        """Rows of a live view as server-sent events."""
        context = self._site.request_context(request, request.query, TAIL)
        if self._tails >= TAILS_MAX:
            raise refusal(
                web.HTTPTooManyRequests,
                "%(count)s live views are open, the limit is %(limit)s; close one",
                count=self._tails,
                limit=TAILS_MAX,
            )
        matches, topic = pages_messages.condition(context), context.topic()
        names = pages_messages.broker_names(context)
        module: Any = self._site.template(request, "tail_rows").make_module(
            self._site.template_values(request, context, "tail", "Live tail")
        )
        self._tails += 1
        try:
            answer = web.StreamResponse(headers=headers())
            answer.content_type, answer.charset = "text/event-stream", "utf-8"
            await answer.prepare(request)
            idle = -1  # the first line comes once the ends of the queues are known
            absent = partial(pages_messages.absent, context)
            async for step in follow(context.watched.reader, topic, matches, absent):
                if not self._site.access.sessions.is_open(context.session):
                    break
                has_news = bool(step.seen or step.gone or step.back)
                idle = 0 if has_news else idle + 1
                if has_news:
                    rows = [
                        pages_messages.row_of(
                            one, pages_messages.broker_of(one, names), context.visitor.bodies
                        )
                        for one in step.records
                    ]
                    await answer.write(_event(str(module.rows(rows, step))))
                elif idle % 50 == 0:
                    await answer.write(b": idle\n\n")
            return answer
        finally:
            self._tails -= 1


def _check_topic(request: web.Request) -> None:
    """Lead to the same address without blanks around the topic, which is typed."""
    topic = request.query.get("topic", "")
    if topic != topic.strip():
        raise web.HTTPSeeOther(str(request.rel_url.update_query(topic=topic.strip())))


def _event(text: str) -> bytes:
    return "".join(f"data: {line}\n" for line in text.splitlines() if line.strip()).encode() + b"\n"
