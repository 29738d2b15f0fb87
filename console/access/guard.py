"""What every request must show before it is served: a name of the console as Host, a session, and
for a form the session's token and an Origin that is this site."""

import asyncio
import hmac
from collections.abc import Iterable
from urllib.parse import urlsplit

from aiohttp import web

from .hosts import HostList
from .sessions import Session, Sessions

TOKEN = "token"  # the field of forms  # noqa: S105
FORM_BYTES_MAX = 1 << 20
FORM_FIELDS_MAX = 200
FORM_SECONDS = 10.0  # for a form to arrive


class Guard:
    """`cookie` is the name of the session's cookie, `path` what it is for; `is_secure`: browsers
    send it with TLS only."""

    def __init__(
        self, sessions: Sessions, *, hosts: Iterable[str] = (), is_secure: bool = False
    ) -> None:
        self.sessions = sessions
        self.cookie = "aerobee-console"
        self.path = "/"
        self.is_secure = is_secure
        self._hosts = HostList(hosts)

    def check_host(self, request: web.Request) -> None:
        """HTTPMisdirectedRequest for a Host that is not one of the console's."""
        self._hosts.check(request)

    def session_of(self, request: web.Request) -> Session | None:
        """The session of a request's cookie. A request that a page makes by itself does not count
        as a visit."""
        is_visit = "HX-Request" not in request.headers
        return self.sessions.find(request.cookies.get(self.cookie, ""), is_visit=is_visit)

    def begin(self, request: web.Request, answer: web.StreamResponse, name: str) -> None:
        """Give the browser this session's id. The one that it had ends: an id that was planted in
        a browser never becomes a login's."""
        self.sessions.end(request.cookies.get(self.cookie, ""))
        answer.set_cookie(
            self.cookie,
            name,
            path=self.path,
            httponly=True,
            samesite="Strict",
            secure=self.is_secure,
        )

    def end(self, request: web.Request, answer: web.StreamResponse) -> None:
        """End the session of a request."""
        self.sessions.end(request.cookies.get(self.cookie, ""))
        answer.del_cookie(
            self.cookie, path=self.path, httponly=True, samesite="Strict", secure=self.is_secure
        )

    def check_origin(self, request: web.Request) -> None:
        """HTTPForbidden for a form of another site."""
        given = request.headers.getall("Origin", [])
        host = request.headers.get("Host", "").lower()
        site = request.headers.get("Sec-Fetch-Site", "same-origin")
        found = urlsplit(given[0]) if len(given) == 1 else None
        schemes = ("https",) if self.is_secure else ("http",)
        if (
            found is None
            or found.scheme not in schemes
            or found.netloc.lower() != host
            or site != "same-origin"
        ):
            raise web.HTTPForbidden(
                text=f"the form's Origin is {(given[0] if given else 'missing')[:200]!r}, and this "
                f"site is {schemes[0]}://{host}; send forms from the console's own pages only"
            )

    async def form(self, request: web.Request, session: Session | None) -> dict[str, str]:
        """The fields of a form without its token. HTTPForbidden when it comes from another site or,
        for a session, has not its token; HTTPBadRequest for fields that can't be used."""
        self.check_origin(request)
        if request.content_type != "application/x-www-form-urlencoded":
            raise web.HTTPUnsupportedMediaType(
                text=f"the form is {request.content_type}; send application/x-www-form-urlencoded"
            )
        try:
            async with asyncio.timeout(FORM_SECONDS):
                pairs = await request.post()
        except TimeoutError:
            raise web.HTTPRequestTimeout(
                text=f"the form did not arrive within {FORM_SECONDS:g} s; send it again"
            ) from None
        except (ValueError, LookupError):
            raise web.HTTPBadRequest(text="the form is no UTF-8; send it as UTF-8") from None
        if len(pairs) > FORM_FIELDS_MAX:
            raise web.HTTPBadRequest(
                text=f"the form has {len(pairs)} fields, the limit is {FORM_FIELDS_MAX}; send fewer"
            )
        fields: dict[str, str] = {}
        for key, value in pairs.items():
            if key in fields or not isinstance(value, str):
                raise web.HTTPBadRequest(
                    text=f"the field {key[:80]!r} is there twice; send it once"
                )
            fields[key] = value
        token = fields.pop(TOKEN, "")
        if session is not None and not hmac.compare_digest(token.encode(), session.token.encode()):
            raise web.HTTPForbidden(
                text="the form's token is not this session's; load the page again and send its form"
            )
        return fields
