"""The export of a search: a file that is written while the search runs."""

import asyncio
import logging
from contextlib import aclosing

from aiohttp import web

from ..access.audit import AuditFailed, Entry
from ..access.rights import Right
from ..messages.export import BYTES_MAX, FORMATS, MESSAGES_MAX, Lines, exported
from ..messages.search import Progress
from ..texts import refusal
from .pages_messages import broker_names, broker_of, condition, found_records
from .request_context import BadQuery, RequestContext
from .routes import Route
from .site import Site, headers

EXPORTS_MAX = 4  # at once
WRITE_SECONDS = 60.0  # until a visitor that reads nothing is given up
CHUNK_BYTES = 64 << 10

log = logging.getLogger(__name__)


class Exports:
    """The exports of a console."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._access = site.access
        self._running = 0

    def routes(self) -> list[Route]:
        """The routes of exports: one for the page, one for programs."""
        return [
            Route("GET", "/search/export", Right.VIEW, self._export),
            Route("GET", "/api/search/export", Right.VIEW, self._export),
        ]

    async def _export(self, request: web.Request) -> web.StreamResponse:
        context = self._site.request_context(request, request.query)
        topic, kind = context.topic(), context.text("format", "jsonl")
        context.must(Right.VIEW, topic=topic)
        if kind not in FORMATS:
            raise BadQuery(
                "format is %(kind)s; give one of %(formats)s",
                kind=f"{kind[:80]!r}",
                formats=", ".join(FORMATS),
            )
        condition(context)  # its fault is an answer, not a cut file
        if self._running >= EXPORTS_MAX:
            raise refusal(
                web.HTTPTooManyRequests,
                "%(count)s exports run, the limit is %(limit)s; wait for one",
                count=self._running,
                limit=EXPORTS_MAX,
            )
        self._running += 1
        try:
            names = ("where", "begin", "end", "format")
            details = {name: context.text(name) for name in names if context.text(name)}
            entry = await self._access.audit.begin(
                context.visitor, context.watched.name, "search-export", topic, details
            )
            told: dict[str, object] = {}
            try:
                answer = await self._write(request, context, kind, told)
            except BaseException as wrong:
                if not told:
                    told["not done"] = str(wrong) or type(wrong).__name__
                raise
            finally:
                await self._end(entry, told)
            await answer.write_eof()
            return answer
        finally:
            self._running -= 1

    async def _end(self, entry: Entry, told: dict[str, object]) -> None:
        try:
            await self._access.audit.end(entry, told)
        except AuditFailed as wrong:
            log.error("an export has ended: %s", wrong)

    async def _write(
        self, request: web.Request, context: RequestContext, kind: str, told: dict[str, object]
    ) -> web.StreamResponse:
        most = context.number("limit", MESSAGES_MAX, 1, MESSAGES_MAX)
        names, lines = broker_names(context), Lines(kind)
        async with aclosing(found_records(context, most)) as steps:
            first = await anext(steps, None)  # a fault of the query comes before the head
            answer = web.StreamResponse(headers=headers())
            answer.content_type, answer.charset = FORMATS[kind], "utf-8"
            answer.headers["Content-Disposition"] = f'attachment; filename="messages.{kind}"'
            told |= {"messages": 0, "not whole": "it was cut off"}
            await answer.prepare(request)
            waiting, size, count = bytearray(lines.head()), 0, 0
            last, why, step = Progress(), None, first
            while step is not None:
                if isinstance(step, Progress):
                    last, why = step, step.why
                    if not self._access.sessions.is_open(context.session):
                        why = "the session has ended"
                        break
                else:
                    line = lines.line(
                        exported(step, broker_of(step, names), context.visitor.bodies)
                    )
                    if size + len(line) > BYTES_MAX:
                        why = f"the file has {size:,} bytes, the limit is {BYTES_MAX:,}"
                        break
                    waiting += line
                    size, count = size + len(line), count + 1
                if len(waiting) >= CHUNK_BYTES:
                    await put(answer, bytes(waiting))
                    waiting.clear()
                step = await anext(steps, None)
        await put(answer, bytes(waiting) + lines.end(last, why))
        told |= {"messages": count, "not whole": why}
        return answer


async def put(answer: web.StreamResponse, data: bytes) -> None:
    """Write to the visitor. ConnectionResetError where nothing is read for `WRITE_SECONDS`."""
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            await answer.write(data)
    except TimeoutError:
        raise ConnectionResetError(f"the visitor read nothing for {WRITE_SECONDS:g} s") from None
