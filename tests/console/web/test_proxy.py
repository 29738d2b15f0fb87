"""A console behind a proxy that names visitors in a header, and one that speaks TLS itself."""

import ssl
import time
from http.cookies import SimpleCookie
from pathlib import Path

from aerobee.console.access.passwords import hash_password
from aerobee.console.access.reverse_proxy import ReverseProxy
from aerobee.console.access.rights import Right
from aerobee.console.access.user_file import User
from aerobee.protocol.security import self_signed

from ..fake_cluster import Shop
from .site import Site

HEADER = "X-Forwarded-User"
LOCAL = "127.0.0.1"


async def log_in(site: Site, name: str) -> tuple[int, str, str]:
    """Status, text and the session's id of a visit that the proxy names."""
    headers = {HEADER: name, "X-Forwarded-For": "198.51.100.7"}
    status, text, found = await site.get("login", headers=headers, next="/topics")
    cookie = SimpleCookie(found.get("Set-Cookie", ""))
    if cookie:
        (one,) = cookie.values()
        assert (one["secure"], one["httponly"], one["samesite"]) == (True, True, "Strict")
        assert found["Location"] == "/topics"
        return status, text, one.value
    return status, text, ""


async def visit(site: Site, name: str, session: str) -> tuple[int, str]:
    cookie = f"{site.access.guard.cookie}={session}"
    status, text, _ = await site.get("overview", headers={HEADER: name, "Cookie": cookie})
    return status, text


async def test_a_proxy_names_visitors(shop: Shop) -> None:
    reverse_proxy = ReverseProxy([LOCAL], header=HEADER, right=Right.OPERATE)
    async with Site({"main": shop.address}, reverse_proxy=reverse_proxy) as site:
        status, _, session = await log_in(site, "ann")
        assert status == 303
        status, text = await visit(site, "ann", session)
        assert status == 200
        assert "ann, may operate" in text
        (kept,) = site.access.sessions._by_hash.values()
        assert kept.visitor.address == "198.51.100.7"
        # The proxy names another visitor, or none: the session is not theirs.
        assert (await visit(site, "eve", session))[0] == 303
        assert (await visit(site, "ann", session))[0] == 303
        status, text, session = await log_in(site, "")
        assert (status, session) == (200, "")
        assert "it named none" in text


async def test_a_name_that_is_no_user_is_refused_where_there_is_a_file(shop: Shop) -> None:
    users = (User("ann", Right.VIEW, ("orders",)),)
    reverse_proxy = ReverseProxy([LOCAL], header=HEADER, right=Right.ADMINISTER)
    async with Site({"main": shop.address}, reverse_proxy=reverse_proxy, users=users) as site:
        status, text, session = await log_in(site, "eve")
        assert (status, session) == (403, "")
        assert "aerobee console user add NAME --no-password" in text
        _, _, session = await log_in(site, "ann")
        status, text = await visit(site, "ann", session)
        assert (status, "ann, may view" in text) == (200, True)
        site.users.write({"ann": User("ann", Right.OPERATE)})
        assert (await visit(site, "ann", session))[0] == 303


async def test_a_connection_that_passes_by_the_proxy_is_refused(shop: Shop) -> None:
    reverse_proxy = ReverseProxy(["192.0.2.1"], header=HEADER)
    async with Site({"main": shop.address}, reverse_proxy=reverse_proxy) as site:
        for path in ("", "login", "overview", "api/topics", "static/console.css"):
            status, text, headers = await site.get(path, headers={HEADER: "ann"})
            assert (status, "Set-Cookie" in headers) == (403, False)
            assert "127.0.0.1 is not one of 192.0.2.1/32" in text


async def test_a_console_speaks_tls_itself(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "own.pem"
    path.write_bytes(self_signed.make(time.time()))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path)
    users = (User("ann", Right.VIEW, password=hash_password("correct horse")),)
    async with Site({"main": shop.address}, users=users, tls=tls) as site:
        assert site.console.url.startswith("https://")
        url = site.console.url + "login"
        data = {"name": "ann", "password": "correct horse"}
        async with site.session.post(
            url, data=data, headers={"Origin": site.origin}, allow_redirects=False, ssl=False
        ) as answer:
            assert answer.status == 303
            (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
            assert cookie["secure"]
        headers = {"Origin": site.origin.replace("https", "http")}
        async with site.session.post(url, data=data, headers=headers, ssl=False) as answer:
            assert answer.status == 403
