"""What every request must show before it is served: a name of the console as Host, a session, and
for a form the session's token and an Origin that is this site."""

import asyncio
import hmac
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from ..texts import Text, refusal
from .sessions import Session, Sessions

TOKEN = "token"  # the field of forms  # noqa: S105
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
FORM_BYTES_MAX = 1 << 20
FORM_FIELDS_MAX = 200
FORM_SECONDS = 10.0  # for a form to arrive


class HostList:
    """The names by which browsers may ask for pages: those of the loopback and `more`.

    It keeps other sites from reaching a console on the loopback by a name that they point there
    (DNS rebinding).
    """

    def __init__(self, more: Iterable[str] = ()) -> None:
        self._names = {*LOOPBACK_NAMES, *(name.lower() for name in more)}

    def check(self, request: web.Request) -> None:
        """HTTPMisdirectedRequest for another name."""
        given = request.headers.getall("Host", [])
        name = given[0].lower() if len(given) == 1 else ""
        host, colon, port = name.rpartition(":")
        if colon and (port.isdecimal() or not port):
            name = host
        if name not in self._names:
            raise web.HTTPMisdirectedRequest(
                text=f"the console does not answer to this Host; it answers to "
                f"{', '.join(sorted(self._names))}: add yours with --host"
            )


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
        self.hosts = HostList(hosts)

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
            raise refusal(
                web.HTTPForbidden,
                "the form's Origin is %(given)s, and this site is %(site)s; send forms from "
                "the console's own pages only",
                given=f"{given[0][:200]!r}" if given else Text("missing"),
                site=f"{schemes[0]}://{host}",
            )

    async def json_form(self, request: web.Request) -> dict[str, str]:
        """The fields of a program's request, which is a JSON object, as a form has them.

        A page of another site can't send it: a browser asks before it sends JSON elsewhere, and a
        session's cookie does not count. HTTPUnauthorized without name and password,
        HTTPBadRequest for fields that can't be used."""
        if "Authorization" not in request.headers:
            raise refusal(
                web.HTTPUnauthorized,
                "a session of a browser does not act here; send name and password (Basic) "
                "with each request",
            )
        if request.content_type != "application/json":
            raise refusal(
                web.HTTPUnsupportedMediaType,
                "the body is %(kind)s; send application/json",
                kind=request.content_type,
            )
        try:
            async with asyncio.timeout(FORM_SECONDS):
                body = await request.read()
        except TimeoutError:
            raise _late() from None
        try:
            found = json.loads(body, object_pairs_hook=_once)
            if not isinstance(found, dict):
                raise ValueError(Text("it is no object"))
            fields = {key: _as_field(key, one) for key, one in found.items() if one is not None}
        except (ValueError, RecursionError) as wrong:
            raise refusal(
                web.HTTPBadRequest,
                "the body can't be used: %(wrong)s; send a JSON object of texts, whole "
                "numbers, true and false",
                wrong=wrong,
            ) from None
        _check_count(len(fields))
        return fields

    async def form(self, request: web.Request, session: Session | None) -> dict[str, str]:
        """The fields of a form without its token. HTTPForbidden when it comes from another site or,
        for a session, has not its token; HTTPBadRequest for fields that can't be used."""
        self.check_origin(request)
        if request.content_type != "application/x-www-form-urlencoded":
            raise refusal(
                web.HTTPUnsupportedMediaType,
                "the form is %(kind)s; send application/x-www-form-urlencoded",
                kind=request.content_type,
            )
        try:
            async with asyncio.timeout(FORM_SECONDS):
                pairs = await request.post()
        except TimeoutError:
            raise _late() from None
        except (ValueError, LookupError):
            raise refusal(web.HTTPBadRequest, "the form is no UTF-8; send it as UTF-8") from None
        _check_count(len(pairs))
        fields: dict[str, str] = {}
        for key, value in pairs.items():
            if key in fields or not isinstance(value, str):
                raise refusal(
                    web.HTTPBadRequest,
                    "the field %(key)s is there twice; send it once",
                    key=f"{key[:80]!r}",
                )
            fields[key] = value
        token = fields.pop(TOKEN, "")
        if session is not None and not hmac.compare_digest(token.encode(), session.token.encode()):
            raise refusal(
                web.HTTPForbidden,
                "the form's token is not this session's; load the page again and send its form",
            )
        return fields


def _late() -> web.HTTPException:
    return refusal(
        web.HTTPRequestTimeout,
        "the form did not arrive within %(seconds)s s; send it again",
        seconds=f"{FORM_SECONDS:g}",
    )


def _check_count(count: int) -> None:
    if count > FORM_FIELDS_MAX:
        raise refusal(
            web.HTTPBadRequest,
            "the form has %(count)s fields, the limit is %(limit)s; send fewer",
            count=count,
            limit=FORM_FIELDS_MAX,
        )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; ValueError for a name that is there twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(Text("a field is there twice"))
    return found


def _as_field(key: str, value: object) -> str:
    """A value of JSON as a form has it. ValueError for one that no field has."""
    if isinstance(value, bool):
        return "1" if value else ""
    if not isinstance(value, int | str):
        raise ValueError(
            Text("%(key)s is no text, whole number, true or false", key=f"{key[:80]!r}")
        )
    text = str(value)
    text.encode()  # half a character is no text
    return text
