"""The pages of actions: form, preview, confirmation, result; redrives; definitions.

Each action has a form (GET) and two POST routes, which declare its right. All work without script.
The audit has a line before an action begins and another when it ended; without the first one
nothing is done.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from aiohttp import web

from ..access.audit import AuditFailed, Entry
from ..access.rights import Right
from ..actions.action import (
    Action,
    Changed,
    Outcome,
    Plan,
    Unfit,
    Values,
    apply,
    confirmed,
    preview,
)
from ..actions.definitions import export
from ..actions.redrive import Run
from ..texts import Text, text_of
from .pages_messages import condition
from .request_context import BadExpression, Forbidden, NotFound, RequestContext
from .routes import Route
from .site import Site

NAMES_MAX = 1_000  # of topics and groups that a form offers
AUDITED_MAX = 200  # outcomes of one action, of which the audit has each

log = logging.getLogger(__name__)


class Previewed(NamedTuple):
    """A plan that waits for its confirmation by the name `ident`."""

    ident: str
    values: dict[str, Any]
    plan: Plan


class Done(NamedTuple):
    """The result of a confirmed action: its outcomes, or the run that goes on. `fault` says why the
    audit lacks the result."""

    outcomes: list[Outcome]
    run: Run | None = None
    fault: str | None = None


class ActionPages:
    """The actions of a console."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._access = site.access
        self.registry = site.registry
        self._ends: set[asyncio.Task[None]] = set()

    def routes(self) -> list[Route]:
        """The routes of actions (form, preview, confirmation), of redrives and of definitions."""
        found = [
            Route("GET", "/actions", Right.OPERATE, self._list),
            Route("GET", "/redrives", Right.OPERATE, self._redrives),
            Route("GET", "/redrives/run", Right.OPERATE, self._run),
            Route("GET", "/redrives/file", Right.OPERATE, self._file),
            Route("POST", "/redrives/stop", Right.OPERATE, self._stop),
            Route("GET", "/definitions", Right.VIEW, self._definitions),
        ]
        for action in self.registry.actions.values():
            path = f"/act/{action.name}"
            found += [
                Route("GET", path, action.right, partial(self._form, action)),
                Route("POST", f"{path}/preview", action.right, partial(self._preview, action)),
                Route("POST", f"{path}/confirm", action.right, partial(self._confirm, action)),
            ]
        return found

    async def close(self) -> None:
        """End the redrives, each with its line of the audit."""
        await self.registry.redrives.close()
        if self._ends:
            await asyncio.gather(*self._ends)

    # --- one action -----------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.StreamResponse:
        context = self.request_context(request, request.query)
        found = [
            one for one in self.registry.actions.values() if context.visitor.right >= one.right
        ]
        return self._site.page(request, context, "actions", Text("Actions"), {"actions": found})

    async def _form(self, action: Action, request: web.Request) -> web.StreamResponse:
        context = self.request_context(request, request.query)
        given = {one.name: one.default for one in action.fields}
        if action.prefill is not None and any(request.query.get(one.name) for one in action.fields):
            context.must_act(action, request.query)
            try:
                given |= await action.prefill(context.watched, request.query)
            except Unfit as wrong:
                faults = {wrong.field or "": text_of(wrong)}
                return self._form_page(request, context, action, given, faults, 404)
        with suppress(Changed):  # used, or too old
            kept = self.registry.previews.find(
                context.text("preview"), action, context.watched.name, context.visitor.name
            )
            given |= {one.name: one.written(kept.values[one.name]) for one in action.fields}
        given |= {
            one.name: context.text(one.name) for one in action.fields if one.name in request.query
        }
        return self._form_page(request, context, action, given)

    def _form_page(
        self,
        request: web.Request,
        context: RequestContext,
        action: Action,
        given: Mapping[str, str],
        faults: Mapping[str, str] = MappingProxyType({}),
        status: int = 200,
    ) -> web.Response:
        """The form, as it was filled in, with its faults by field; "" is that of the whole."""
        shown = {
            one.name: "" if one.kind == "secret" else given.get(one.name, "")
            for one in action.fields
        }
        data = {
            "action": action,
            "given": shown,
            "faults": faults,
            "names": {
                "topics": [row.name for row in context.topics("users")][:NAMES_MAX],
                "groups": [*context.group_rows()][:NAMES_MAX],
                "brokers": [one.name for one in context.masters()],
            },
        }
        return self._site.page(request, context, "act_form", action.title, data, status)

    async def planned(self, action: Action, context: RequestContext) -> Previewed:
        """The plan for the fields of a visit, kept for its confirmation. Unfit, Forbidden."""
        values = action.read(context.query)
        if "where" in values:
            condition(context)  # bodies may be hidden from this visitor
        context.must_act(action, values)
        plan = await preview(action, context.watched, values, {})
        _must_all(context, action, plan)
        visitor = context.visitor.name
        ident = self.registry.previews.keep(action, context.watched.name, visitor, values, plan)
        return Previewed(ident, values, plan)

    async def _preview(self, action: Action, request: web.Request) -> web.StreamResponse:
        fields = await self._fields(request)
        context = self.request_context(request, fields)
        try:
            made = await self.planned(action, context)
        except (Unfit, BadExpression) as wrong:
            field = "where" if isinstance(wrong, BadExpression) else wrong.field
            faults = action.faults(fields) or {field or "": text_of(wrong)}
            return self._form_page(request, context, action, fields, faults, 400)
        return self._preview_page(request, context, action, made)

    def _preview_page(
        self,
        request: web.Request,
        context: RequestContext,
        action: Action,
        made: Previewed,
        typed: str = "",
        fault: str | None = None,
    ) -> web.Response:
        """What would change; with `typed`, and the fault of that, once it was confirmed wrongly."""
        values = made.values
        data = {
            "action": action,
            "plan": made.plan,
            "preview": made.ident,
            "wanted": str(values[action.typed]) if action.typed else None,
            "sentence": made.plan.sentence or _sentence(action, values),
            "typed": typed,
            "fault": fault,
        }
        status = 200 if fault is None else 400
        return self._site.page(request, context, "act_preview", action.title, data, status)

    async def done(self, action: Action, context: RequestContext) -> Done:
        """Do what the preview showed that the fields of a visit confirm. Changed, Unfit."""
        previews = self.registry.previews
        ident = context.query.get("preview", "")
        kept = previews.find(ident, action, context.watched.name, context.visitor.name)
        values = kept.values
        context.must_act(action, values)
        wanted = str(values[action.typed]) if action.typed else ""
        if context.query.get("typed", "").strip() != wanted:
            raise Unfit(
                "what was typed is not %(wanted)s; type it, nothing was done",
                wanted=f"{wanted[:300]!r}",
            ).at("typed")
        previews.drop(ident)
        entry = await self._access.audit.begin(
            context.visitor,
            context.watched.name,
            action.name,
            action.target(values),
            action.details(values),
        )
        try:
            plan = await confirmed(action, context.watched, values, kept.pins, kept.fingerprint)
            _must_all(context, action, plan)
            if action.start is not None:
                run = action.start(context.watched, values, plan)
                self._end_later(entry, run)
                return Done([], run)
            outcomes = await apply(plan.changes)
        except BaseException as wrong:
            await self._end(entry, {"not done": str(wrong) or type(wrong).__name__})
            raise
        return Done(outcomes, fault=await self._end(entry, told(outcomes)))

    async def _confirm(self, action: Action, request: web.Request) -> web.StreamResponse:
        context = self.request_context(request, await self._fields(request))
        try:
            done = await self.done(action, context)
        except Unfit as wrong:
            if wrong.field != "typed":
                raise
            ident = context.query.get("preview", "")
            kept = self.registry.previews.find(
                ident, action, context.watched.name, context.visitor.name
            )
            made = Previewed(ident, kept.values, kept.plan)
            typed = context.query.get("typed", "")
            return self._preview_page(request, context, action, made, typed, text_of(wrong))
        if done.run is not None:
            return self._to_run(done.run)
        data = {
            "action": action,
            "outcomes": done.outcomes,
            "counts": counts_of(done.outcomes),
            "fault": done.fault,
        }
        return self._site.page(request, context, "act_result", action.title, data)

    async def _end(self, entry: Entry, result: object) -> str | None:
        """Write how an action ended; why that was not possible."""
        try:
            await self._access.audit.end(entry, result)
        except AuditFailed as wrong:
            log.error("an action has ended: %s", wrong)
            return Text(
                "the action was done, but its result is not in the audit: %(wrong)s", wrong=wrong
            )
        return None

    def _end_later(self, entry: Entry, run: Run) -> None:
        async def end() -> None:
            await run.finished.wait()
            counts = run.counts
            await self._end(
                entry,
                {
                    "phase": run.phase.value,
                    "why": run.why,
                    "sent": counts.sent,
                    "skipped": counts.skipped,
                    "refused": counts.refused,
                    "unknown": counts.unknown,
                    "file": run.file,
                },
            )

        task = asyncio.create_task(end())
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    # --- redrives -------------------------------------------------------------------------------

    async def _redrives(self, request: web.Request) -> web.StreamResponse:
        context = self.request_context(request, request.query)
        runs = [
            one
            for one in self.registry.redrives.runs(context.watched.name)
            if context.may(Right.OPERATE, group=one.group)
        ]
        return self._site.page(request, context, "redrives", Text("Redrives"), {"runs": runs})

    async def _run(self, request: web.Request) -> web.StreamResponse:
        context, run = self.run_of(request, request.query)
        return self._site.page(
            request, context, "redrive", Text("Redrive of %(group)s", group=run.group), {"run": run}
        )

    async def stop(self, context: RequestContext, run: Run) -> None:
        """End a run after the letter in hand."""
        entry = await self._access.audit.begin(
            context.visitor, context.watched.name, "redrive-stop", run.group, {"run": run.ident}
        )
        run.stop()
        await self._end(entry, "it ends after the letter in hand")

    async def _stop(self, request: web.Request) -> web.StreamResponse:
        context, run = self.run_of(request, await self._fields(request))
        await self.stop(context, run)
        return self._to_run(run)

    def _to_run(self, run: Run) -> web.Response:
        where = f"{self._site.base}/redrives/run?cluster={run.cluster}&run={run.ident}"
        return web.Response(status=303, headers={"Location": where})

    async def _file(self, request: web.Request) -> web.StreamResponse:
        _, run = self.run_of(request, request.query)
        if not await asyncio.to_thread(Path(run.file).exists):
            raise NotFound(Text("the run has no file yet"))
        name = f"redrive-{run.ident}.jsonl"
        headers = {
            "Content-Disposition": f'attachment; filename="{name}"',
            "Content-Type": "application/x-ndjson",
        }
        return web.FileResponse(run.file, headers=headers)

    def run_of(self, request: web.Request, fields: Mapping[str, str]) -> tuple[RequestContext, Run]:
        """The visit, and the run that its fields name. NotFound, Forbidden."""
        context = self.request_context(request, fields)
        run = self.registry.redrives.run(fields.get("run", ""))
        if run is None or run.cluster != context.watched.name:
            raise NotFound(Text("there is no such run since the console's start; see Redrives"))
        context.must(Right.OPERATE, group=run.group)
        return context, run

    # --- definitions ----------------------------------------------------------------------------

    async def _definitions(self, request: web.Request) -> web.StreamResponse:
        context = self._site.request_context(request, request.query)
        if context.visitor.is_limited:
            raise Forbidden(
                "an export has all topics and groups, and %(name)s may not see all of "
                "them; log in as another user",
                name=context.visitor.name,
            )
        text, faults = await export(context.watched)
        if faults and request.query.get("partly") != "1":
            data = {"faults": faults}
            return self._site.page(request, context, "definitions", Text("Export"), data, 502)
        name = f"definitions-{context.watched.name}.json"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return web.Response(text=text, content_type="application/json", headers=headers)

    # --- inside ---------------------------------------------------------------------------------

    def request_context(self, request: web.Request, fields: Mapping[str, str]) -> RequestContext:
        """The visit of a request that acts. Forbidden."""
        if self._access.is_read_only:
            raise Forbidden(
                Text("this console only reads (--read-only); start it without that option")
            )
        return self._site.request_context(request, fields)

    async def _fields(self, request: web.Request) -> dict[str, str]:
        guard = self._access.guard
        return await guard.form(request, guard.session_of(request))


def _sentence(action: Action, values: Values) -> Text:
    """What an action does, where its plan does not say so itself."""
    title, target = Text(action.title), action.target(values)
    return title if target == title else Text("%(title)s: %(target)s", title=title, target=target)


def told(outcomes: list[Outcome]) -> dict[str, Any]:
    """Outcomes for the audit: counts, and each of the first ones."""
    return {
        "counts": counts_of(outcomes),
        "places": [[one.place, one.state.value, one.remark] for one in outcomes[:AUDITED_MAX]],
    }


def counts_of(outcomes: list[Outcome]) -> dict[str, int]:
    """The number of outcomes by state."""
    return dict(Counter(one.state.value for one in outcomes))


def _must_all(context: RequestContext, action: Action, plan: Plan) -> None:
    for topic in sorted(plan.topics):
        context.must(action.right, topic=topic)
