"""Actions for programs: JSON with name and password, previewed and confirmed as on the pages.

Rights, previews, audit and refusals are those of the pages. A field that is not given is as the
form of the page has it: the present value of what is changed, or the default.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import web

from ..access.guard import Guard
from ..access.rights import Right
from ..actions.action import Action, Unfit
from ..actions.redrive import Run
from . import answers
from .pages_actions import ActionPages, counts_of
from .rendering import to_json
from .routes import Route


class ApiActions:
    """The actions under /api, done by `action_pages`."""

    def __init__(self, action_pages: ActionPages, guard: Guard) -> None:
        self._action_pages = action_pages
        self._guard = guard

    def routes(self) -> list[Route]:
        """The routes of each action's preview and confirmation, and of redrives' runs."""
        found = [
            Route("GET", "/api/redrives/run", Right.OPERATE, self._run),
            Route("POST", "/api/redrives/stop", Right.OPERATE, self._stop),
        ]
        for action in self._action_pages.registry.actions.values():
            path = f"/api/act/{action.name}"
            found += [
                Route("POST", f"{path}/preview", action.right, partial(self._preview, action)),
                Route("POST", f"{path}/confirm", action.right, partial(self._confirm, action)),
            ]
        return found

    async def _preview(self, action: Action, request: web.Request) -> web.StreamResponse:
        fields = await self._fields(request, {one.name for one in action.fields})
        context = self._action_pages.request_context(request, request.query)
        given = {one.name: one.default for one in action.fields}
        if action.prefill is not None:
            context.must_act(action, fields)
            given |= await action.prefill(context.watched, fields)
        made = await self._action_pages.planned(action, replace(context, query=given | fields))
        plan = made.plan
        answer: answers.Preview = {
            "preview": None if plan.refusals else made.ident,
            "typed": action.wanted(made.values),
            "changes": [
                {"place": one.place, "now": one.before, "then": one.after, "note": one.note}
                for one in plan.changes
            ],
            "notes": plan.notes,
            "refusals": plan.refusals,
        }
        return _json(answer)

    async def _confirm(self, action: Action, request: web.Request) -> web.StreamResponse:
        fields = await self._fields(request, {"preview", "typed"})
        context = self._action_pages.request_context(request, request.query)
        confirming = replace(context, query=fields)
        made = self._action_pages.kept_preview(confirming, action)
        done = await self._action_pages.done(action, confirming, made)
        answer: answers.Confirmation = {
            "outcomes": [
                {
                    "place": one.place,
                    "what": one.after,
                    "result": one.state.value,
                    "remark": one.remark,
                }
                for one in done.outcomes
            ],
            "counts": counts_of(done.outcomes),
            "run": None if done.run is None else told_run(done.run),
            "fault": done.fault,
        }
        return _json(answer)

    async def _run(self, request: web.Request) -> web.StreamResponse:
        _, run = self._action_pages.run_of(request, request.query)
        return _json(told_run(run))

    async def _stop(self, request: web.Request) -> web.StreamResponse:
        fields = await self._fields(request, {"run"})
        context, run = self._action_pages.run_of(request, dict(request.query) | fields)
        await self._action_pages.stop(context, run)
        return _json(told_run(run))

    async def _fields(self, request: web.Request, names: set[str]) -> dict[str, str]:
        """The fields of the body; Unfit for one that is not among `names`."""
        fields = await self._guard.json_form(request)
        for name in fields.keys() - names:
            raise Unfit(
                "there is no field %(name)s; give some of %(names)s, and the cluster in the "
                "address",
                name=f"{name[:80]!r}",
                names=", ".join(sorted(names)),
            )
        return fields


def told_run(run: Run) -> answers.Redrive:
    """A redrive for programs."""
    return {
        "run": run.ident,
        "group": run.group,
        "target": run.target,
        "phase": run.phase.value,
        "why": run.why,
        "total": run.total,
        "counts": run.counts,
        "file": run.file,
    }


def _json(value: Mapping[str, Any]) -> web.Response:
    return web.Response(body=to_json(value), content_type="application/json")
