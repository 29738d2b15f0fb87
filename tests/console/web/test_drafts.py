"""What was typed into a form is kept: when the session ends, for another language, behind a
preview; and pages behind a form can be loaded again."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aerobee.console.access.passwords import hash_password
from aerobee.console.access.rights import Right, Visitor
from aerobee.console.access.user_file import User
from aerobee.testing import LocalCluster

from .browser import needs_chromium, started
from .site import Parsed, Site
from .test_pages_actions import acting_as, confirmed, field, form_of, previewed

PASSWORD = "correct horse"
KEPT = hash_password(PASSWORD)
USERS = (
    User("ann", Right.ADMINISTER, password=KEPT),
    User("bob", Right.VIEW, password=KEPT),
)
TOPIC = {"write": "2", "read": "2", "perm": "read and write"}


@pytest.fixture
async def users_site(cluster: LocalCluster) -> AsyncIterator[Site]:
    async with Site({"main": cluster.name_server}, users=USERS) as site:
        yield site


@pytest.fixture
async def browser() -> AsyncIterator[Any]:
    async for one in started():
        yield one


async def left(
    site: Site, path: str, fields: dict[str, str], headers: Any = None
) -> tuple[int, str, str]:
    """The answer to a form without a session: status, text, and the page after the login."""
    async with site.session.post(
        site.console.url + path, data=fields, headers={"Origin": site.origin, **(headers or {})}
    ) as answer:
        page = await answer.text()
        (link,) = [
            attrs["href"] or ""
            for tag, attrs in Parsed(page).elements
            if tag == "a" and "/login?next=" in (attrs.get("href") or "")
        ]
    async with site.session.get(site.origin + link) as answer:
        return answer.status, Parsed(page).text, field(await answer.text(), "next")


async def log_in(site: Site, name: str, after: str) -> str:
    """The page that a login leads to."""
    status, _, headers = await site.log_in_as(site.session, name, PASSWORD, next=after)
    assert (status, headers["Location"]) == (303, after)
    async with site.session.get(site.origin + after) as answer:
        return await answer.text()


async def test_a_form_whose_session_has_ended_is_there_again_after_the_login(
    users_site: Site,
) -> None:
    site = users_site
    given = {"topic": '<i>"new', "properties": "", "body": "a\nb", "cluster": "main"}
    _, text, after = await left(site, "act/message-send/preview", {"token": "old", **given})
    assert "nothing was done; what was typed is kept" in text
    assert after.startswith("/act/message-send?cluster=main&draft=")
    page = await log_in(site, "ann", after)
    assert form_of(page)["topic"]["value"] == given["topic"]
    assert "a\nb" in Parsed(page).text
    assert "the session had ended, so that nothing was done" in Parsed(page).text
    assert site.audit.last(10) == []
    # Who may not act sees no form.
    async with site.visitor() as other:
        site.session, own = other, site.session
        try:
            assert "needs the right to" in Parsed(await log_in(site, "bob", after)).text
        finally:
            site.session = own


async def test_a_confirmation_whose_session_has_ended_is_previewed_again(users_site: Site) -> None:
    site = users_site
    await site.log_in_as(site.session, "ann", PASSWORD)
    text = await previewed(site, "topic-create", topic="late", **TOPIC)
    site.clock += 3_600
    fields = {"preview": field(text, "preview"), "cluster": "main", "typed": ""}
    _, said, after = await left(site, "act/topic-create/confirm", fields)
    assert "nothing was done" in said
    page = await log_in(site, "ann", after)
    assert form_of(page)["topic"]["value"] == "late"
    assert site.audit.last(10) == []


async def test_a_login_by_a_link_leads_once_to_the_form_that_was_left(site: Site) -> None:
    path, given = "act/topic-create", {"topic": "left", "cluster": "main"}
    async with site.visitor() as other:
        headers = {"Origin": site.origin}
        url = f"{site.console.url}{path}/preview"
        async with other.post(url, data=given, headers=headers) as answer:
            assert "what was typed is kept" in Parsed(await answer.text()).text
            cookie = answer.cookies[f"{site.access.guard.cookie}-next"]
            assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
        async with other.get(site.console.new_link() or "") as answer:
            assert answer.url.path == f"/{path}"
            assert form_of(await answer.text())["topic"]["value"] == "left"
        async with other.get(site.console.new_link() or "") as answer:
            assert answer.url.path == "/overview"
        for planted in ("//evil.example/", "http://evil.example/"):
            headers = {"Cookie": f'{site.access.guard.cookie}-next="{planted}"'}
            where = site.console.new_link() or ""
            async with other.get(where, headers=headers, allow_redirects=False) as answer:
                assert answer.headers["Location"] == "/overview"


async def test_secrets_and_forms_of_other_sites_are_not_kept(users_site: Site) -> None:
    site = users_site
    given = {"user": "new", "password": "secret-4711", "cluster": "main"}
    _, _, after = await left(site, "act/user-create/preview", given)
    page = await log_in(site, "ann", after)
    assert form_of(page)["user"]["value"] == "new"
    assert "secret-4711" not in page
    await site.post("logout")
    elsewhere = {"Origin": "http://evil.example"}
    _, text, after = await left(site, "act/message-send/preview", {"topic": "t"}, elsewhere)
    assert "send the form again" in text
    assert "draft" not in after


async def test_a_draft_is_its_visitor_s_own(site: Site) -> None:
    text = await previewed(site, "topic-create", topic="own", **TOPIC)
    draft = field(text, "preview")
    assert form_of(await site.html("act/topic-create", draft=draft))["topic"]["value"] == "own"
    async with acting_as(site, Visitor("ann", Right.ADMINISTER)):
        page = await site.html("act/topic-create", draft=draft)
        assert form_of(page)["topic"]["value"] == ""
        assert "what was typed is not kept any more" in Parsed(page).text


async def test_a_preview_and_a_result_can_be_loaded_again(site: Site) -> None:
    text = await previewed(site, "topic-create", topic="again", **TOPIC)
    ident = field(text, "preview")
    page = await site.html("act/topic-create/preview", preview=ident)
    assert field(page, "preview") == ident
    status, done = await confirmed(site, "topic-create", text)
    assert status == 200
    assert "1 done." in Parsed(done).text
    page = await site.html("act/topic-create/result", result=ident)
    assert "1 done." in Parsed(page).text
    # A confirmation that is sent twice is done once, and leads to the same result.
    status, page = await confirmed(site, "topic-create", text)
    assert (status, "1 done." in Parsed(page).text) == (200, True)
    assert len(site.audit.last(10)) == 2
    # The preview is used: its form is there, filled in, and says so.
    status, page, _ = await site.get("act/topic-create/preview", preview=ident)
    assert (status, form_of(page)["topic"]["value"]) == (409, "again")
    assert "this preview is not kept: it was used" in Parsed(page).text
    async with acting_as(site, Visitor("ann", Right.ADMINISTER)):
        status, page, _ = await site.get("act/topic-create/result", result=ident)
        assert (status, "not kept any more" in Parsed(page).text) == (404, True)


async def test_another_language_keeps_what_was_typed_and_its_faults(site: Site) -> None:
    given = {"form": "topic-create", "cluster": "main", "topic": "typed", "write": "x"}
    status, page = await site.post("language", {"language": "zh-CN", **given})
    assert (status, form_of(page)["topic"]["value"]) == (200, "typed")
    assert '<html lang="zh-CN"' in page
    assert "aria-invalid" not in form_of(page)["write"]
    status, page = await site.post("act/topic-create/preview", given)
    assert status == 400
    again = {"faulty": field(page, "faulty"), "language": "en", **given}
    status, page = await site.post("language", again)
    form = form_of(page)
    assert (form["topic"]["value"], form["write"]["aria-invalid"]) == ("typed", "true")


@needs_chromium
async def test_the_buttons_of_the_header_keep_a_form_and_enter_previews_it(
    site: Site, browser: Any
) -> None:
    page = await browser.new_page()
    await page.goto(site.console.new_link())
    await page.goto(f"{site.console.url}act/topic-create")
    await page.fill("[name=topic]", "typed")
    await page.click("[name=language]")
    await page.wait_for_url("**draft=**")
    assert await page.get_attribute("html", "lang") == "zh-CN"
    assert await page.input_value("[name=topic]") == "typed"
    await page.click("[popovertarget=themes]")
    await page.click("[name=theme][value=dark]")
    await page.wait_for_selector("[data-theme=dark]")
    assert await page.input_value("[name=topic]") == "typed"
    for name in ("write", "read"):
        await page.fill(f"[name={name}]", "1")
    await page.select_option("[name=perm]", index=1)
    await page.press("[name=topic]", "Enter")
    await page.wait_for_url("**/act/topic-create/preview?**")
    await page.close()
