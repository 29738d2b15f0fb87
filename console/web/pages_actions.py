"""The pages of actions: form, preview, confirmation, result; redrives; definitions.

Each action has a form, and two POST routes, which lead to the pages of its preview and its result;
all declare its right and work without script. What was typed is kept as a draft, also when the
session has ended in the meantime.
The audit has a line before an action begins and another when it ended; without the first one
nothing is done.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlencode

from aiohttp import web

from ...protocol.names import SYSTEM_GROUPS, is_system_group
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
from ..actions.drafts import KEPT_MS
from ..actions.kept import Kept, Owner
from ..actions.redrive import Run
from ..messages.fields import sought_by
from ..texts import Text, TextError, text_of
from .pages_messages import condition_of
from .request_context import BadExpression, Forbidden, NotFound, RequestContext
from .routes import Route
from .site import Site

NAMES_MAX = 1_000  # of topics and groups that a form offers
AUDITED_MAX = 200  # outcomes of one action, of which the audit has each
# Results that can be looked at again: their number, their outcomes in all, and how long.
RESULTS_MAX, OUTCOMES_MAX, RESULT_MS = 200, 50_000, 3_600_000

log = logging.getLogger(__name__)


class Previewed(NamedTuple):
    """A plan that waits for its confirmation by the name `ident`."""

    ident: str
    values: dict[str, Any]
    plan: Plan


class Done(NamedTuple):
    """The result of a confirmed action: its outcomes, or the run that goes on. `fault` says why the
    audit lacks the result, `topic` is the one of a sent message."""

    outcomes: list[Outcome]
    run: Run | None = None
    fault: str | None = None
    topic: str = ""


class ActionPages:
    """The actions of a console."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._access = site.access
        self.registry = site.registry
        self._ends: set[asyncio.Task[None]] = set()
        self._results: Kept[Done] = Kept(RESULTS_MAX, OUTCOMES_MAX, RESULT_MS)

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
                Route("GET", f"{path}/preview", action.right, partial(self._previewed, action)),
                Route("POST", f"{path}/confirm", action.right, partial(self._confirm, action)),
                Route("GET", f"{path}/result", action.right, partial(self._result, action)),
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
        if context.text("draft"):
            return self._draft_page(request, context, action)
        given = {one.name: one.default for one in action.fields}
        # Boxes of one name are values of one field.
        named = {
            one.name: ", ".join(request.query.getall(one.name))
            for one in action.fields
            if one.name in request.query
        }
        if action.prefill is not None and any(request.query.get(one.name) for one in action.fields):
            context.must_act(action, request.query)
            try:
                given |= await action.prefill(context.watched, request.query)
            except Unfit as wrong:
                faults = {wrong.field or "": text_of(wrong)}
                status = 400 if wrong.field else 404
                return self._form_page(request, context, action, given | named, faults, status)
        return self._form_page(request, context, action, given | named)

    def _draft_page(
        self, request: web.Request, context: RequestContext, action: Action
    ) -> web.Response:
        """The form as it was filled in before."""
        draft = self.registry.drafts.find(context.text("draft"), action, _owner(context, action))
        if draft is None:
            lost = Text(
                "what was typed is not kept any more, as it is older than %(hours)s hours, or "
                "another visitor's; fill in the form again",
                hours=KEPT_MS // 3_600_000,
            )
            given = {one.name: one.default for one in action.fields}
            return self._form_page(request, context, action, given, {"": lost})
        faults = draft.faults
        if draft.is_left:
            ended = Text("the session had ended, so that nothing was done; look at it again")
            faults = {"": ended}
        return self._form_page(request, context, action, draft.fields, faults)

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
                "groups": [one for one in context.group_rows() if not _is_own(one)][:NAMES_MAX],
                "brokers": [one.name for one in context.masters()],
            },
        }
        return self._site.page(request, context, "act_form", action.title, data, status)

    async def planned(self, action: Action, context: RequestContext) -> Previewed:
        """The plan for the fields of a visit, kept for its confirmation. Unfit, Forbidden."""
        values = action.read(context.query)
        if values.get("where"):  # bodies may be hidden from this visitor
            condition_of(context, sought_by(values["where"]).expression)
        context.must_act(action, values)
        plan = await preview(action, context.watched, values, {})
        _must_all(context, action, plan)
        ident = self.registry.previews.keep(_owner(context, action), values, plan)
        return Previewed(ident, values, plan)

    def kept_preview(self, context: RequestContext, action: Action) -> Previewed:
        """The preview that the parameter `preview` names. Changed, Forbidden."""
        ident = context.query.get("preview", "")
        kept = self.registry.previews.find(ident, _owner(context, action))
        context.must_act(action, kept.values)
        return Previewed(ident, kept.values, kept.plan)

    async def _preview(self, action: Action, request: web.Request) -> web.StreamResponse:
        fields = await self._fields(request)
        context = self.request_context(request, fields)
        try:
            made = await self.planned(action, context)
        except (Unfit, BadExpression) as wrong:
            field = "where" if isinstance(wrong, BadExpression) else wrong.field
            faults = action.faults(fields) or {field or "": text_of(wrong)}
            return self._form_page(request, context, action, fields, faults, 400)
        self.registry.drafts.keep(action, _owner(context, action), fields, ident=made.ident)
        raise self._to(context, action, "preview", preview=made.ident)

    async def _previewed(self, action: Action, request: web.Request) -> web.StreamResponse:
        context = self.request_context(request, request.query)
        try:
            made = self.kept_preview(context, action)
        except Changed as wrong:
            return self._again(request, context, action, wrong)
        return self._preview_page(request, context, action, made)

    def _again(
        self, request: web.Request, context: RequestContext, action: Action, wrong: TextError
    ) -> web.Response:
        """The form of a preview that can't be confirmed, as it was filled in, and why."""
        draft = self.registry.drafts.find(
            context.query.get("preview", ""), action, _owner(context, action)
        )
        if draft is None:
            raise wrong
        faults = {"": text_of(wrong)}
        return self._form_page(request, context, action, draft.fields, faults, wrong.status)

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
            "wanted": action.wanted(values),
            "sentence": made.plan.sentence or _sentence(action, values),
            "typed": typed,
            "fault": fault,
        }
        status = 200 if fault is None else 400
        here = self._address(context, action, "preview", preview=made.ident)
        return self._site.page(request, context, "act_preview", action.title, data, status, here)

    async def done(self, action: Action, context: RequestContext, made: Previewed) -> Done:
        """Do what a preview showed that the fields of a visit confirm. Changed, Unfit."""
        values = made.values
        wanted = action.wanted(values) or ""
        if context.query.get("typed", "").strip() != wanted:
            raise Unfit(
                "what was typed is not %(wanted)s; type it, nothing was done",
                wanted=f"{wanted[:300]!r}",
            ).at("typed")
        self.registry.previews.drop(made.ident)
        pins, fingerprint = made.plan.pins, made.plan.fingerprint
        entry = await self._access.audit.begin(
            context.visitor,
            context.watched.name,
            action.name,
            action.target(values),
            action.details(values),
        )
        try:
            plan = await confirmed(action, context.watched, values, pins, fingerprint)
            _must_all(context, action, plan)
            if action.start is not None:
                run = action.start(context.watched, values, plan)
                self._end_later(entry, run)
                return Done([], run)
            outcomes = await apply(plan.changes)
        except BaseException as wrong:
            await self._end(entry, {"not done": str(wrong) or type(wrong).__name__})
            raise
        fault = await self._end(entry, told(outcomes))
        sent_to = values["topic"] if action.name == "message-send" else ""
        return Done(outcomes, fault=fault, topic=sent_to)

    async def _confirm(self, action: Action, request: web.Request) -> web.StreamResponse:
        context = self.request_context(request, await self._fields(request))
        ident, owner = context.query.get("preview", ""), _owner(context, action)
        if self._results.find(ident, owner) is not None:  # it was sent twice
            raise self._to(context, action, "result", result=ident)
        try:
            made = self.kept_preview(context, action)
            done = await self.done(action, context, made)
        except (Unfit, Changed) as wrong:
            if isinstance(wrong, Changed) or wrong.field != "typed":
                return self._again(request, context, action, wrong)
            typed = context.query.get("typed", "")
            return self._preview_page(request, context, action, made, typed, text_of(wrong))
        if done.run is not None:
            return self._to_run(done.run)
        self._results.keep(done, owner, len(done.outcomes) + 1, ident)
        raise self._to(context, action, "result", result=ident)

    async def _result(self, action: Action, request: web.Request) -> web.StreamResponse:
        context = self.request_context(request, request.query)
        owner = _owner(context, action)
        done = self._results.find(context.text("result"), owner)
        if done is None:
            raise NotFound(
                "this result is not kept any more, as it is older than %(minutes)s minutes, or "
                "another visitor's; the audit has it",
                minutes=RESULT_MS // 60_000,
            )
        data = {
            "action": action,
            "outcomes": done.outcomes,
            "counts": counts_of(done.outcomes),
            "fault": done.fault,
            "topic": done.topic,
        }
        return self._site.page(request, context, "act_result", action.title, data)

    # --- drafts ---------------------------------------------------------------------------------

    async def left(self, request: web.Request) -> tuple[str, str]:
        """What becomes of a form that came without a session: the page to go on with after the
        login, empty where there is none, and what to say."""
        ended = Text("the session has ended; log in and send the form again")
        match request.path.removeprefix(f"{self._site.base}/").split("/"):
            case ["act", name, step] if name in self.registry.actions:
                action = self.registry.actions[name]
            case _:
                return "", ended
        try:
            fields = await self._access.guard.form(request, None)
        except web.HTTPException:  # no form of a browser's page
            return "", ended
        about = {"cluster": fields["cluster"]} if "cluster" in fields else {}
        if step == "confirm":
            draft = fields.get("preview", "")
        else:
            draft = self.registry.drafts.leave(action, fields)
        where = f"{self._site.base}/act/{name}?{urlencode({**about, 'draft': draft})}"
        return where, Text(
            "the session has ended, and nothing was done; what was typed is kept: log in, and "
            "preview it again"
        )

    def kept_form(self, request: web.Request, fields: Mapping[str, str]) -> str | None:
        """The address of the form of the action that the field `form` names, filled in with these
        fields; None where that is no form of an action."""
        action = self.registry.actions.get(fields.get("form", ""))
        session, cluster = self._access.session_of(request), fields.get("cluster", "")
        if action is None or (session is not None and session.visitor.right < action.right):
            return None
        drafts = self.registry.drafts
        if session is None:
            draft = drafts.leave(action, fields)
        else:
            faults = action.faults(fields) if fields.get("faulty") else {}
            draft = drafts.keep(
                action, (action.name, cluster, session.visitor.name), fields, faults
            )
        query = urlencode({"cluster": cluster, "draft": draft})
        return f"{self._site.base}/act/{action.name}?{query}"

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

    def _address(
        self, context: RequestContext, action: Action, step: str = "", **query: str
    ) -> str:
        """The address of a page of an action."""
        path = f"{self._site.base}/act/{action.name}" + (f"/{step}" if step else "")
        return f"{path}?{urlencode({'cluster': context.watched.name, **query})}"

    def _to(
        self, context: RequestContext, action: Action, step: str, **query: str
    ) -> web.HTTPSeeOther:
        """The way to a page that can be loaded again."""
        return web.HTTPSeeOther(self._address(context, action, step, **query))

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


def _is_own(group: str) -> bool:
    """True for a group of the system."""
    return group in SYSTEM_GROUPS or is_system_group(group)


def _owner(context: RequestContext, action: Action) -> Owner:
    """Whose previews, drafts and results those of a visit are."""
    return action.name, context.watched.name, context.visitor.name


def _must_all(context: RequestContext, action: Action, plan: Plan) -> None:
    for topic in sorted(plan.topics):
        context.must(action.right, topic=topic)
