"""Login by HTTP: no page without a session, forms of this site only, and how sessions end."""

import io
import re
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie

import pytest
from aerobee.console.access.rights import Right

from ..fake_cluster import Shop
from .site import Site

OPEN = {
    ("GET", "/login"),
    ("POST", "/login/link"),
    ("GET", "/static/{name}"),
    ("POST", "/language"),
    ("POST", "/theme"),
}
ELSEWHERE = "http://evil.example"


@pytest.fixture
async def site(shop: Shop) -> AsyncIterator[Site]:
    async with Site({"main": shop.address}) as site:
        yield site


async def test_every_route_declares_its_right_and_only_the_login_needs_none(site: Site) -> None:
    rows = {(one.method, one.path): one.right for one in site.console.routes()}
    assert {key for key, right in rows.items() if right is None} == OPEN
    assert site.console._runner is not None
    served = {
        (one.method, (one.resource.canonical if one.resource else ""))
        for one in site.console._runner.app.router.routes()
        if one.method != "HEAD"
    }
    assert served == set(rows)


async def test_no_page_is_shown_without_a_session(site: Site) -> None:
    async with site.visitor() as other:
        for route in site.console.routes():
            url = site.console.url.rstrip("/") + route.path
            if (route.method, route.path) in OPEN:
                continue
            headers = {"Origin": site.origin}
            async with other.request(
                route.method, url, headers=headers, allow_redirects=False
            ) as answer:
                text = await answer.text()
                if route.path.startswith("/api/"):
                    assert answer.status == 401
                    assert "log in at /login" in (await answer.json())["error"]
                elif route.method == "GET":
                    assert answer.status == 303
                    assert answer.headers["Location"].startswith("/login?next=")
                else:
                    assert answer.status == 401
                assert "orders" not in text
        async with other.get(site.console.url + "overview", headers={"HX-Request": "true"}) as page:
            assert (page.status, page.headers["HX-Redirect"]) == (401, "/login")


async def test_a_link_logs_in_once_and_leaves_no_secret(site: Site) -> None:
    link = site.console.new_link() or ""
    async with site.visitor() as first, site.visitor() as second:
        async with first.get(link, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/overview")
            (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
            assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
            assert cookie["path"] == "/"
        async with first.get(site.console.url + "overview") as answer:
            text = await answer.text()
            assert answer.status == 200
            assert cookie.value not in text
            assert link.split("=")[1] not in text
            assert "owner, may administer" in text
        async with second.get(link, allow_redirects=False) as answer:
            assert answer.status == 403
            assert "the link was used, is too old" in await answer.text()
            assert "Set-Cookie" not in answer.headers


async def test_a_new_link_is_printed_and_never_shown(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.clock += 60
    async with site.visitor() as other:
        headers = {"Origin": site.origin}
        url = site.console.url + "login/link"
        async with other.post(url, data={}, headers=headers) as answer:
            assert answer.status == 200
            assert answer.url.path == "/login"
            text = await answer.text()
        (line,) = capsys.readouterr().out.splitlines()
        link = re.fullmatch(r"log in once: (http://\S+\?link=(\S+))", line)
        assert link is not None
        assert link[2] not in text
        async with other.post(url, data={}, headers=headers) as answer:
            assert answer.status == 429
            assert "wait 10 s for another" in await answer.text()
        async with other.get(link[1], allow_redirects=False) as answer:
            assert answer.status == 303


async def test_a_session_planted_in_a_browser_is_never_logged_in(site: Site) -> None:
    planted = site.access.sessions.open(next(iter(site.access.sessions._by_hash.values())).visitor)
    link = site.console.new_link() or ""
    async with site.visitor() as victim:
        cookie = site.access.guard.cookie
        headers = {"Cookie": f"{cookie}={planted}"}
        async with victim.get(link, headers=headers, allow_redirects=False) as answer:
            given = SimpleCookie(answer.headers["Set-Cookie"])[cookie].value
        assert given != planted
        assert site.access.sessions.find(planted) is None
    async with site.visitor() as thief:
        headers = {"Cookie": f"{cookie}={planted}"}
        url = site.console.url + "overview"
        async with thief.get(url, headers=headers, allow_redirects=False) as answer:
            assert answer.status == 303


async def test_a_session_ends_by_logout_and_by_time(site: Site) -> None:
    async with site.visitor() as other:
        await site.log_in(other)
        site.clock += 29 * 60
        assert (await site.get("overview"))[0] == 200
        site.clock += 2 * 60
        assert (await site.get("overview"))[0] == 200
        async with other.get(site.console.url + "overview", allow_redirects=False) as answer:
            assert answer.status == 303
    status, _ = await site.post("logout")
    assert status == 303
    assert (await site.get("overview"))[0] == 303
    assert len(site.access.sessions) == 0


async def test_a_page_that_refreshes_itself_keeps_no_session(site: Site) -> None:
    for _ in range(4):
        site.clock += 9 * 60
        status, _, _ = await site.get("overview", headers={"HX-Request": "true"})
    assert status == 401


@pytest.mark.parametrize(
    ("headers", "fields", "status", "says"),
    [
        ({"Origin": ELSEWHERE}, {}, 403, "the form&#39;s Origin is &#39;http://evil.example&#39;"),
        ({"Origin": "null"}, {}, 403, "Origin is &#39;null&#39;"),
        ({"Sec-Fetch-Site": "cross-site"}, {}, 403, "send forms from the console"),
        ({}, {"token": "other"}, 403, "token is not this session"),
        ({}, {"token": ""}, 403, "token is not this session"),
        ({"Content-Type": "text/plain"}, {}, 415, "send application/x-www-form-urlencoded"),
        ({"Host": "evil.example"}, {}, 421, "add yours with --host"),
        ({}, {str(n): "x" for n in range(300)}, 400, "has 301 fields, the limit is 200"),
    ],
)
async def test_a_form_that_is_not_the_console_s_own_is_refused(
    site: Site, headers: dict[str, str], fields: dict[str, str], status: int, says: str
) -> None:
    found, text = await site.post("logout", fields, headers)
    assert (found, says in text) == (status, True), text
    assert len(site.access.sessions) == 1


async def test_a_form_without_an_origin_is_refused(site: Site) -> None:
    data = {"token": await site.token()}
    async with site.session.post(site.console.url + "logout", data=data) as answer:
        assert answer.status == 403
        assert "Origin is missing" in await answer.text()


async def test_a_form_that_is_too_long_is_refused(site: Site) -> None:
    headers = {"Origin": site.origin, "Content-Type": "application/x-www-form-urlencoded"}
    data = io.BytesIO(b"x=" + b"y" * (1 << 20))
    url = site.console.url + "logout"
    async with site.session.post(url, data=data, headers=headers) as answer:
        assert answer.status == 413
        assert "Maximum request body size 1048576 exceeded" in await answer.text()


async def test_a_read_only_console_gives_nobody_more_than_a_view(shop: Shop) -> None:
    async with Site({"main": shop.address}, is_read_only=True) as site:
        assert "owner, may view (read only)" in await site.html("overview")
        (session,) = site.access.sessions._by_hash.values()
        assert session.visitor.right == Right.VIEW
