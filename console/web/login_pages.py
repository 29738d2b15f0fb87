"""The pages outside of a session: login, logout, and the choice of a language and of a theme."""

from collections.abc import Callable, Collection, Mapping
from urllib.parse import urlencode, urlsplit

from aiohttp import web

from ...client.errors import AerobeeError
from ..access.attempts import TooMany
from ..access.one_time_link import SECONDS
from ..access.rights import Right
from ..texts import Text, TextError, refusal, status_of, text_of
from . import languages, themes
from .languages import LANGUAGES
from .routes import Handler, Route
from .site import Site

NEXT_CHARS_MAX = 2_000
CHOICE_SECONDS = 365 * 86_400  # of a language or a theme
NEXT_SECONDS = 3_600  # until the login after which a form is shown again


KeptForm = Callable[[web.Request, Mapping[str, str]], str | None]


class LoginPages:
    """The pages of a console outside of a session. `kept_form` keeps what was typed into a form."""

    def __init__(self, site: Site, kept_form: KeptForm) -> None:
        self._site = site
        self._kept_form = kept_form
        self._access = site.access
        self._base = site.base

    def routes(self) -> list[Route]:
        """The routes that need no session, and that of the logout."""
        found = [
            Route("GET", "/login", None, self._login),
            Route("POST", "/logout", Right.VIEW, self._logout),
            Route(
                "POST",
                "/language",
                None,
                self._keeping("language", languages.COOKIE, [one.code for one in LANGUAGES]),
            ),
            Route("POST", "/theme", None, self._keeping("theme", themes.COOKIE, [*themes.THEMES])),
        ]
        if self._access.link is not None:
            found.append(Route("POST", "/login/link", None, self._new_link))
        if self._access.has_passwords:
            found.append(Route("POST", "/login", None, self._by_password))
        return found

    def new_link(self) -> str | None:
        """A new address that logs in once; None for a console with users."""
        link = self._access.link
        return None if link is None else f"{self._site.url}login?{urlencode({'link': link.make()})}"

    def keep_next(self, answer: web.StreamResponse, after: str) -> None:
        """Have the next login of this browser lead to a page, also that by a link, which can't name
        one."""
        guard = self._access.guard
        answer.set_cookie(
            self._next_cookie,
            after,
            path=guard.path,
            max_age=NEXT_SECONDS,
            httponly=True,
            samesite="Strict",
            secure=guard.is_secure,
        )

    @property
    def _next_cookie(self) -> str:
        return f"{self._access.guard.cookie}-next"

    async def _login(self, request: web.Request) -> web.StreamResponse:
        word = request.query.get("link")
        if word is None:
            after = request.query.get("next", "")
            opened = self._access.by_header(request)
            if opened is not None:
                return self._begun(request, opened, after)
            return self._form(request, after)
        name = self._access.by_link(word, self._access.address_of(request))
        if name is None:
            text = Text(
                "the link was used, is too old, or is none of this console; print a new one"
            )
            return self._form(request, "", text, 403)
        # The address with the link is left at once, and the link is void.
        return self._begun(request, name, "")

    def _form(
        self, request: web.Request, after: str, error: str | None = None, status: int = 200
    ) -> web.Response:
        data = {
            "error": error,
            "clusters": list(self._access.clusters or ()),
            "has_passwords": self._access.has_passwords,
            "minutes": round(SECONDS / 60) if self._access.link is not None else None,
            "next": self._here(after or request.cookies.get(self._next_cookie, "")),
            "port": urlsplit(self._site.url).port,
        }
        return self._site.page_without_session(request, "login", Text("Log in"), data, status)

    async def _by_password(self, request: web.Request) -> web.StreamResponse:
        fields = await self._access.guard.form(request, None)
        after = fields.get("next", "")
        address = self._access.address_of(request)
        try:
            name = await self._access.log_in(
                fields.get("name", ""),
                fields.get("password", ""),
                address,
                fields.get("cluster", ""),
            )
        except (TextError, AerobeeError) as wrong:
            answer = self._form(request, after, text_of(wrong), status_of(wrong))
            if isinstance(wrong, TooMany):
                answer.headers["Retry-After"] = str(round(wrong.wait_s))
            return answer
        return self._begun(request, name, after)

    def _begun(self, request: web.Request, name: str, after: str) -> web.Response:
        kept = request.cookies.get(self._next_cookie, "")
        answer = web.Response(status=303, headers={"Location": self._here(after or kept)})
        guard = self._access.guard
        guard.begin(request, answer, name)
        if kept:
            answer.del_cookie(
                self._next_cookie,
                path=guard.path,
                httponly=True,
                samesite="Strict",
                secure=guard.is_secure,
            )
        return answer

    def _here(self, after: str) -> str:
        """The page to go on with: one of this console."""
        is_ours = after.startswith(f"{self._base}/") and not after.startswith("//")
        is_printable = after.isascii() and after.isprintable() and "\\" not in after
        if is_ours and is_printable and len(after) <= NEXT_CHARS_MAX:
            return after
        return f"{self._base}/overview"

    async def _new_link(self, request: web.Request) -> web.StreamResponse:
        await self._access.guard.form(request, None)
        wait_s = 0.0 if self._access.link is None else self._access.link.wait_s
        if wait_s > 0:
            raise refusal(
                web.HTTPTooManyRequests,
                "a link was printed just now; use it, or wait %(seconds)s s for another",
                seconds=f"{wait_s:.0f}",
            )
        print(f"log in once: {self.new_link()}", flush=True)
        return web.Response(status=303, headers={"Location": f"{self._base}/login"})

    async def _logout(self, request: web.Request) -> web.StreamResponse:
        guard = self._access.guard
        await guard.form(request, self._access.session_of(request))
        answer = web.Response(status=303, headers={"Location": f"{self._base}/login"})
        guard.end(request, answer)
        return answer

    def _keeping(self, field: str, cookie: str, known: Collection[str]) -> Handler:
        """Keeps what a visitor chooses in a cookie, and goes back to the page, with what was typed
        into its form."""

        async def answer(request: web.Request) -> web.StreamResponse:
            guard = self._access.guard
            fields = await guard.form(request, None)
            value = fields.get(field, "")
            if value not in known:
                raise refusal(
                    web.HTTPBadRequest,
                    "%(field)s is %(value)s; give one of %(known)s",
                    field=field,
                    value=f"{value[:80]!r}",
                    known=", ".join(known),
                )
            back = self._kept_form(request, fields) or self._here(fields.get("back", ""))
            answer = web.Response(status=303, headers={"Location": back})
            answer.set_cookie(
                cookie,
                value,
                path=guard.path,
                max_age=CHOICE_SECONDS,
                httponly=True,
                samesite="Strict",
                secure=guard.is_secure,
            )
            return answer

        return answer
