"""What the pages of a console are made with: the visit of a request, templates and headers."""

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from jinja2 import Template

from ..access.access import Access
from ..access.cluster_users import ClusterUser
from ..access.rights import Right
from ..access.sessions import Session
from ..actions.registry import ActionRegistry
from ..clusters.clusters import Clusters
from ..messages.searches import Searches
from ..messages.shown import Types
from ..texts import Text, refusal
from .languages import LANGUAGES, chosen
from .rendering import environment, linker
from .request_context import BadQuery, Forbidden, RequestContext, as_of, paged
from .routes import ACTING, PAGES, PARENTS, Page
from .themes import THEMES, chosen_theme

REFRESH_SECONDS = 10  # after which an open page asks for its figures again
COMPILE_PAUSE_SECONDS = 0.1  # between two templates, a few ms each
nonce: ContextVar[str] = ContextVar("nonce")  # of the scripts of the present response
# Of the present request, once it was checked.
session: ContextVar[Session | None] = ContextVar("session", default=None)
# What a browser may do with a page.
POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types htmx"
)
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",  # with no-referrer a form has no Origin
    "Server": "aerobee",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Site:
    """`base` is the path before all others, such as /console; `types` are those of bodies."""

    def __init__(
        self,
        clusters: Clusters,
        access: Access,
        registry: ActionRegistry,
        base: str,
        types: Types | None,
    ) -> None:
        self.clusters = clusters
        self.access = access
        self.registry = registry
        self.base = base
        self.url = ""  # for a browser on this machine, once the console listens
        self.searches = Searches(types)
        self._types = types
        self._templates = {one.code: environment(one) for one in LANGUAGES}

    def request_context(
        self, request: web.Request, query: Mapping[str, str], page: Page | None = None
    ) -> RequestContext:
        """The context of a request. Raises BadQuery for a cluster that is not watched, and
        Forbidden for what the visitor may not do."""
        found = session.get()
        if found is None:
            raise refusal(web.HTTPUnauthorized, "the session has ended; log in again")
        visitor = found.visitor
        name = query.get("cluster", visitor.cluster or next(iter(self.clusters.by_name)))
        watched = self.clusters.by_name.get(name)
        if watched is None:
            known = ", ".join(self.clusters.by_name)
            raise BadQuery(
                "cluster is %(name)s; this console watches %(known)s",
                name=f"{name[:80]!r}",
                known=known,
            )
        if isinstance(found.signed, ClusterUser) and visitor.cluster == name:
            watched = found.signed.watched
        context = RequestContext(
            self.clusters, watched, query, found, self.access, self.searches, self._types
        )
        context.must(Right.VIEW)
        if page is not None:
            topic = query.get(page.topic) if page.topic else None
            group = query.get(page.group) if page.group else None
            if page.right > Right.VIEW or topic or group:
                context.must(page.right, topic=topic or None, group=group or None)
            if page.of_all and visitor.is_limited:
                raise Forbidden(
                    "%(title)s is about all topics and groups, and %(name)s may not see all "
                    "of them; log in as another user",
                    title=Text(page.title),
                    name=visitor.name,
                )
        return context

    async def compile(self) -> None:
        """Compile all templates before they are wanted, as the first visit of a page would spend
        most of its time with that. The pauses leave the first samples and visits their time."""
        for found in self._templates.values():
            for name in found.list_templates():
                await asyncio.sleep(COMPILE_PAUSE_SECONDS)
                found.get_template(name)

    def template_values(
        self, request: web.Request, context: RequestContext, path: str, title: str
    ) -> dict[str, Any]:
        """The values that a template of a visit gets beside its data."""
        return {
            **self._page_of(request),
            "here": _here(request, context),
            "actions": self.registry.actions,
            "cluster": context.watched.name,
            "clusters": [
                name
                for name in self.clusters.by_name
                if context.visitor.may(Right.VIEW, cluster=name)
            ],
            "link": linker(self.base, context.watched.name),
            "request_context": context,
            "menu": self._menu(context),
            "parent": PARENTS.get(path, ""),
            "paged": partial(paged, context),
            "may_act": partial(self._may_act, context),
            "may_audit": context.may(Right.ADMINISTER),
            "nonce": nonce.get(),
            "path": path,
            "query": dict(context.query),
            "same": partial(_same, self.base, path, context),
            "refresh_s": REFRESH_SECONDS,
            "samples": as_of(context),
            "self_url": str(request.rel_url),
            "title": title,
            "token": context.session.token,
            "visitor": context.visitor,
            "is_read_only": self.access.is_read_only,
        }

    def _page_of(self, request: web.Request) -> dict[str, Any]:
        """The variables of every page, also without a session."""
        return {
            "base": self.base,
            "language": chosen(request),
            "languages": LANGUAGES,
            "theme": chosen_theme(request),
            "themes": THEMES,
        }

    def template(self, request: web.Request, name: str) -> Template:
        """A template in the visitor's language."""
        return self._templates[chosen(request).code].get_template(f"{name}.html")

    def page_without_session(
        self,
        request: web.Request,
        template: str,
        title: str,
        data: dict[str, Any],
        status: int = 200,
    ) -> web.Response:
        """A page outside of a session, which knows nothing of the clusters."""
        after = urlencode({"next": data["next"]}) if data.get("next") else ""
        values = {
            **self._page_of(request),
            "here": f"{self.base}/login?{after}",
            "nonce": nonce.get(),
            "title": title,
            "data": {"error": None, **data},
        }
        text = self.template(request, template).render(values)
        return web.Response(text=text, content_type="text/html", status=status)

    def page(
        self,
        request: web.Request,
        context: RequestContext,
        path: str,
        title: str,
        data: Mapping[str, Any],
        status: int = 200,
        here: str | None = None,
    ) -> web.Response:
        """A page of a visit. `here` is its address, where that is not the request's. With a list
        that is not as it was asked for, the status is 400."""
        values = self.template_values(request, context, path, title)
        if here is not None:
            values["here"] = here
        text = self.template(request, path).render(values | {"data": data})
        if context.list_faults:
            status = max(status, 400)
        return web.Response(text=text, content_type="text/html", status=status)

    def _menu(self, context: RequestContext) -> dict[str, list[Page]]:
        """The pages in the menu of this visitor, by heading."""
        found = [page for page in PAGES if not page.parent and context.may(page.right)]
        if not self.access.is_read_only and context.visitor.right >= Right.OPERATE:
            found += ACTING
        return {name: list(pages) for name, pages in groupby(found, attrgetter("section"))}

    def _may_act(self, context: RequestContext, name: str, query: Mapping[str, Any]) -> bool:
        """True if the visitor may do this action on the topics and groups that `query` names."""
        if self.access.is_read_only:
            return False
        action = self.registry.actions[name]
        try:
            context.must_act(action, query)
        except Forbidden:
            return False
        return True


def _same(base: str, path: str, context: RequestContext, changes: Mapping[str, Any]) -> str:
    """A link to the present page with some parameters changed; None takes one away."""
    return linker(base, context.watched.name)(path, **{**context.query, **changes})


def _here(request: web.Request, context: RequestContext) -> str:
    """The page to see again in another language; of the answer to a form, the page before it."""
    if request.method == "GET":
        return str(request.rel_url)
    return str(request.rel_url.parent.with_query(cluster=context.watched.name))


def headers() -> dict[str, str]:
    """The headers of the present response."""
    return {**HEADERS, "Content-Security-Policy": POLICY.format(nonce=nonce.get())}
